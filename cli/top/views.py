"""Rates between samples, as results."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from mq.cli.show.result import Result, Row
from mq.cli.top.sampling import UP, BrokerSample, ClusterSample, Counters, GroupSample, TopicSample
from mq.cli.top.subjects import BROKERS, COLUMNS, Subject
from mq.client.operations import broker_stats

# Consumers commit offsets every 5 s: over less than two such intervals, their consumption appears
# as nothing, or too much.
_CONSUMING_SECONDS = 10.0
_STEADY = 0.5  # messages per second by which a steady lag may grow or shrink
_ACTING = "acting"  # the state of an acting master


class History:
    """Recent samples. `result` computes rates from them."""

    def __init__(self) -> None:
        self._samples: deque[ClusterSample] = deque()

    def add(self, sample: ClusterSample) -> None:
        self._samples.append(sample)
        # Keep one sample that is old enough to measure consumption.
        while (
            len(self._samples) > 2
            and sample.seconds - self._samples[1].seconds >= _CONSUMING_SECONDS
        ):
            self._samples.popleft()

    def clear(self) -> None:
        """Remove all samples: the next ones are of another subject."""
        self._samples.clear()

    def __len__(self) -> int:
        return len(self._samples)

    def result(self, subject: Subject, wanted: Callable[[str], bool] = lambda name: True) -> Result:
        """Return the current values; rates are None after a single sample."""
        now = self._samples[-1]
        last = self._samples[-2] if len(self._samples) > 1 else None
        oldest = self._samples[0] if last is not None else None
        rows = {
            Subject.BROKERS: lambda: _broker_rows(now, last),
            Subject.TOPICS: lambda: _topic_rows(now, last, oldest),
            Subject.GROUPS: lambda: _group_rows(now, oldest),
            Subject.SNODES: lambda: _snode_rows(now),
        }[subject]()
        result = Result(
            COLUMNS[subject],
            [row for row in rows if wanted(row[0])],
            totals=_totals(now, last),
            failures=list(now.failures),
        )
        if subject is Subject.BROKERS:
            result.data = [_broker_document(row, now) for row in result.rows]
        return result


def _broker_rows(now: ClusterSample, last: ClusterSample | None) -> Iterable[Row]:
    for address, broker in now.brokers.items():
        before = last.brokers.get(address) if last is not None else None
        table = broker.runtime
        answered = None if broker.state != UP else round(broker.response_seconds * 1000, 1)
        yield (
            broker.name,
            broker.broker_id,
            address,
            broker.cluster,
            _ACTING if table.get("actingMaster") == "true" else broker.state,
            table.get("brokerVersionDesc"),
            _growth("msgPutTotalTodayNow", broker, before),
            _growth("msgGetTotalTodayNow", broker, before),
            _growth("putMessageSizeTotal", broker, before),
            broker_stats.number(table, "putLatency99"),
            answered,
            broker_stats.disk_used(table),
            _cores(broker, before),
            broker_stats.number(table, "processPrivateBytes"),
            *broker.connected,
            _replication_lag(broker, now),
            broker_stats.number(table, "dispatchBehindBytes"),
        )


def _broker_document(row: Row, now: ClusterSample) -> dict[str, Any]:
    document = dict(zip((column.name for column in BROKERS), row, strict=True))
    runtime = now.brokers[document["brokerAddr"]].runtime
    return {**document, "putDistribution": broker_stats.put_distribution(runtime)}


def _topic_rows(
    now: ClusterSample, last: ClusterSample | None, oldest: ClusterSample | None
) -> Iterable[Row]:
    consumed: dict[str, float] = {}
    waiting: dict[str, int] = {}
    readers: dict[str, int] = {}
    for name, group in now.groups.items():
        before = _before(oldest, name)
        for topic in _topics_of(group):
            readers[topic] = readers.get(topic, 0) + 1
            waiting[topic] = waiting.get(topic, 0) + _lag(group, topic)
            rate = _rate_of_topic(group.places, before.places, topic)
            if rate is not None:
                consumed[topic] = consumed.get(topic, 0.0) + rate
    for name, topic_sample in sorted(now.topics.items()):
        earlier = last.topics.get(name, TopicSample()) if last is not None else TopicSample()
        incoming = _rate(topic_sample.ends, earlier.ends)
        yield (
            name,
            _rounded(incoming),
            _rounded(consumed.get(name, None if oldest is None else 0.0)),
            None if incoming is None else _rounded(now.bytes_in.get(name, 0.0)),
            topic_sample.stored,
            readers.get(name, 0),
            waiting.get(name, 0),
        )


def _group_rows(now: ClusterSample, oldest: ClusterSample | None) -> Iterable[Row]:
    for name, group in sorted(now.groups.items()):
        before = _before(oldest, name)
        incoming = _rate(group.ends, before.ends)
        outgoing = _rate(group.places, before.places)
        growth = None if incoming is None or outgoing is None else incoming - outgoing
        yield (
            name,
            _rounded(incoming),
            _rounded(outgoing),
            _lag(group),
            _direction(growth),
            _rounded(growth),
            group.members,
            len(_topics_of(group)),
        )


def _snode_rows(now: ClusterSample) -> Iterable[Row]:
    for name, snode in sorted(now.snodes.items()):
        answered = None if snode.state != UP else round(snode.response_seconds * 1000, 1)
        yield name, snode.address, snode.cluster, snode.state, answered


def _totals(now: ClusterSample, last: ClusterSample | None) -> dict[str, Any]:
    def total(key: str, *, masters: bool) -> float | None:
        rates = [
            _growth(key, broker, last.brokers.get(address) if last is not None else None)
            for address, broker in now.brokers.items()
            # A replica counts replicated messages, too: they would be counted twice.
            if not (masters and broker.broker_id)
        ]
        known = [rate for rate in rates if rate is not None]
        return round(sum(known), 1) if known else None

    return {
        "brokers": len(now.brokers),
        "unreachable": sum(broker.state != UP for broker in now.brokers.values()),
        "inTps": total("msgPutTotalTodayNow", masters=True),
        "outTps": total("msgGetTotalTodayNow", masters=False),
        "inBytesPerSecond": total("putMessageSizeTotal", masters=True),
    }


def _growth(key: str, now: BrokerSample, before: BrokerSample | None) -> float | None:
    """Return the growth of a broker's counter per second; None if unknown."""
    if before is None:
        return None
    return broker_stats.growth(key, now.runtime, before.runtime, now.seconds - before.seconds)


def _cores(now: BrokerSample, before: BrokerSample | None) -> float | None:
    """Return the number of busy processors; None if the broker does not report it, as Java's."""
    growth = _growth("processCpuMillis", now, before)
    return None if growth is None else round(growth / 1000, 2)


def _replication_lag(broker: BrokerSample, sample: ClusterSample) -> int | None:
    """Return the bytes of its master's log that a slave lacks, from nearly simultaneous samples.

    None for a master, and if one of them does not report its offset.
    """
    own = broker_stats.number(broker.runtime, "commitLogMaxOffset")
    if not broker.broker_id or own is None:
        return None
    ends = [
        broker_stats.number(other.runtime, "commitLogMaxOffset")
        for other in sample.brokers.values()
        if (other.cluster, other.name, other.broker_id) == (broker.cluster, broker.name, 0)
    ]
    return max((int(max(0, end - own)) for end in ends if end is not None), default=None)


def _before(sample: ClusterSample | None, group: str) -> GroupSample:
    """Return a group of an earlier sample; an empty one if there is none."""
    return GroupSample() if sample is None else sample.groups.get(group, GroupSample())


def _rate(now: Mapping[str, Counters], before: Mapping[str, Counters]) -> float | None:
    """Return the growth per second, summed over brokers, of the counters in both samples."""
    rates = []
    for address, counters in now.items():
        old = before.get(address)
        if old is not None and (passed := counters.seconds - old.seconds) > 0:
            common = counters.values.keys() & old.values.keys()
            grown = sum(max(0, counters.values[key] - old.values[key]) for key in common)
            rates.append(grown / passed)
    return sum(rates) if rates else None


def _rate_of_topic(
    now: Mapping[str, Counters], before: Mapping[str, Counters], topic: str
) -> float | None:
    def only(counters: Mapping[str, Counters]) -> dict[str, Counters]:
        return {
            address: Counters(
                one.seconds, {k: v for k, v in one.values.items() if _is_of(k, topic)}
            )
            for address, one in counters.items()
        }

    return _rate(only(now), only(before))


def _is_of(key: Hashable, topic: str) -> bool:
    return isinstance(key, tuple) and key[0] == topic


def _topics_of(group: GroupSample) -> set[str]:
    return {key[0] for one in group.ends.values() for key in one.values if isinstance(key, tuple)}


def _lag(group: GroupSample, topic: str | None = None) -> int:
    """Return the lag in messages, at brokers that answer, for one topic or all."""
    return sum(
        max(0, end - group.places[address].values[key])
        for address, one in group.ends.items()
        for key, end in one.values.items()
        if topic is None or _is_of(key, topic)
    )


def _direction(growth: float | None) -> str | None:
    if growth is None:
        return None
    if abs(growth) < _STEADY:
        return "steady"
    return "growing" if growth > 0 else "shrinking"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
