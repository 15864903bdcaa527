"""The read rate of a partition: its windows, and the rules of the master.

Each partition has a stage of 60 s and within it a slice of 5 s, in which received bytes are
counted. At the start of a stage the limit of both is determined from the group's lag. After each
reply the partition pauses for a computed time (PartitionExt::ProcConsumeResult).

Where the C++ and the Java client differ: the lag of a limit is in MiB, as its name says (Java
compares it with bytes), and of the rules for empty replies the one with the largest count that has
been reached applies (the C++ client always uses the smallest).
"""

import logging
from datetime import UTC, datetime, timedelta
from math import inf
from typing import NamedTuple

from mq.client.machine import clock
from mq.protocol.tube.codes import UNDEFINED, Code
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.flow_control import DataLimit, FlowControl, LowFetch

log = logging.getLogger(__name__)

STAGE_SECONDS = 60.0
SLICE_SECONDS = 5.0
SLICES = 12
_MIB = 1024 * 1024
CHECK_SECONDS = 10.0  # how long the result of is_limited is cached

_ZONE = timedelta(hours=8)  # the times in rules are Beijing time, everywhere


def time_of_rules() -> int:
    """Return the time of day in the rules' format: hour * 100 + minute."""
    now = datetime.fromtimestamp(clock.time(), UTC) + _ZONE
    return now.hour * 100 + now.minute


class FlowRules:
    """Rules, and which of them apply now."""

    def __init__(self, rules: FlowControl | None = None) -> None:
        rules = rules or FlowControl()
        self._limits = sorted(rules.data_limits, key=lambda limit: limit.start)
        self._empty = sorted(rules.empty_polls, key=lambda rule: -rule.count)
        self.has_empty = bool(rules.empty_polls)
        self.low_fetch = rules.low_fetch

    def data_limit(self, lag: float, at: int) -> DataLimit | None:
        """Return the first limit for a group with this lag in bytes at a time of day."""
        for limit in self._limits:
            if lag > limit.lag * _MIB and limit.start <= at <= limit.end:
                return limit
        return None

    def empty_seconds(self, count: int) -> float | None:
        """Return the pause after a number of consecutive empty replies; None without a rule."""
        for rule in self._empty:
            if count >= rule.count:
                return rule.interval_ms / 1000
        return None


class GroupFlow:
    """The rules for one consumer: those of its group, and the default."""

    def __init__(self) -> None:
        self.default = FlowRules()
        self.group = FlowRules()
        self.default_id: int = UNDEFINED
        self.group_id: int = UNDEFINED
        self.priority: int = UNDEFINED  # of queries, reported to brokers
        self._is_limited = False
        self._checked = -inf

    def update_default(self, identifier: int, text: str) -> None:
        """Apply rules that have a version number; the same number means the same rules."""
        if identifier != self.default_id:
            self.default = _read(text, self.default)
            self.default_id = identifier

    def update_group(self, identifier: int, text: str) -> None:
        """Apply rules of the group in the same way."""
        if identifier != self.group_id:
            self.group = _read(text, self.group)
            self.group_id = identifier
            self._checked = -inf

    def is_limited(self, now: float) -> bool:
        """Whether the group's rules limit it at this time of day, given a sufficient lag.

        Brokers then leave the limit to this client. `now` is a time of the loop.
        """
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            self._is_limited = self.group.data_limit(inf, time_of_rules()) is not None
        return self._is_limited


def _read(text: str, before: FlowRules) -> FlowRules:
    """Parse rules; invalid ones are logged and the previous ones kept."""
    try:
        return FlowRules(FlowControl.parse(text))
    except MalformedText as error:
        log.warning("invalid rules of flow control; keeping the previous ones: %s", error)
        return before


class Reply(NamedTuple):
    """The parts of a broker's answer that influence the next get."""

    code: int
    at: float  # in the loop's seconds
    size: int = 0  # bytes of bodies
    delay: float = 0.0  # seconds requested by the code itself
    escapes: bool = False  # the broker did not limit the rate, and neither must this client
    lag: int = UNDEFINED  # bytes before the end
    is_slow: bool = False  # few messages are left to filter: poll less often


class PartitionFlow:
    """The windows of one partition."""

    __slots__ = (
        *("_empty", "_interval", "_limit", "_low", "_slice", "_slice_end", "_stage", "_stage_end"),
    )

    def __init__(self) -> None:
        self._limit: float = inf
        self._interval = 0.0
        self._low = LowFetch()
        self._stage: int = 0
        self._slice: int = 0
        self._stage_end = -inf
        self._slice_end = -inf
        self._empty = 0

    def delay(self, reply: Reply, rules: GroupFlow, filtered: bool, now: float) -> float:
        """Count a reply; returns the seconds from its arrival until the partition's next turn."""
        self._count(reply, rules, now)
        if reply.code not in (Code.SUCCESS, Code.NOT_FOUND):
            return reply.delay
        if reply.code == Code.NOT_FOUND:
            self._empty += 1
            holding = rules.group if rules.group.has_empty else rules.default
            found = holding.empty_seconds(self._empty)
            return reply.delay if found is None else found
        self._empty = 0
        if reply.escapes:
            return 0.0
        if self._stage >= self._limit or self._slice >= self._limit / SLICES:
            return max(self._interval, reply.delay)
        wait_ms = self._low.normal_ms
        if filtered:
            wait_ms = self._low.slow_filter_ms if reply.is_slow else self._low.filter_ms
        return reply.delay if wait_ms is None else wait_ms / 1000

    def _count(self, reply: Reply, rules: GroupFlow, now: float) -> None:
        self._stage += reply.size
        self._slice += reply.size
        if now > self._stage_end:
            self._begin_stage(reply.lag, rules)
            self._stage = self._slice = 0
            self._stage_end = now + STAGE_SECONDS
            self._slice_end = now + SLICE_SECONDS
        elif now > self._slice_end:
            self._slice = 0
            self._slice_end = now + SLICE_SECONDS

    def _begin_stage(self, lag: int, rules: GroupFlow) -> None:
        if lag < 0:  # unknown: the previous limit stays
            return
        at = time_of_rules()
        found = rules.group.data_limit(lag, at) or rules.default.data_limit(lag, at)
        self._limit = inf if found is None else found.limit
        self._interval = 0.0 if found is None else found.interval_ms / 1000
        self._low = rules.group.low_fetch or rules.default.low_fetch or LowFetch()
