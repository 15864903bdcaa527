"""Consumers that are registered at partitions, and the amount that each may read at a time.

A partition of a topic has one consumer of each group. It is registered until it unregisters or
until it sends nothing for `consumerRegTimeoutMs`: a get and a heartbeat count.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from mq.client.machine import clock
from mq.protocol.tube.flow_control import DataLimit, FlowControl
from mq.protocol.tube.names import check_filter_items
from mq.protocol.tube.payload import key_code

# Of all groups together: each takes memory until it expires.
MAX_REGISTRATIONS = 100_000
# Bytes of their names and filter items, each up to 500: any client may register.
MAX_TEXT = 256 * 1024 * 1024
_ITEM_COST = 100  # approximate overhead of an item in bytes

# Size of the answer to a get until the consumer's lag is known (CFG_STORE_DEFAULT_MSG_READ_UNIT).
FIRST_UNIT = 327_680
_NO_LIMIT = (1 << 63) - 1  # bytes per minute
_STAGE_MS = 60_000  # CFG_FC_MAX_LIMITING_DURATION
_SLICE_MS = 5_000  # CFG_FC_MAX_SAMPLING_PERIOD
_SLICES = 12

_EAST_8 = timedelta(hours=8)  # Java's rules are in the time of GMT+8


def partition_name(group: str, topic: str, partition: int) -> str:
    """Return the name of a registration, in answers and for administrators."""
    return f"{group}:{topic}:{partition}"


def data_limit(rules: FlowControl, lag: int) -> tuple[int, int]:
    """Return the bytes per minute that a consumer with this lag may read now, and ms between gets
    beyond that.

    The first active rule by its start is used (FlowCtrlRuleHandler.getCurDataLimit).
    """
    if not rules.data_limits:
        return _NO_LIMIT, 0
    now = datetime.fromtimestamp(clock.time(), UTC) + _EAST_8
    minute = now.hour * 100 + now.minute
    by_start: Callable[[DataLimit], int] = lambda rule: rule.start  # noqa: E731
    for rule in sorted(rules.data_limits, key=by_start):
        if rule.start <= minute <= rule.end and lag > rule.lag:
            return rule.limit, rule.interval_ms
    return _NO_LIMIT, 0


@dataclass(slots=True)
class Consumer:
    """A consumer at a partition, with its amounts and rates of reading (ConsumerNodeInfo)."""

    client_id: str
    group: str
    topic: str
    partition: int
    address: str
    filters: frozenset[str]
    priority: int
    expires: float  # by the monotonic clock, s
    registered_ms: int
    session_key: str = ""
    session_time: int = -1
    codes: frozenset[int] | None = field(init=False)
    last_data: int = -2  # the end of the data that it has read; -2 before its first get
    last_get_ms: int = 0
    unit: int = FIRST_UNIT
    limit: int = _NO_LIMIT  # bytes per minute
    interval_ms: int = 0
    sent_slice: int = 0
    sent_stage: int = 0
    _stage_ends: int = 0
    _slice_ends: int = 0

    def __post_init__(self) -> None:
        self.codes = frozenset(map(key_code, self.filters)) if self.filters else None

    @property
    def key(self) -> tuple[str, str, int]:
        return self.group, self.topic, self.partition

    @property
    def name(self) -> str:
        return partition_name(*self.key)

    @property
    def text(self) -> int:
        """The approximate size of its names and filter items in bytes."""
        items = sum(map(len, self.filters)) + _ITEM_COST * len(self.filters)
        return len(self.client_id) + len(self.group) + len(self.session_key) + items

    def allowed(self, rules: FlowControl, max_data: int, most: int, escapes: bool) -> int:
        """Return the bytes that a get may return now; 0 if it must wait for `interval_ms`.

        ``most`` is the maximum for a get; ``escapes``: its own group has rules, these do not apply
        (ConsumerNodeInfo.getCurrentAllowedSize).
        """
        if self.last_data < 0:
            return self.unit
        now = clock.milliseconds()
        if now > self._stage_ends:
            self.limit, self.interval_ms = data_limit(rules, max_data - self.last_data)
            self.sent_slice = self.sent_stage = 0
            self._slice_ends, self._stage_ends = now + _SLICE_MS, now + _STAGE_MS
            self.unit = min(self.limit // _SLICES, most)
        elif now > self._slice_ends:
            self.sent_slice = 0
            self._slice_ends = now + _SLICE_MS
        within = self.limit // _SLICES > self.sent_slice and self.limit > self.sent_stage
        # With limit 0 a group with own rules would be told a wrong end of the partition.
        return max(self.unit, 1) if escapes else self.unit if within else 0

    def has_read(self, last_data: int, size: int) -> None:
        """Count an answered get."""
        self.last_get_ms = clock.milliseconds()
        self.last_data = last_data
        self.sent_slice += size
        self.sent_stage += size


class TooManyConsumers(Exception):
    """The maximum number is registered. The text explains it."""


class Consumers:
    """All registered consumers. ``timed_out`` is called for each expired one."""

    def __init__(self, timeout: float, timed_out: Callable[[Consumer], None]) -> None:
        self._timeout = timeout
        self._timed_out = timed_out
        self._by_key: dict[tuple[str, str, int], Consumer] = {}
        self._text = 0  # bytes, of all registered consumers
        self.expired = 0

    def get(self, group: str, topic: str, partition: int) -> Consumer | None:
        """Return the consumer of a partition; also an expired one, until `expire`."""
        return self._by_key.get((group, topic, partition))

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def register(
        self,
        client_id: str,
        key: tuple[str, str, int],
        address: str,
        filters: frozenset[str],
        priority: int,
        session: tuple[str, int],
    ) -> Consumer:
        """Register a consumer, or replace its own registration. Raises TooManyConsumers."""
        if key not in self._by_key and len(self._by_key) >= MAX_REGISTRATIONS:
            raise TooManyConsumers(f"{MAX_REGISTRATIONS} partitions have consumers already")
        consumer = Consumer(
            client_id,
            *key,
            address,
            check_filter_items(filters),
            priority,
            clock.monotonic() + self._timeout,
            clock.milliseconds(),
            *session,
        )
        before = self._by_key.get(key)
        text = self._text + consumer.text - (0 if before is None else before.text)
        if text > MAX_TEXT:
            raise TooManyConsumers(f"names and filters of consumers take {MAX_TEXT} bytes already")
        self._text = text
        self._by_key[key] = consumer
        return consumer

    def renew(self, consumer: Consumer) -> bool:
        """Renew its time after a request; return False if it had expired."""
        now = clock.monotonic()
        if now >= consumer.expires:
            return False
        consumer.expires = now + self._timeout
        return True

    def is_over(self, consumer: Consumer) -> bool:
        return clock.monotonic() >= consumer.expires

    def remove(self, consumer: Consumer) -> None:
        if self._by_key.get(consumer.key) is consumer:
            del self._by_key[consumer.key]
            self._text -= consumer.text

    def expire(self) -> None:
        """Remove expired ones."""
        now = clock.monotonic()
        for consumer in [one for one in self._by_key.values() if now >= one.expires]:
            self.expired += 1
            self.remove(consumer)
            self._timed_out(consumer)
