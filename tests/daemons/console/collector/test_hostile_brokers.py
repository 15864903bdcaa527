"""Hostile data of a broker does not affect the rest of its cluster."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mq.daemons.channel import Channel
from mq.daemons.console.api.values import to_json
from mq.daemons.console.collector import broker_watch
from mq.daemons.console.collector.book import BrokerBook, GroupSettings
from mq.daemons.console.collector.broker_watch import BrokerWatch, Poll
from mq.daemons.console.collector.collector import Collector
from mq.daemons.console.collector.limits import Limits
from mq.daemons.console.collector.paced import Pace, PacedSession
from mq.daemons.console.history.history import History
from mq.daemons.console.history.points import HOUR, Key
from mq.daemons.console.history.recording import Recorder
from mq.protocol.bodies import (
    Connection,
    ConsumerConnection,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from mq.protocol.codes import RequestCode as C
from mq.protocol.command import Command
from tests.client.scripted import scripted
from tests.daemons.console.collector.peers import counting_broker, name_server
from tests.daemons.console.pages.state import seen
from tests.daemons.tube.loops import in_loop

NINES = b"9" * 400


def topics(*names: str) -> bytes:
    table = {name: TopicConfig(topic_name=name) for name in names}
    return TopicConfigSerializeWrapper(topic_config_table=table).encode()


def groups(*names: str) -> bytes:
    table = {name: SubscriptionGroupConfig(group_name=name) for name in names}
    return SubscriptionGroupWrapper(subscription_group_table=table).encode()


def progress(*queues: tuple[str, int, bytes, bytes]) -> bytes:
    return b'{"consumeTps":0.0,"offsetTable":{%s}}' % b",".join(
        b'{"brokerName":"b","queueId":%d,"topic":"%s"}:'
        b'{"brokerOffset":%s,"consumerOffset":%s,"lastTimestamp":1}'
        % (queue, topic.encode(), end, place)
        for topic, queue, end, place in queues
    )


def rate(text: bytes) -> bytes:
    return b'{"statsMinute":{"sum":1,"tps":%s,"avgpt":1.0}}' % text


def bounds(end: bytes) -> bytes:
    return (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:'
        b'{"lastUpdateTimestamp":1,"maxOffset":%s,"minOffset":0}}}' % end
    )


PLAIN: Mapping[C, bytes] = {
    C.GET_BROKER_RUNTIME_INFO: b'{"table":{"putTps":"1 1 1"}}',
    C.GET_ALL_TOPIC_CONFIG: topics("t"),
    C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups("g"),
    C.GET_ALL_PRODUCER_INFO: b'{"data":{}}',
    C.GET_CONSUME_STATS: progress(),
    C.GET_TOPIC_STATS_INFO: b'{"offsetTable":{}}',
    C.VIEW_BROKER_STATS_DATA: rate(b"1.0"),
}


@asynccontextmanager
async def broker(bodies: Mapping[C, bytes], asked: Counter[C] | None = None) -> AsyncIterator[str]:
    """One that answers with these."""

    def answer(request: Command, channel: Channel) -> Command:
        if asked is not None:
            asked[C(request.code)] += 1
        body = {**PLAIN, **bodies}.get(C(request.code))
        if body is None:
            return request.reply(1, None, remark="nothing")
        return request.reply(0, None, body)

    async with scripted({int(code): answer for code in C}) as address:
        yield address


@pytest.mark.parametrize(
    "told",
    [
        {C.VIEW_BROKER_STATS_DATA: rate(b"1e308")},  # those of two are infinite together
        {C.VIEW_BROKER_STATS_DATA: rate(b"1e999")},
        {C.GET_BROKER_RUNTIME_INFO: b'{"table":{"putTps":"1.7e308 1 1"}}'},
        {C.GET_BROKER_RUNTIME_INFO: b'{"table":{"processPrivateBytes":"%s"}}' % NINES},
        {C.GET_CONSUME_STATS: progress(("t", 0, NINES, b"0"))},
        {C.GET_CONSUME_STATS: progress(("t", 0, 20 * NINES, b"0"))},
        {C.GET_TOPIC_STATS_INFO: bounds(20 * NINES)},
    ],
    ids=["rates", "infinite", "tps", "memory", "offset", "long-offset", "bounds"],
)
@in_loop
async def test_numbers_without_end_stop_neither_the_looks_nor_the_history(
    tmp_path: Path, told: Mapping[C, bytes]
) -> None:
    asked: Counter[C] = Counter()
    async with (
        broker(told, asked) as one,
        broker(told) as other,
        broker({C.GET_ALL_TOPIC_CONFIG: topics("good")}) as good,
        name_server({"b0": {0: one}, "b1": {0: other}, "good": {0: good}}) as naming,
        Collector(naming, rate=500.0, checkup_seconds=3600) as collector,
        History(tmp_path / "history") as history,
    ):
        found = await seen(
            collector,
            lambda s: (
                asked[C.GET_CONSUME_STATS]
                and asked[C.GET_TOPIC_STATS_INFO]
                and (row := s.topic("good")) is not None
                and row.in_rate is not None
                and all(b.seen for b in s.brokers)
            ),
        )
        recorder = Recorder("c", collector, history)
        recorder.record(found)
        assert Key("c", "topic", "good", "in_rate") in history
        for key in (Key("c", "cluster", "C", "in_rate"), Key("c", "topic", "t", "in_rate")):
            points = await history.read(key, found.at // 1000 - HOUR, found.at // 1000 + 1)
            assert all(point.high < 1e21 for point in points)
        to_json(found)
        assert not collector.failures


@in_loop
async def test_runtime_and_lists_are_asked_for_in_time_however_many_looks_are_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_watch, "RUNTIME_SECONDS", 0.1)
    monkeypatch.setattr(broker_watch, "LIST_SECONDS", (0.1, 0.1))
    async with (
        counting_broker(3000, 500) as (address, asked, _),
        name_server({"b": {0: address}}) as naming,
        Collector(naming, rate=200.0, checkup_seconds=3600) as collector,
    ):
        await seen(collector, lambda s: asked[C.GET_ALL_TOPIC_CONFIG] > 2)
        assert asked[C.GET_BROKER_RUNTIME_INFO] > 2
        assert asked.total() < 3000  # with those first that had waited longer: 7,000


@in_loop
async def test_names_that_come_and_go_leave_nothing_behind() -> None:
    told = dict(PLAIN)
    told[C.GET_CONSUMER_CONNECTION_LIST] = ConsumerConnection().encode()
    async with broker(told) as address, PacedSession(address, None, Pace(10_000.0)) as session:
        book = BrokerBook("C", "b", 0, address, 0)
        watch = BrokerWatch(session, book, Limits(), 5.0, lambda _: True, lambda _: None)
        for number in range(5):
            book.set_topics({f"t{number}": broker_watch._topic(TopicConfig())})
            book.set_groups({f"g{number}": GroupSettings(True, 16)})
            for what in ("rate", "kept"):
                await watch._do(Poll(what, f"t{number}"))
                await watch._do(Poll(what, f"t{number - 1}"))  # was due when it was removed
            for what in ("progress", "members"):
                await watch._do(Poll(what, f"g{number}"))
                await watch._do(Poll(what, f"g{number - 1}"))
        assert (list(book.rates), list(book.kept)) == (["t4"], ["t4"])
        assert (list(book.progress), list(book.members)) == (["g4"], ["g4"])
        assert len(watch._schedule) == 4


@in_loop
async def test_a_group_with_more_members_than_there_is_room_for_is_online_and_says_how_many() -> (
    None
):
    clients = [Connection(client_id=f"c{n}", client_addr="127.0.0.1:1") for n in range(6)]
    told = dict(PLAIN)
    told[C.GET_CONSUMER_CONNECTION_LIST] = ConsumerConnection(connection_set=clients).encode()
    told[C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = groups("g", "h")
    async with (
        broker(told) as address,
        name_server({"b": {0: address}}) as naming,
        Collector(naming, limits=Limits(clients=4), checkup_seconds=3600) as collector,
    ):
        found = await seen(collector, lambda s: s.groups and all(g.members for g in s.groups))
        assert {(one.state, one.members) for one in found.groups} == {("online", 6)}
        watch_book = next(iter(collector._assembly._books.values()))
        before = len(watch_book.members["g"].clients)
        assert before == 4
        watch = BrokerWatch(
            collector._session, watch_book, Limits(clients=4), 5.0, lambda _: True, lambda _: None
        )
        await watch._do(Poll("members", "g"))  # its own clients do not use its share
        assert len(watch_book.members["g"].clients) == before


@in_loop
async def test_what_a_broker_tells_of_its_groups_is_bounded_and_said() -> None:
    many = progress(*((f"topic-{n}", 0, b"5", b"1") for n in range(50)))
    told = {C.GET_CONSUME_STATS: many, C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups(*"abcdef")}
    async with (
        broker(told) as address,
        name_server({"b": {0: address}}) as naming,
        Collector(naming, limits=Limits(queues=350), checkup_seconds=3600) as collector,
    ):
        found = await seen(
            collector, lambda s: any("3 groups' offsets" in one.text for one in s.problems)
        )
        assert [one.lag for one in found.groups].count(200) == 3
        assert [one.lag for one in found.groups].count(None) == 3  # not 0, and no part of it


@in_loop
async def test_the_name_of_a_topic_in_a_groups_offsets_may_not_be_endless() -> None:
    told = {C.GET_CONSUME_STATS: progress(("t" * 5000, 0, b"5", b"1"))}
    async with (
        broker(told) as address,
        name_server({"b": {0: address}}) as naming,
        Collector(naming, checkup_seconds=3600) as collector,
    ):
        found = await seen(
            collector, lambda s: any("1 groups' offsets" in one.text for one in s.problems)
        )
        assert found.groups[0].topics == ()


@pytest.mark.parametrize(
    ("remark", "known"),
    [
        ("The stats <TOPIC_PUT_NUMS> <t> not exist", [0.0]),
        ("org.apache.rocketmq.acl.common.AclException: no", []),
    ],
)
@in_loop
async def test_a_topic_is_quiet_only_where_its_broker_says_that_nothing_has_come_into_it(
    remark: str, known: list[float]
) -> None:
    def refuse(request: Command, channel: Channel) -> Command:
        return request.reply(1, remark=remark)

    async with (
        scripted({C.VIEW_BROKER_STATS_DATA: refuse}) as address,
        PacedSession(address, None, Pace(10_000.0)) as session,
    ):
        book = BrokerBook("C", "b", 0, address, 0)
        watch = BrokerWatch(session, book, Limits(), 5.0, lambda _: True, lambda _: None)
        book.set_topics({"t": broker_watch._topic(TopicConfig())})
        await watch._do(Poll("rate", "t"))
        assert [rate.rate for rate in book.rates.values()] == known
