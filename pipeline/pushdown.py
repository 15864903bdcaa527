"""Filter pushdown: filters of a query that let a batch read pull less.

Spark passes filters to a data source if spark.sql.python.filterPushdown.enabled is on. It is off by
default; options have the same effect then: topic, subExpression, startingOffsets, endingTimestamp,
and others. Filters only narrow what is pulled: all of them are returned, so that Spark checks each
row itself.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mq.pipeline.cluster import Bounds, Cluster
from mq.pipeline.offsets import Offsets, Queue
from mq.pipeline.options import ReadOptions
from mq.pipeline.parsing import Position
from mq.pipeline.puller import QueueRange

if TYPE_CHECKING:
    # since Spark 4.1; only callers with filters import it
    from pyspark.sql.datasource import Filter

# Milliseconds: if a broker's clock is set back, later messages get earlier times.
_CLOCK_SLIP = 60_000
_PLAIN_TAG = re.compile(r"[\w-]+")

Values = frozenset[Any]


@dataclass
class PushedFilters:
    """The restrictions from a query's filters; None or empty bounds if there are none."""

    values: dict[str, Values] = field(default_factory=dict)  # by lower-case name of the column
    least: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)

    def add(self, each: "Filter") -> None:
        """Apply a filter, if it is of a supported kind."""
        from pyspark.sql.datasource import (
            EqualNullSafe,
            EqualTo,
            GreaterThan,
            GreaterThanOrEqual,
            In,
            LessThan,
            LessThanOrEqual,
        )

        if isinstance(each, EqualTo | EqualNullSafe):
            self._among(each.attribute, [each.value])
        elif isinstance(each, In):
            self._among(each.attribute, each.value)
        elif isinstance(each, GreaterThan | GreaterThanOrEqual):
            self._bound(self.least, max, each.attribute, each.value)
        elif isinstance(each, LessThan | LessThanOrEqual):
            self._bound(self.most, min, each.attribute, each.value)

    def _among(self, attribute: tuple[str, ...], values: Iterable[Any]) -> None:
        name = _name(attribute)
        found = frozenset(value for value in values if value is not None)
        if name in _NUMBERS:
            numbers = [number for value in found if (number := _number(value)) is not None]
            if numbers and len(numbers) == len(found):
                self._bound(self.least, max, attribute, min(numbers))
                self._bound(self.most, min, attribute, max(numbers))
        elif name in _NAMES:
            self.values[name] = self.values.get(name, found) & found

    def _bound(
        self, bounds: dict[str, int], choose: Any, attribute: tuple[str, ...], value: Any
    ) -> None:
        name, number = _name(attribute), _number(value)
        if name in _NUMBERS and number is not None:
            bounds[name] = choose(bounds.get(name, number), number)

    def topics(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that the filters allow."""
        return [topic for topic in topics if self._wants("topic", topic)]

    def narrowed(self, options: ReadOptions, topics: Iterable[str]) -> ReadOptions:
        """Return the options without the offsets of topics that the filters exclude."""
        dropped = {topic for topic in topics if not self._wants("topic", topic)}

        def kept(position: Position | None) -> Position | None:
            if not isinstance(position, dict):
                return position
            return {queue: at for queue, at in position.items() if queue.topic not in dropped}

        return replace(
            options,
            starting_offsets=kept(options.starting_offsets),
            ending_offsets=kept(options.ending_offsets),
        )

    def queues(self, bounds: Mapping[Queue, Bounds]) -> dict[Queue, Bounds]:
        """Return the queues that the filters allow."""
        return {
            queue: at
            for queue, at in bounds.items()
            if self._wants("brokername", queue.broker_name) and self._in(queue.queue_id, "queueid")
        }

    def ranges(
        self, ranges: Iterable[QueueRange], cluster: Cluster, bounds: Mapping[Queue, Bounds]
    ) -> list[QueueRange]:
        """Return the ranges without offsets and times that the filters exclude."""
        first = self._offsets_at(self.least, -_CLOCK_SLIP, cluster, bounds)
        last = self._offsets_at(self.most, 1 + _CLOCK_SLIP, cluster, bounds)
        least, most = self.least.get("queueoffset", 0), self.most.get("queueoffset")
        found = []
        for each in ranges:
            queue = Queue(*each[:3])
            begin = max(each.begin, least, first.get(queue, 0))
            end = min(each.end, last.get(queue, each.end))
            end = end if most is None else min(end, most + 1)
            if begin < end:
                found.append(each._replace(begin=begin, end=end))
        return found

    def expression(self) -> str | None:
        """Return the allowed tags as an expression for brokers; None if they cannot be
        expressed.
        """
        tags = self.values.get("tags")
        if not tags or not all(_PLAIN_TAG.fullmatch(tag) for tag in tags):
            return None
        return " || ".join(sorted(tags))

    def _offsets_at(
        self,
        times: Mapping[str, int],
        slip: int,
        cluster: Cluster,
        bounds: Mapping[Queue, Bounds],
    ) -> Offsets:
        time = times.get("storetimestamp")
        return {} if time is None else cluster.at_time(bounds, max(0, time + slip))

    def _wants(self, name: str, value: str) -> bool:
        return name not in self.values or value in self.values[name]

    def _in(self, value: int, name: str) -> bool:
        return self.least.get(name, value) <= value <= self.most.get(name, value)


_NAMES = ("topic", "brokername", "tags")
_NUMBERS = ("queueid", "queueoffset", "storetimestamp")


def _name(attribute: tuple[str, ...]) -> str:
    return attribute[0].lower() if len(attribute) == 1 else ""


def _number(value: Any) -> int | None:
    """Convert a value to a number: times to ms since 1970, rounded down."""
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    return value if type(value) is int else None
