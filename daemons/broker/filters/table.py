"""The filters of consumer groups by topic, stored in config/consumerFilter.json.

A filter comes with a heartbeat and dies when its group has no members. It is kept for another
filterDataCleanTimeSpan, because the bits of a group that returns are in the bit maps of messages.
Source: ConsumerFilterManager and ConsumerFilterData of Java 4.9.8.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mq.client.machine import clock
from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filters.bloom import BloomFilter
from mq.daemons.broker.filters.errors import FilterSyntaxError
from mq.daemons.broker.filters.reader import FilterReader
from mq.daemons.broker.filters.sql92 import Sql92Filter, known_filter, read_filter
from mq.daemons.broker.tables.saves import Saves
from mq.daemons.dispatch import Refused
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.protocol import fastjson, names
from mq.protocol.bodies import SubscriptionData
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

TAG = "TAG"
SQL92 = "SQL92"

# Groups that had members at the last stop count as dead since this many ms before the start.
_ALIVE_BEFORE_START = 30_000
# Limit of characters of new expressions that are parsed for one heartbeat; the others are parsed
# with the next heartbeats, because all clients share the thread that parses.
MOST_UNREAD = 64 * 1024


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription filters by tags (ExpressionType.isTagType)."""
    return not expression_type or expression_type == TAG


@dataclass(slots=True)
class FilterData:
    """The filter of a group on a topic; times are in ms since 1970.

    Attributes:
        client_version: subVersion of its subscription.
        dead_time: since when the group has no members, 0 while it has some.
        bit_positions: the group's bits in the bit map of a message, which has `bits` bits.
    """

    group: str
    topic: str
    expression: str
    client_version: int
    born_time: int
    bits: int
    bit_positions: tuple[int, ...]
    expression_type: str = SQL92
    dead_time: int = 0
    _filter: Sql92Filter | None = field(default=None, repr=False, compare=False)

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time

    @property
    def is_unread(self) -> bool:
        """Whether `filter` would parse the expression, as after a start."""
        return self._filter is None

    @property
    def filter(self) -> Sql92Filter | None:
        """The filter, parsed when it is first needed; None if the expression is invalid."""
        if self._filter is None and self.expression_type == SQL92:
            try:
                self._filter = read_filter(self.expression)
            except FilterSyntaxError:
                return None
        return self._filter

    def to_plain(self) -> dict[str, Any]:
        """The JSON object in Java's form: names in order, isDead() among them."""
        return {
            # A tuple, which is written in one line, because Java has an array there.
            "bloomFilterData": {"bitNum": self.bits, "bitPos": self.bit_positions},
            "bornTime": self.born_time,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_time,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }


class ConsumerFilters:
    """The filters by topic and group."""

    def __init__(
        self,
        path: Path,
        settings: BrokerSettings,
        clock: Callable[[], float] = clock.time,
    ) -> None:
        """Empty until `load`. Raises ValueError for settings invalid for a bloom filter."""
        self._path = path
        self._settings = settings
        self._clock = clock
        self.bloom = BloomFilter(
            settings.broker.max_error_rate_of_bloom_filter,
            settings.broker.expect_consumer_num_use_filter,
        )
        self._saving = asyncio.Lock()
        self._saves = Saves()
        self._dirty = False
        self.table: dict[str, dict[str, FilterData]] = {}
        self.reader = FilterReader()

    def get(self, topic: str, group: str) -> FilterData | None:
        groups = self.table.get(topic)
        return None if groups is None else groups.get(group)

    def describe(self, topic: str, group: str) -> str:
        """A filter in the form for administrators; "null" for a group that has none."""
        data = self.get(topic, group)
        return "null" if data is None else fastjson.dumps_pretty(data.to_plain()).decode()

    def unread(self, groups: Iterable[tuple[str, Iterable[SubscriptionData]]]) -> list[str]:
        """The expressions of a heartbeat that must be parsed first, at most MOST_UNREAD characters.
        The others are parsed with the next heartbeats.
        """
        unread: dict[str, None] = {}
        characters = 0
        for group, subscriptions in groups:
            for one in subscriptions:
                if one.expression_type != SQL92 or not one.sub_string or one.sub_string in unread:
                    continue
                known = self.get(one.topic, group)
                if (known is not None and known.expression == one.sub_string) or known_filter(
                    one.sub_string
                ):
                    continue
                characters += len(one.sub_string)
                if characters > MOST_UNREAD:
                    log.warning("group %s: too many new filters in one heartbeat", group)
                    return list(unread)
                unread[one.sub_string] = None
        return list(unread)

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], *, read: bool = True
    ) -> None:
        """Register the filters of a heartbeat; the group's filters of other topics die.

        Without `read`, expressions that are not parsed yet are left out.
        """
        subscriptions = list(subscriptions)
        for subscription in subscriptions:
            if is_tag_type(subscription.expression_type) or not subscription.sub_string:
                continue
            known = self.get(subscription.topic, group)
            is_known = known is not None and known.expression == subscription.sub_string
            if read or is_known or known_filter(subscription.sub_string):
                self._register(group, subscription)
        topics = {subscription.topic for subscription in subscriptions}
        for data in self.of_group(group):
            if data.topic not in topics:
                self._die(data)

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        """Java's FilterDataMapByTopic.register: an older subscription changes nothing."""
        topic, text = subscription.topic, subscription.sub_string
        kind, version = subscription.expression_type, subscription.sub_version
        old = self.get(topic, group)
        if old is not None and version <= old.client_version:
            if version == old.client_version:
                self._revive(old)
            return
        if old is not None and (old.expression, old.expression_type) == (text, kind):
            old.client_version = version
            self._revive(old)
            self._dirty = True
            return
        positions = self.bloom.positions(f"{group}#{topic}")
        now = self._now()
        new = FilterData(group, topic, text, version, now, self.bloom.bits, positions, kind)
        if new.filter is None or not _is_legal(topic):
            if old is not None:  # the client gets the error when it pulls
                self._remove(old)
            log.warning("group %s: the filter of topic %s is invalid: %.200s", group, topic, text)
            return
        self.table.setdefault(topic, {})[group] = new
        self._dirty = True
        log.info("group %s filters topic %s by %.200s", group, topic, text)

    def unregister(self, group: str) -> None:
        """Let the filters of a group without members die."""
        for data in self.of_group(group):
            self._die(data)

    def of_group(self, group: str) -> list[FilterData]:
        return [groups[group] for groups in self.table.values() if group in groups]

    def of_topic(self, topic: str) -> Iterable[FilterData]:
        return self.table.get(topic, {}).values()

    def _die(self, data: FilterData) -> None:
        if not data.is_dead:
            data.dead_time = self._now()
            self._dirty = True
            log.info("group %s no longer filters topic %s", data.group, data.topic)

    def _revive(self, data: FilterData) -> None:
        if data.is_dead:
            data.dead_time = 0
            self._dirty = True

    def _remove(self, data: FilterData) -> None:
        del self.table[data.topic][data.group]
        if not self.table[data.topic]:
            del self.table[data.topic]
        self._dirty = True

    def _now(self) -> int:
        return int(self._clock() * 1000)

    # the file -------------------------------------------------------------------------------------

    def clean(self) -> None:
        """Remove filters that have been dead for filterDataCleanTimeSpan."""
        oldest = self._now() - self._settings.broker.filter_data_clean_time_span
        for data in [d for groups in self.table.values() for d in groups.values()]:
            if data.is_dead and data.dead_time <= oldest:
                log.info(
                    "removed the expired filter of group %s on topic %s", data.group, data.topic
                )
                self._remove(data)

    def encode(self) -> bytes:
        """The file's content, indented like Java's."""
        return fastjson.dumps_pretty(
            {
                "filterDataByTopic": {
                    topic: {
                        "groupFilterData": {g: data.to_plain() for g, data in groups.items()},
                        "topic": topic,
                    }
                    for topic, groups in self.table.items()
                }
            }
        )

    async def save(self) -> None:
        """Write the file if anything has changed; a failure is logged and the next call retries."""
        async with self._saving:
            self.clean()
            if not self._dirty:
                return
            self._dirty = False
            content = self.encode()
            try:
                await self._saves.run(lambda: write_atomically(self._path, content))
            except OSError as error:
                self._dirty = True
                log.error("cannot save consumer filters: %s", error)
            except BaseException:  # cancelled by a stop, which saves again
                self._dirty = True
                raise

    def load(self) -> None:
        """Read the file, if it exists."""
        table = read_with_backup(self._path, _decode) or {}
        for data in (data for groups in table.values() for data in groups.values()):
            if (data.bits, len(data.bit_positions)) != (self.bloom.bits, self.bloom.hashes):
                # The bit maps in the queues' extensions were made with other parameters.
                log.warning(
                    "ignoring the saved consumer filters: the bloom filter's settings have changed"
                )
                return
            if data.dead_time == 0:
                data.dead_time = max(data.born_time, self._now() - _ALIVE_BEFORE_START)
        self.table = table


def _is_legal(topic: str) -> bool:
    try:
        names.check_topic(topic)
    except names.IllegalName:
        return False
    return True


def _decode(raw: bytes) -> dict[str, dict[str, FilterData]]:
    content = fastjson.loads(raw)
    try:
        return {
            topic: {g: _data(data) for g, data in groups["groupFilterData"].items()}
            for topic, groups in content["filterDataByTopic"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a table of consumer filters: {error!r}") from None


def _data(plain: dict[str, Any]) -> FilterData:
    bloom = plain["bloomFilterData"]
    return FilterData(
        str(plain["consumerGroup"]),
        str(plain["topic"]),
        str(plain["expression"]),
        int(plain["clientVersion"]),
        int(plain["bornTime"]),
        int(bloom["bitNum"]),
        tuple(map(int, bloom["bitPos"])),
        str(plain["expressionType"]),
        int(plain["deadTime"]),
    )


def check_supported(config: BrokerConfig, kind: str | None) -> None:
    """Raises Refused unless consumers may filter by expressions of this type."""
    refuse_unsupported(kind, config.enable_property_filter)


def refuse_unsupported(kind: str | None, allowed: bool) -> None:
    """Raises Refused unless the type is that of SQL92, and it is allowed."""
    if kind != SQL92 or not allowed:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {kind}",
        )


def read_or_refuse(reader: FilterReader, text: str | None) -> Sql92Filter:
    """The filter. Raises Refused if the expression is invalid, NotReady if it is not parsed yet."""
    try:
        return reader.filter(text or "")
    except FilterSyntaxError as error:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, parse_failed(error)) from None


def parse_failed(error: ValueError) -> str:
    """The remark of a reply to an expression that cannot be parsed."""
    return f"parse the consumer's subscription failed: {error}"
