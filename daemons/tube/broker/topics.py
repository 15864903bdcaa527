"""The topics of a broker from its master, and their defaults.

A master sends texts (protocol/tube/settings.py) with an id and a checksum; a broker reports the
same texts back. The last ones are kept in a state file: with it a broker serves after a restart
while no master answers (docs/decisions/0064). Java's does not start then (TubeBroker).
"""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from mq.client.machine import clock
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.daemons.tube.broker.store.layout import STORE_BASE
from mq.daemons.tube.broker.store.topic_store import FlushSettings
from mq.protocol.tube.errors import IllegalName, MalformedText
from mq.protocol.tube.names import (
    MAX_MESSAGE_SIZE,
    MESSAGE_HEADER_SIZE,
    MIN_MESSAGE_SIZE,
    OFFSET_HISTORY_TOPIC,
    check_topic,
)
from mq.protocol.tube.settings import BrokerDefaults, TopicSettings

T = TypeVar("T")

log = logging.getLogger(__name__)

_CACHE_UNIT = 512 * 1024  # bytes per unit of memCacheMsgSizeInMB, despite its name
_COUNT_UNIT = 512  # messages of memCacheMsgCntInK

# Limits for the topics of a master: each store has two files and a folder at least.
MAX_STORES = 1000  # of a topic
MAX_PARTITIONS = 100_000  # of all topics

# Of the brokers' own topic (TServerConstants.OFFSET_HISTORY_NUMSTORES and _NUMPARTS).
HISTORY_STORES, HISTORY_PARTITIONS = 1, 10

# TStatusConstants. From SOFT_REMOVE on a topic's messages are deleted.
STATUS_OK, STATUS_SOFT_DELETE, STATUS_SOFT_REMOVE, STATUS_HARD_REMOVE = range(4)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with all its settings."""

    name: str
    partitions: int  # in each store
    stores: int
    status: int
    accept_publish: bool
    accept_subscribe: bool
    delete_policy: str
    max_size: int  # of a payload, bytes
    flush: FlushSettings

    def has(self, partition: int) -> bool:
        """Return whether it has a store with this partition."""
        if 0 <= partition < STORE_BASE:
            return partition < self.partitions and self.stores > 0
        store, number = divmod(partition, STORE_BASE)
        return 0 <= store < self.stores and number < self.partitions

    def hard_removed(self) -> "Topic":
        """Return the same after the deletion of its files."""
        return replace(self, status=STATUS_HARD_REMOVE)

    def partition_ids(self) -> Iterator[int]:
        for store in range(self.stores):
            yield from range(store * STORE_BASE, store * STORE_BASE + self.partitions)


def _check(topic: Topic) -> None:
    """Refuse invalid topics of a master: names become folders, and stores files.

    Raises MalformedText.
    """
    if topic.name != OFFSET_HISTORY_TOPIC:
        try:
            check_topic(topic.name)
        except IllegalName as error:
            raise MalformedText(topic.name, str(error)) from None
    if topic.partitions > STORE_BASE or topic.stores > MAX_STORES:
        raise MalformedText(
            topic.name,
            f"{topic.stores} stores of {topic.partitions} partitions: "
            f"{MAX_STORES} of {STORE_BASE} may be",
        )


def max_payload(size: int) -> int:
    """Return the maximum payload if messages may have ``size`` bytes.

    ClusterConfigHolder.calcMaxMsgSize.
    """
    return max(MIN_MESSAGE_SIZE, min(size, MAX_MESSAGE_SIZE)) + MESSAGE_HEADER_SIZE


def chosen(own: T | None, default: T) -> T:
    return default if own is None else own


def topic_of(settings: TopicSettings, defaults: BrokerDefaults, max_size: int) -> Topic:
    """Return a topic of a master's text; missing parts are those of the defaults."""

    size = settings.max_message_size
    return Topic(
        settings.topic,
        chosen(settings.partitions, defaults.partitions),
        chosen(settings.stores, defaults.stores),
        settings.status,
        chosen(settings.accept_publish, defaults.accept_publish),
        chosen(settings.accept_subscribe, defaults.accept_subscribe),
        chosen(settings.delete_policy, defaults.delete_policy),
        max_size if size is None else max_payload(size),
        FlushSettings(
            chosen(settings.flush_messages, defaults.flush_messages),
            chosen(settings.flush_interval_ms, defaults.flush_interval_ms),
            chosen(settings.flush_bytes, defaults.flush_bytes),
            max(
                chosen(settings.cache_size, defaults.cache_size) * _CACHE_UNIT,
                max_size + STORE_BASE,  # room for one message of any size
            ),
            max(1, chosen(settings.cache_messages, defaults.cache_messages) * _COUNT_UNIT),
            chosen(settings.cache_flush_interval_ms, defaults.cache_flush_interval_ms),
        ),
    )


class Topics:
    """The master's topics, as texts and decoded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.config_id = -2
        self.checksum = -2
        self.defaults_text = ""
        self.topic_texts: tuple[str, ...] = ()
        self.reported_id = -2  # the one that was reported to the master as ours
        self.max_payload = max_payload(0)
        self.cluster_id = -2
        self._defaults = BrokerDefaults()
        self._topics: Mapping[str, Topic] = {}
        self.removed: dict[str, Topic] = {}  # whose files are being or have been deleted

    def load(self) -> None:
        """Load the saved topics. Raises OSError."""
        kept = read_with_backup(self._path, _decode)
        if kept is not None:
            try:
                self._take(*kept)
            except MalformedText as error:
                log.error("the saved topics are not understood: %s", error)

    def __getitem__(self, name: str) -> Topic:
        return self._topics[name]

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)  # for each send

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    @property
    def is_known(self) -> bool:
        """Whether a master has ever sent topics."""
        return bool(self.defaults_text)

    def understood(self, defaults: str, texts: tuple[str, ...]) -> dict[str, Topic]:
        """Return the topics of a master's texts, with the brokers' own. Raises MalformedText."""
        own = BrokerDefaults.parse(defaults)
        found = {}
        for text in texts:
            if text.strip():
                topic = topic_of(TopicSettings.parse(text), own, self.max_payload)
                _check(topic)
                found[topic.name] = topic
        count = sum(topic.stores * topic.partitions for topic in found.values())
        if count > MAX_PARTITIONS:
            raise MalformedText(defaults, f"{count} partitions: {MAX_PARTITIONS} may be")
        if OFFSET_HISTORY_TOPIC not in found:
            history = TopicSettings(
                OFFSET_HISTORY_TOPIC, partitions=HISTORY_PARTITIONS, stores=HISTORY_STORES
            )
            found[OFFSET_HISTORY_TOPIC] = topic_of(history, own, self.max_payload)
        return found

    def take(self, config_id: int, checksum: int, defaults: str, texts: tuple[str, ...]) -> None:
        """Use the topics of a master's texts from now on. Raises MalformedText without any change.

        A blank text of defaults changes nothing, and omitted topics are unchanged
        (BrokerMetadataManager.updateBrokerTopicConfigMap).
        """
        if not defaults.strip():
            return
        self._take(config_id, checksum, defaults, texts or self.topic_texts)

    def _take(self, config_id: int, checksum: int, defaults: str, texts: tuple[str, ...]) -> None:
        topics = self.understood(defaults, texts)
        self.config_id, self.checksum = config_id, checksum
        self.defaults_text, self.topic_texts = defaults, texts
        self._defaults = BrokerDefaults.parse(defaults)
        self._topics = topics

    def set_cluster_size(self, config_id: int, size: int | None) -> None:
        """Set the default maximum size of messages in this cluster."""
        self.cluster_id = config_id
        if size is not None and max_payload(size) != self.max_payload:
            self.max_payload = max_payload(size)
            if self.defaults_text:
                self._topics = self.understood(self.defaults_text, self.topic_texts)

    def take_removed(self, texts: tuple[str, ...]) -> list[Topic]:
        """Process the master's removed topics; return those whose files must be deleted.

        One that is no longer listed is dropped: the master knows that its files are deleted
        (BrokerMetadataManager.updateBrokerRemoveTopicMap).
        """
        named = set()
        for text in texts:
            try:
                topic = topic_of(TopicSettings.parse(text), self._defaults, self.max_payload)
                _check(topic)
            except MalformedText as error:
                log.error("a removed topic is not understood: %s", error)
                continue
            named.add(topic.name)
            if topic.status > STATUS_SOFT_DELETE:
                self.removed.setdefault(topic.name, topic)
        for name in [n for n, one in self.removed.items()
                     if n not in named and one.status > STATUS_SOFT_REMOVE]:  # fmt: skip
            del self.removed[name]
        return [one for one in self.removed.values() if one.status < STATUS_HARD_REMOVE]

    def save(self) -> None:
        """Save the topics for the next start; a failure is logged. For a thread."""
        state = {
            "configId": self.config_id,
            "checksum": self.checksum,
            "defaults": self.defaults_text,
            "topics": list(self.topic_texts),
            "savedAt": clock.milliseconds(),
        }
        try:
            write_atomically(self._path, json.dumps(state).encode())
        except OSError as error:
            log.error("the topics cannot be saved: %s", error)


def _decode(data: bytes) -> tuple[int, int, str, tuple[str, ...]]:
    try:
        state = json.loads(data)
        return (
            int(state["configId"]),
            int(state["checksum"]),
            str(state["defaults"]),
            tuple(map(str, state["topics"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no topics of a broker: {error}") from None
