"""Figures that are counted, sampled and returned by VIEW_BROKER_STATS_DATA."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from mq.daemons.broker.statistics.stat_items import DAY, HOUR, MINUTE, Key, StatItems, Total
from mq.protocol.bodies import BrokerStatsData
from mq.protocol.codes import RequestCode, ResponseCode
from tests import answered
from tests.daemons.broker.harness import send
from tests.daemons.broker.running import broker_on
from tests.daemons.broker.settings import broker_settings
from tests.daemons.peer import Peer

PUTS = ("TOPIC_PUT_NUMS", "T")


class Counters:
    """Counters and a clock that the test sets."""

    def __init__(self, **settings: bool) -> None:
        self.now = 1000.0
        self.table: dict[Key, Total] = {}
        self.items = StatItems(self.totals, broker_settings(**settings), lambda: self.now)

    def totals(self) -> Mapping[Key, Total]:
        return self.table

    def sample(self, window: int, seconds: float, **totals: Total) -> None:
        self.now += seconds
        for topic, total in totals.items():
            self.table["TOPIC_PUT_NUMS", topic] = total
        self.items.sample(window)

    def figure(self, window: int, topic: str = "T") -> tuple[int, float, float]:
        data = self.items.view("TOPIC_PUT_NUMS", topic)
        assert data is not None
        item = (data.stats_minute, data.stats_hour, data.stats_day)[window]
        assert item is not None
        return item.sum, item.tps, item.avgpt


def test_a_figure_is_the_last_sample_less_the_first() -> None:
    counters = Counters()
    counters.sample(MINUTE, 0, T=(10, 5))
    assert counters.figure(MINUTE) == (10, 1.0, 2.0)
    counters.sample(MINUTE, 10, T=(30, 10))
    assert counters.figure(MINUTE) == (30, 1.5, 3.0)
    assert counters.figure(HOUR) == counters.figure(DAY) == (0, 0.0, 0.0)
    counters.sample(DAY, 0)
    assert counters.figure(DAY) == (30, 30 / 3600, 3.0)


def test_a_minute_has_seven_samples() -> None:
    counters = Counters()
    for number in range(1, 20):
        counters.sample(MINUTE, 10, T=(number * 100, number))
    assert counters.figure(MINUTE) == (600, 10.0, 100.0)


def test_later_figures_count_from_the_previous_sample() -> None:
    counters = Counters()
    for _ in range(3):
        counters.sample(MINUTE, 10)
    assert counters.items.view(*PUTS) is None
    counters.table[PUTS] = (7, 7)
    assert counters.figure(MINUTE) == (0, 0.0, 0.0)  # it exists, but has not been sampled
    counters.sample(MINUTE, 10)
    assert counters.figure(MINUTE) == (7, 0.7, 1.0)


@pytest.mark.parametrize("delete", [False, True])
def test_figures_of_deleted_topics_stay_by_default(delete: bool) -> None:
    counters = Counters(auto_delete_unused_stats=delete)
    counters.sample(MINUTE, 10, T=(5, 5))
    del counters.table[PUTS]
    counters.sample(MINUTE, 10)
    assert (counters.items.view(*PUTS) is None) == delete
    counters.sample(MINUTE, 10, T=(2, 2))  # a new topic of that name
    assert counters.figure(MINUTE)[0] == (2 if delete else 7)


@answered.by_broker(RequestCode.VIEW_BROKER_STATS_DATA)
def test_a_broker_returns_its_put_and_get_figures_and_refuses_unknown_ones(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:

            async def view(name: str, key: str) -> tuple[int, float]:
                fields = {"statsName": name, "statsKey": key}
                reply = await peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, fields)
                assert reply.code == ResponseCode.SUCCESS, reply
                item = BrokerStatsData.decode(reply.body).stats_minute
                assert item is not None
                return item.sum, item.avgpt

            for number in range(3):
                await send(peer, "Counted", b"%d" % number, properties="TAGS\x01a")
            pull = {"consumerGroup": "G", "topic": "Counted", "queueId": "0", "maxMsgNums": "32"}
            pull |= {"queueOffset": "0", "sysFlag": "4", "commitOffset": "0", "subVersion": "0"}
            pull |= {"subscription": "*", "suspendTimeoutMillis": "0"}
            reply = await peer.ask(RequestCode.PULL_MESSAGE, pull)
            assert reply.code == ResponseCode.SUCCESS
            size = len(reply.body)
            back = {"offset": "0", "group": "G", "delayLevel": "1"}
            reply = await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
            assert reply.code == ResponseCode.SUCCESS
            broker.stats.items.sample(MINUTE)
            assert await view("TOPIC_PUT_NUMS", "Counted") == (3, 1.0)
            assert await view("TOPIC_PUT_SIZE", "Counted") == (size, size / 3)
            assert await view("QUEUE_PUT_NUMS", "Counted@0") == (3, 1.0)
            assert await view("GROUP_GET_NUMS", "Counted@G") == (3, 3.0)
            assert await view("GROUP_GET_SIZE", "Counted@G") == (size, size)
            assert await view("QUEUE_GET_NUMS", "Counted@0@G") == (3, 3.0)
            assert await view("GROUP_GET_LATENCY", "0@Counted@G") == (0, 0.0)
            assert await view("SNDBCK_PUT_NUMS", "Counted@G") == (1, 1.0)
            assert await view("BROKER_PUT_NUMS", "DefaultCluster") == (4, 0.0)
            assert await view("BROKER_GET_NUMS", "DefaultCluster") == (3, 0.0)
            for name, key in (("TOPIC_PUT_NUMS", "Other"), ("NO_SUCH_FIGURE", "Counted")):
                fields = {"statsName": name, "statsKey": key}
                reply = await peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, fields)
                assert reply.code == ResponseCode.SYSTEM_ERROR
                assert reply.remark == f"The stats <{name}> <{key}> not exist"

    asyncio.run(script())
