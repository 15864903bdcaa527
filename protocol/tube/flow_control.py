"""Flow control: rules that limit how fast a group reads, as JSON in the responses of a master.

    [{"type": 0, "rule": [{"start": "08:00", "end": "12:00", "dltInM": 1024, "limitInM": 20,
                           "freqInMs": 1000}]},
     {"type": 1, "rule": [{"zeroCnt": 3, "freqInMs": 300}]},
     {"type": 3, "rule": [{"normFreqInMs": 0, "filterFreqInMs": 9, "minDataFilterFreqInMs": 99}]}]

Type 2 is obsolete and ignored, as in FlowCtrlRuleHandler, which defines these bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from mq.protocol.tube.errors import MalformedText

DATA_LIMIT, EMPTY_POLLS, UNUSED, LOW_FETCH = range(4)

MAX_INTERVAL = 300_000  # milliseconds, of low fetch rules
MIN_LAG = 20  # a rule needs a larger lag
MIN_INTERVAL = 200  # milliseconds, of data limits

#: Limit of all the rules of a group in characters, far above any sensible rules.
MAX_LENGTH = 64 * 1024

_MAX_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DataLimit:
    """A limit for groups whose lag is larger, at some time of the day in GMT+8."""

    start: int  # hour * 100 + minute
    end: int
    lag: int  # dltInM as written: MiB in the C++ client, bytes in Java's
    limit: int  # bytes per minute
    interval_ms: int  # between reads after the limit is reached


@dataclass(frozen=True, slots=True)
class EmptyPolls:
    """The pause between reads after this many empty ones in a row."""

    count: int
    interval_ms: int


@dataclass(frozen=True, slots=True)
class LowFetch:
    """The pauses between successful reads; None if not set."""

    normal_ms: int | None = None
    filter_ms: int | None = None  # for groups that filter
    slow_filter_ms: int | None = None  # for these, if little is left to read


@dataclass(frozen=True, slots=True)
class FlowControl:
    """The rules of a group, or those for all groups. An empty one limits nothing."""

    data_limits: tuple[DataLimit, ...] = ()  # as written
    empty_polls: tuple[EmptyPolls, ...] = ()
    low_fetch: LowFetch | None = None

    @classmethod
    def parse(cls, text: str) -> "FlowControl":
        """Parse the rules; blank text has none.

        Raises MalformedText if it is not JSON, or a rule is out of bounds.
        """
        if not text.strip():
            return cls()
        if len(text) > MAX_LENGTH:
            raise MalformedText(text, f"rules of {len(text)} characters: {MAX_LENGTH} are allowed")
        try:
            records = orjson.loads(text.encode("utf-8", "replace"))
        except ValueError as error:
            raise MalformedText(text, f"flow control rules are not JSON: {error}") from None
        if not isinstance(records, list):
            raise MalformedText(text, "flow control rules are a list")
        limits: list[DataLimit] = []
        polls: list[EmptyPolls] = []
        low: LowFetch | None = None
        for number, record in enumerate(records, 1):
            kind, rules = _Fields(text, record, f"record {number}").rules()
            if kind == DATA_LIMIT:
                limits = [_data_limit(rule) for rule in rules]
            elif kind == EMPTY_POLLS:
                polls = [EmptyPolls(r.number("zeroCnt", 1), r.number("freqInMs", 0)) for r in rules]
            elif kind == LOW_FETCH:
                if len(rules) > 1:
                    raise MalformedText(text, f"record {number}: one rule only is allowed")
                low = _low_fetch(rules[0])
        return cls(tuple(limits), tuple(polls), low)

    def __bool__(self) -> bool:
        return bool(self.data_limits or self.empty_polls or self.low_fetch)


class _Fields:
    """One object of the rules, with its position for errors."""

    def __init__(self, text: str, value: object, where: str) -> None:
        self.text = text
        self.where = where
        if not isinstance(value, Mapping):
            raise self.wrong("is not an object")
        self.values: Mapping[str, object] = value

    def wrong(self, why: str) -> MalformedText:
        return MalformedText(self.text, f"{self.where} of the flow control rules {why}")

    def rules(self) -> "tuple[int, list[_Fields]]":
        """Return the type of a record, and its rules: at least one, unless it is obsolete."""
        kind = self.number("type", DATA_LIMIT, LOW_FETCH)
        if kind == UNUSED:
            return kind, []
        rules = self.values.get("rule")
        if not isinstance(rules, list) or not rules:
            raise self.wrong("has no rule")
        return kind, [
            _Fields(self.text, rule, f"rule {number} in {self.where}")
            for number, rule in enumerate(rules, 1)
        ]

    def number(self, name: str, least: int, most: int = _MAX_NUMBER) -> int:
        value = self.values.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
            value = int(value)  # as in Gson
        if type(value) is not int:
            raise self.wrong(f"needs a number {name}")
        if not least <= value <= most:
            raise self.wrong(f"has {name}={value}: from {least} to {most} is allowed")
        return value

    def time(self, name: str) -> int:
        hour, colon, minute = str(self.values.get(name)).partition(":")
        parts = (hour, minute)
        if not colon or not all(p.isascii() and p.isdigit() and len(p) <= 2 for p in parts):
            raise self.wrong(f"needs a time {name} as HH:mm")
        if int(hour) > 24 or int(minute) > 59:
            raise self.wrong(f"has {name}={hour}:{minute}, which no clock shows")
        return int(hour) * 100 + int(minute)


def _data_limit(rule: _Fields) -> DataLimit:
    start, end = rule.time("start"), rule.time("end")
    if start >= end:
        raise rule.wrong("ends before it starts")
    limit = rule.number("limitInM", 0) * 1024 * 1024
    lag = rule.number("dltInM", MIN_LAG + 1)
    return DataLimit(start, end, lag, limit, rule.number("freqInMs", MIN_INTERVAL))


def _low_fetch(rule: _Fields) -> LowFetch:
    filtered = slow = normal = None
    if "filterFreqInMs" in rule.values or "minDataFilterFreqInMs" in rule.values:
        filtered = rule.number("filterFreqInMs", 0, MAX_INTERVAL)
        slow = rule.number("minDataFilterFreqInMs", filtered, MAX_INTERVAL)
    if "normFreqInMs" in rule.values:
        normal = rule.number("normFreqInMs", 0, MAX_INTERVAL)
    return LowFetch(normal, filtered, slow)
