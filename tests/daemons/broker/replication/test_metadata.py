"""The data that a slave copies from its master besides the log: from real brokers, and from a wrong
master.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import orjson
import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.replication.metadata import SlaveSynchronize
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.client.scripted import scripted
from tests.daemons.broker.replication.pair import (
    caught_up,
    end_of,
    follow,
    master,
    send,
    settings_of,
    slave_of,
)
from tests.daemons.peer import PATIENCE, Peer
from tests.daemons.stopped_time import stopped_time
from tests.interop.ports import free_port
from tests.waiting import until

Script = Callable[[Broker, Broker], Awaitable[None]]


def synchronize(slave: Broker) -> SlaveSynchronize:
    found = slave.metadata.synchronize
    assert found is not None
    return found


@asynccontextmanager
async def alone(tmp_path: Path) -> AsyncIterator[Broker]:
    """A slave whose master is not known yet; the test makes it copy."""
    async with master(tmp_path) as nobody:
        slave = slave_of(tmp_path, nobody)
        slave.master_addresses.address = slave.master_addresses.ha_address = ""
        async with slave:
            yield slave


def pair(tmp_path: Path, script: Script) -> None:
    async def main() -> None:
        async with master(tmp_path) as first, slave_of(tmp_path, first) as slave:
            await script(first, slave)

    asyncio.run(main())


def test_topics_groups_and_offsets_are_the_masters(tmp_path: Path) -> None:
    async def script(first: Broker, slave: Broker) -> None:
        async with Peer(first.port) as peer:
            await send(peer, b"a chair")
        await first.stores.topics.update(TopicConfig(topic_name="Bills", read_queue_nums=3))
        await first.stores.groups.update(
            SubscriptionGroupConfig(group_name="g", which_broker_when_consume_slowly=2)
        )
        first.stores.offsets.commit("g", "Orders", 0, 1)
        await caught_up(slave, first)  # an offset is copied once its message is
        await synchronize(slave).round(first.address)
        assert slave.stores.topics.table == first.stores.topics.table
        assert slave.stores.topics.data_version == first.stores.topics.data_version
        assert slave.stores.groups.table == first.stores.groups.table
        assert slave.stores.offsets.query("g", "Orders", 0) == 1
        folder = slave.stores.messages.root / "config"
        assert b"Bills" in (folder / "topics.json").read_bytes()
        assert b"Orders@g" in (folder / "consumerOffset.json").read_bytes()
        assert synchronize(slave).age() >= 0

    pair(tmp_path, script)


def test_nothing_is_copied_from_another_broker_at_the_masters_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new machine, with an empty disk, has the address of the lost one."""
    monkeypatch.setattr("mq.daemons.broker.replication.metadata.PERIOD_SECONDS", 0.05)
    monkeypatch.setattr("mq.daemons.broker.replication.metadata.CHECK_SECONDS", 0.01)

    async def main() -> None:
        same = {"listenPort": str(free_port()), "haListenPort": str(free_port())}
        async with master(tmp_path, **same) as first:
            slave = slave_of(tmp_path, first)
            await slave.__aenter__()
            async with Peer(first.port) as peer:
                await send(peer, b"a chair")
            first.stores.offsets.commit("g", "Orders", 0, 1)
            await until(lambda: slave.stores.offsets.query("g", "Orders", 0) == 1)
        try:
            assert slave.replication.slave is not None
            endings = slave.replication.slave.endings
            async with Broker(settings_of(tmp_path / "empty", **same)) as empty:
                await until(lambda: slave.replication.slave.endings > endings + 1)  # type: ignore[union-attr]
                await synchronize(slave).round(empty.address)
                assert "Orders" in slave.stores.topics.table
                assert slave.stores.offsets.query("g", "Orders", 0) == 1
        finally:
            await slave.__aexit__(None, None, None)

    asyncio.run(main())


def test_entries_deleted_at_the_master_are_deleted(tmp_path: Path) -> None:
    async def script(first: Broker, slave: Broker) -> None:
        topics = first.stores.topics
        await topics.update(TopicConfig(topic_name="Bills"))
        first.stores.offsets.commit("g", "Bills", 0, 1)
        await synchronize(slave).round(first.address)
        assert "Bills" in slave.stores.topics.table
        await topics.delete("Bills", lambda: first.stores.offsets.remove_topic("Bills"))
        await synchronize(slave).round(first.address)
        assert "Bills" not in slave.stores.topics.table
        assert slave.stores.offsets.query("g", "Bills", 0) == -1

    pair(tmp_path, script)


def test_copying_starts_by_itself_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.broker.replication.metadata.PERIOD_SECONDS", 0.05)
    monkeypatch.setattr("mq.daemons.broker.replication.metadata.CHECK_SECONDS", 0.01)

    async def script(first: Broker, slave: Broker) -> None:
        await first.stores.topics.update(TopicConfig(topic_name="Bills"))
        await until(lambda: "Bills" in slave.stores.topics.table)
        await first.stores.topics.update(TopicConfig(topic_name="More"))
        await until(lambda: "More" in slave.stores.topics.table)

    pair(tmp_path, script)


def test_delivery_progress_waits_for_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as first:
            async with Peer(first.port) as peer:
                await send(peer, b"later", properties="DELAY\x011")
            await until(lambda: first.delivery.delayed.offsets.get(1) == 1)
            slave = slave_of(tmp_path, first)
            # no log arrives
            slave.master_addresses.address = slave.master_addresses.ha_address = ""
            async with slave:
                await synchronize(slave).round(first.address)
                assert slave.delivery.delayed.offsets.get(1, 0) == 0
                slave.master_addresses.set(first.address, f"127.0.0.1:{first.ha_master.port}")
                await caught_up(slave, first)
                await synchronize(slave).take_delivered()
                assert slave.delivery.delayed.offsets[1] == 1
                path = slave.stores.messages.root / "config" / "delayOffset.json"
                assert b'"offsetTable"' in path.read_bytes()

    asyncio.run(main())


def test_the_progress_of_one_master_is_not_applied_to_the_log_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.broker.replication.metadata.CHECK_SECONDS", 0.01)

    async def delayed(broker: Broker, count: int) -> None:
        async with Peer(broker.port) as peer:
            for _ in range(count):
                await send(peer, b"later", properties="DELAY\x011")

    async def main() -> None:
        late = settings_of(tmp_path / "second", messageDelayLevel="1h 2h")
        async with master(tmp_path) as first, Broker(late) as second, alone(tmp_path) as slave:
            await delayed(first, 3)
            await until(lambda: first.delivery.delayed.offsets.get(1) == 3)
            await delayed(second, 20)
            assert end_of(second) > end_of(first)
            slave.master_addresses.set(first.address, "")
            await until(lambda: synchronize(slave).master == first.address)
            await synchronize(slave).round(first.address)
            slave.master_addresses.set(second.address, "")
            await until(lambda: synchronize(slave).master == second.address)
            await synchronize(slave).round(second.address)
            follow(slave, second)
            await caught_up(slave, second)
            await synchronize(slave).take_delivered()
            assert slave.delivery.delayed.offsets.get(1, 0) == 0

    asyncio.run(main())


def test_offsets_of_groups_wait_for_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as first, alone(tmp_path / "other") as slave:
            async with Peer(first.port) as peer:
                await send(peer, b"a chair")
            first.stores.offsets.commit("g", "Orders", 0, 1)
            await synchronize(slave).round(first.address)  # no log arrives
            assert slave.stores.offsets.query("g", "Orders", 0) == -1
            follow(slave, first)
            await caught_up(slave, first)
            await synchronize(slave).take_delivered()
            assert slave.stores.offsets.query("g", "Orders", 0) == 1

    asyncio.run(main())


def test_a_masters_report_is_dropped_when_its_connection_has_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as first, alone(tmp_path / "other") as slave:
            async with Peer(first.port) as peer:
                await send(peer, b"later", properties="DELAY\x011")
            await until(lambda: first.delivery.delayed.offsets.get(1) == 1)
            await synchronize(slave).round(first.address)
            replicates = slave.replication.slave
            assert replicates is not None
            slave.master_addresses.set(first.address, "127.0.0.1:1")
            await until(lambda: replicates.endings > 0)
            follow(slave, first)
            await caught_up(slave, first)
            await synchronize(slave).take_delivered()
            assert slave.delivery.delayed.offsets.get(1, 0) == 0
            await synchronize(slave).round(first.address)
            assert slave.delivery.delayed.offsets.get(1, 0) == 1

    asyncio.run(main())


def test_a_promoted_slave_delivers_the_remaining_messages_once(tmp_path: Path) -> None:
    async def before() -> None:
        async with master(tmp_path, messageDelayLevel="1s 2s") as first:
            slave = slave_of(tmp_path, first, messageDelayLevel="1s 2s")
            async with slave, Peer(first.port) as peer:
                await send(peer, b"soon", properties="DELAY\x011")
                await until(lambda: first.delivery.delayed.offsets.get(1) == 1)
                stopped.enter_context(stopped_time())
                await send(peer, b"later", properties="DELAY\x012")
                await caught_up(slave, first)
                await synchronize(slave).round(first.address)

    async def after() -> None:
        promoted = Broker(settings_of(tmp_path / "slave", messageDelayLevel="1s 2s"))
        async with promoted:
            queue = promoted.stores.messages.queue("Orders", 0)
            await until(lambda: queue.readable == 2)
            await asyncio.sleep(0.1)
            assert queue.readable == 2

    with ExitStack() as stopped:
        asyncio.run(before())
    asyncio.run(after())


# a wrong master -------------------------------------------------------------------------------


EMPTY_LOG = {RequestCode.GET_BROKER_RUNTIME_INFO: b'{"table":{"commitLogMaxOffset":"0"}}'}


def answering(answers: Mapping[RequestCode, bytes]) -> dict[int, Handler]:
    """A master with an empty log that answers these codes, and refuses others as an older release
    does.
    """
    known = {**EMPTY_LOG, **answers}

    def handler(code: RequestCode) -> Handler:
        def answer(request: Command, channel: Channel) -> Command:
            body = known.get(code)
            if body is None:
                return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            return request.reply(body=body)

        return answer

    asked = (
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    )
    return {int(code): handler(code) for code in asked}


def topic(name: str, **changes: int) -> dict[str, object]:
    plain = {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    return {**plain, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False, **changes}


GOOD_TOPICS = orjson.dumps(
    {
        "topicConfigTable": {
            "good": topic("good"),
            "../../etc": topic("../../etc"),
            "many": topic("many", readQueueNums=1 << 30),
            "named": topic("otherwise"),
        },
        "dataVersion": {"timestamp": 7, "counter": 3},
    }
)


def test_invalid_entries_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    offsets = {"good@g": {"0": 5, "-1": 2, "1": -4}, "../x@g": {"0": 1}, "no-group": {"0": 1}}

    async def main() -> None:
        answers = {
            RequestCode.GET_ALL_TOPIC_CONFIG: GOOD_TOPICS,
            RequestCode.GET_ALL_CONSUMER_OFFSET: orjson.dumps({"offsetTable": offsets}),
        }
        async with alone(tmp_path) as slave, scripted(answering(answers)) as address:
            await synchronize(slave).round(address)
            assert list(slave.stores.topics.table) == ["good"]
            assert slave.stores.offsets.table == {"good@g": {0: 5}}

    asyncio.run(main())
    assert "skipped 3 topics of the master" in caplog.text


def test_an_invalid_answer_does_not_affect_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        answers = {
            RequestCode.GET_ALL_TOPIC_CONFIG: b"\xff not JSON",
            RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"t@g":{0:5}}}',
            RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{"1":-5}}',
        }
        async with alone(tmp_path) as slave, scripted(answering(answers)) as address:
            before = slave.stores.topics.table
            for _ in range(2):
                await synchronize(slave).round(address)
            assert slave.stores.topics.table is before
            assert slave.stores.offsets.query("g", "t", 0) == 5
            assert synchronize(slave).age() == -1

    asyncio.run(main())
    assert caplog.text.count("cannot copy topics") == 1


@pytest.mark.parametrize(("refusals", "seconds"), [(2, PATIENCE), (1000, 0.2)])
def test_offsets_are_not_copied_from_a_master_that_cannot_report_its_log_end_yet(
    refusals: int,
    seconds: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Java's answer in the second after its start was read as an empty log."""
    monkeypatch.setattr("mq.daemons.broker.replication.metadata.CHECK_SECONDS", 0.01)
    monkeypatch.setattr("mq.daemons.broker.replication.metadata.SAMPLED_SECONDS", seconds)
    asked = 0

    def just_started(request: Command, channel: Channel) -> Command:
        nonlocal asked
        asked += 1
        if asked <= refusals:
            return request.reply(
                ResponseCode.SYSTEM_ERROR, remark="java.util.NoSuchElementException"
            )
        return request.reply(body=EMPTY_LOG[RequestCode.GET_BROKER_RUNTIME_INFO])

    async def main() -> None:
        answers = {
            RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"t@g":{0:5}}}',
            RequestCode.GET_ALL_TOPIC_CONFIG: GOOD_TOPICS,
        }
        handlers = answering(answers)
        handlers[RequestCode.GET_BROKER_RUNTIME_INFO] = just_started
        async with alone(tmp_path) as slave, scripted(handlers) as address:
            await synchronize(slave).round(address)
            assert "good" in slave.stores.topics.table
            says = refusals == 2
            assert slave.stores.offsets.query("g", "t", 0) == (5 if says else -1)
            assert ("cannot copy consumer offsets" in caplog.text) is not says

    asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "remark", "takes"),
    [
        (ResponseCode.SYSTEM_ERROR, "The checkpoint is null", True),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 61 not supported", True),
        (ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException", False),
        (ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy", False),
    ],
)
def test_delay_progress_is_not_applied_without_the_masters_timer(
    tmp_path: Path, code: ResponseCode, remark: str, takes: bool
) -> None:
    async def main() -> None:
        handlers = answering({RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{"1":5}}'})
        handlers[RequestCode.GET_TIMER_CHECK_POINT] = lambda request, _: request.reply(
            code, remark=remark
        )
        async with alone(tmp_path) as slave, scripted(handlers) as address:
            await synchronize(slave).round(address)
            path = slave.stores.messages.root / "config" / "delayOffset.json"
            assert path.exists() is takes

    asyncio.run(main())


def test_a_silent_master_is_searched_for(tmp_path: Path) -> None:
    async def main() -> None:
        looked: list[bool] = []
        async with alone(tmp_path) as slave:
            copies = synchronize(slave)
            copies._on_silence = lambda: looked.append(True)
            await copies.round("127.0.0.1:1")
            assert looked == [True]

    asyncio.run(main())


ACCOUNTS = """
accounts:
  - accessKey: replicas
    secretKey: "12345678"
    admin: true
"""


def test_a_slave_signs_its_requests_to_a_master_with_accounts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    keys = tmp_path / "tools.yml"
    keys.write_text('accessKey: replicas\nsecretKey: "12345678"\n')
    guarded = {"aclEnable": "true", "rocketmqHome": str(home)}

    async def main() -> None:
        async with master(tmp_path, **guarded) as first:
            await first.stores.topics.update(TopicConfig(topic_name="Bills"))
            key = {"namesrvAclFile": str(keys)}
            async with slave_of(tmp_path, first, "unsigned") as slave:
                await synchronize(slave).round(first.address)
                assert "Bills" not in slave.stores.topics.table
            async with slave_of(tmp_path, first, "signed", **key) as slave:
                await synchronize(slave).round(first.address)
                assert "Bills" in slave.stores.topics.table

    asyncio.run(main())
    assert "cannot copy topics" in caplog.text
