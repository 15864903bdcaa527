"""A snapshot is recorded once, and missing data leaves a gap."""

from dataclasses import replace
from pathlib import Path

from mq.client.machine import clock
from mq.daemons.console.collector.collector import Collector
from mq.daemons.console.collector.snapshot import BrokerRow, GroupRow, Snapshot, TopicRow
from mq.daemons.console.history.history import History
from mq.daemons.console.history.points import Key
from mq.daemons.console.history.recording import Recorder
from tests.daemons.tube.loops import in_loop

NOON = int(clock.time()) - 3600  # within the last day, with all points
GROUP = GroupRow("orders", lag=7, consume_rate=None)
TOPIC = TopicRow("orders", "normal", 8, 8, ("a",), 6, in_rate=0.0)
BROKER = BrokerRow("C", "a", 0, "a:1", "master", seen=1, in_rate=0.0)


async def _values(history: History, kind: str, subject: str, metric: str) -> list[float]:
    key = Key("prod", kind, subject, metric)
    return [p.mean for p in await history.read(key, NOON - 100, NOON + 10_000)]


@in_loop
async def test_a_row_is_written_once_for_each_answer_and_unknown_metrics_are_gaps(
    tmp_path: Path,
) -> None:
    async with History(tmp_path / "h.sqlite") as history:
        recorder = Recorder("prod", Collector("127.0.0.1:1"), history)
        first = Snapshot(NOON * 1000, groups=(GROUP,), topics=(TOPIC,), brokers=(BROKER,))
        recorder.record(first)
        recorder.record(replace(first, at=(NOON + 10) * 1000))  # no server has answered
        silent = replace(GROUP, lag=9, problem="no answer from a")
        recorder.record(Snapshot((NOON + 20) * 1000, groups=(silent,)))
        recorder.record(Snapshot((NOON + 30) * 1000, groups=(replace(GROUP, lag=0),)))
        assert await _values(history, "group", "orders", "lag") == [7.0, 0.0]
        assert await _values(history, "group", "orders", "consume_rate") == []


@in_loop
async def test_what_has_always_been_idle_takes_no_series_but_a_broker_does(
    tmp_path: Path,
) -> None:
    async with History(tmp_path / "h.sqlite") as history:
        recorder = Recorder("prod", Collector("127.0.0.1:1"), history)
        recorder.record(Snapshot(NOON * 1000, topics=(TOPIC,), brokers=(BROKER,)))
        assert Key("prod", "topic", "orders", "in_rate") not in history
        assert await _values(history, "broker", "a:0", "in_rate") == [0.0]
        recorder.record(Snapshot((NOON + 60) * 1000, topics=(replace(TOPIC, in_rate=2.0),)))
        recorder.record(Snapshot((NOON + 120) * 1000, topics=(replace(TOPIC, in_rate=0.0),)))
        assert await _values(history, "topic", "orders", "in_rate") == [2.0, 0.0]
