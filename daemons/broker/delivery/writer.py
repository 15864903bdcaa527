"""Messages that the broker itself stores: delayed, retried, committed, reported.

Plain sends (send/send_handlers.py) do not use this module. Here a record is built from a
StoredMessage, which was mostly read from the log and is stored again under another topic.
"""

import logging
import struct
from collections.abc import Callable, Mapping

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.timer_request import asks_for_timer, forget_timer, make_timed
from mq.daemons.broker.store import (
    MessageStore,
    OnStored,
    StoreRefused,
    keys_of,
    layout,
    queue_tags_code,
)
from mq.daemons.broker.store_config import delay_levels
from mq.daemons.broker.topics.topic_table import Topics
from mq.protocol import names
from mq.protocol.codes import ResponseCode
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.host import pack_address
from mq.protocol.message import StoredMessage, decode_record
from mq.protocol.properties import MAX_LENGTH, PropertyKey, encode

log = logging.getLogger(__name__)

_HOST_FLAGS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_MOST_INT = (1 << 31) - 1


class NoTarget(ValueError):
    """The real topic or queue of a waiting message is missing or not allowed; the text says why."""


class MessageWriter:
    """Appends messages that are not plain sends."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: Topics,
        on_timed: Callable[["MessageWriter"], None] = lambda writer: None,
    ) -> None:
        """``on_timed`` is called when a message is stored for the timer."""
        self._settings = settings
        self._store = store
        self._topics = topics
        self.delays: dict[int, int] = {}  # milliseconds by delay level, from 1
        self._on_timed = on_timed
        self.configure()

    def configure(self) -> None:
        """Read the delay levels again. Raises ValueError if they are malformed."""
        self.delays = delay_levels(self._settings.store.message_delay_level)

    def read(self, physical: int) -> StoredMessage | None:
        """The message at a physical offset with its body as stored; None if there is none.

        Raises RemoteProtocolError for bytes that are not a message, or a message with a damaged
        body.
        """
        record = self._store.record_at(physical)
        if record is None:
            return None
        # The message is stored again with a new checksum, which would be valid for a damaged body.
        return decode_record(record, decompress=False, check_crc=True)

    def read_of(self, topic: str, physical: int) -> StoredMessage | None:
        """The message of a topic at a physical offset; None if there is no such message."""
        try:
            message = self.read(physical)
        except RemoteProtocolError:
            return None
        if message is None or (message.topic, message.physical_offset) != (topic, physical):
            return None
        return message

    def read_entry(
        self, topic: str, queue_id: int, index: int, physical: int = -1
    ) -> StoredMessage | None:
        """The message of a queue entry, None if it cannot be read.

        ``physical`` is the entry's physical offset. A damaged entry may name another message: then
        the entry is repaired. The result is None for the filler of a lost message.
        """
        message = self.read_of(topic, physical)
        if message is None or (message.queue_id, message.queue_offset) != (queue_id, index):
            entry = self._store.entries.at(topic, queue_id, index)
            message = None if entry is None else self.read_of(topic, entry[0])
        return message

    def restore_target(self, message: StoredMessage) -> None:
        """Restore the real topic and queue of a waiting message. Raises NoTarget."""
        message.topic, message.queue_id = self.target_of(message.properties)

    def target_of(self, properties: Mapping[str, str]) -> tuple[str, int]:
        """The real topic and queue of a waiting message.

        Its properties stay as stored, as with Java. They are checked, because the store may be
        older than the checks at storing, or may come from another broker. If the topic does not
        have the queue any more, another queue of the topic is used; a missing topic is created
        again as for a send.

        Raises NoTarget.
        """
        topic, queue_id = real_target(properties)
        config = self._topics.find_or_remake(topic)
        if config is None:
            raise NoTarget(f"topic {topic} (REAL_TOPIC) does not exist")
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if queue_id >= queues and self._store.queues.get(topic, queue_id) is None:
            if queues <= 0:
                raise NoTarget(f"the topic {topic} has no queues")
            queue_id %= queues
        return topic, queue_id

    def put_or_delay(self, message: StoredMessage, on_stored: OnStored | None = None) -> int:
        """Like `put`, but a delayed message waits first (HookUtils.handleScheduleMessage).

        With a delay level it becomes a message of the level's queue in SCHEDULE_TOPIC_XXXX; with a
        delivery time it becomes a message of rmq_sys_wheel_timer. It keeps its real topic in its
        properties. A level above the highest counts as the highest; one that is not a number is
        ignored.
        """
        check_length(message.topic)
        level = self._level(message)
        if asks_for_timer(message) and self._may_wait(message):
            now = clock.milliseconds()
            if level > 0:
                forget_timer(message)
            elif make_timed(message, self._settings.store, now):
                self._on_timed(self)
        if level > 0 and self.delays:
            self._make_waiting(message, min(level, max(self.delays)))
        return self.put(message, on_stored)

    def _make_waiting(self, message: StoredMessage, level: int) -> None:
        properties = message.properties
        added = {
            PropertyKey.DELAY_LEVEL: str(level),
            PropertyKey.REAL_TOPIC: message.topic,
            PropertyKey.REAL_QUEUE_ID: str(message.queue_id),
        }
        # A retry is delivered at once rather than never. (Other messages are refused, so that the
        # sender knows.)
        if message.topic.startswith(names.RETRY_PREFIX) and not _fits({**properties, **added}):
            properties.pop(PropertyKey.DELAY_LEVEL, None)
            return
        properties.update(added)
        message.topic = names.SCHEDULE_TOPIC
        message.queue_id = level - 1

    def put(self, message: StoredMessage, on_stored: OnStored | None = None) -> int:
        """Append a message to the queue that it names; returns its physical offset.

        Sets its `queue_offset` and `physical_offset`. ``on_stored`` is called with None once it is
        stored as the flush mode promises, or with the refusal.

        Raises StoreRefused if the store accepts no messages, or not this one (MESSAGE_ILLEGAL).
        """
        check_length(message.topic)
        if not 0 <= message.queue_id <= _MOST_INT:
            raise StoreRefused(
                ResponseCode.MESSAGE_ILLEGAL, f"{message.queue_id} is not the number of a queue"
            )
        try:
            return self._append(message, on_stored)
        except struct.error as error:  # nothing has been appended
            raise StoreRefused(
                ResponseCode.MESSAGE_ILLEGAL, f"a number does not fit into a record: {error}"
            ) from None

    def _append(self, message: StoredMessage, on_stored: OnStored | None) -> int:
        properties = message.properties
        field = properties_field(properties)
        appender = self._store.appender
        queue = self._store.queue(message.topic, message.queue_id)
        physical = appender.append(
            queue,
            message.body,
            field,
            flag=message.flag,
            sys_flag=message.sys_flag & ~_HOST_FLAGS,
            born_timestamp=message.born_timestamp,
            born_host=pack_address(*message.born_host),
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_transaction_offset,
            tags_code=queue_tags_code(
                message.topic, properties, appender.batch_timestamp(), self.delays
            ),
        )
        keys = keys_of(properties)
        if keys:
            appender.index(message.topic, keys, physical)
        message.queue_offset = queue.appended - 1
        message.physical_offset = physical
        if on_stored is not None:
            appender.call_when_stored(on_stored)
        return physical

    def _may_wait(self, message: StoredMessage) -> bool:
        return message.sys_flag & SysFlag.TRANSACTION_MASK in (0, SysFlag.TRANSACTION_COMMIT)

    def _level(self, message: StoredMessage) -> int:
        if not self._may_wait(message):
            return 0
        try:
            return int(message.properties.get(PropertyKey.DELAY_LEVEL, "0"))
        except ValueError:
            return 0


def check_length(topic: str) -> None:
    """Raises StoreRefused (MESSAGE_ILLEGAL) for a topic whose name does not fit into a record.

    Retry and dead letter topics are longer than the name of their group. A message that waits for
    such a topic could never be delivered.
    """
    if len(topic) > names.MAX_TOPIC_LENGTH:
        raise StoreRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"topic {topic} has {len(topic)} characters, over the limit of "
            f"{names.MAX_TOPIC_LENGTH}: failed messages of a group are redelivered only if its "
            f"name has at most {names.MAX_TOPIC_LENGTH - len(names.RETRY_PREFIX)} characters",
        )


def real_target(properties: Mapping[str, str]) -> tuple[str, int]:
    """The real topic and queue in the properties of a waiting message, whether or not they exist.
    Raises NoTarget if a waiting message may not name them.
    """
    topic = properties.get(PropertyKey.REAL_TOPIC, "")
    text = properties.get(PropertyKey.REAL_QUEUE_ID, "")
    try:
        names.check_topic(topic)
    except names.IllegalName as error:
        raise NoTarget(f"REAL_TOPIC: {error}") from None
    # No waiting message belongs there: a half message, for example, would commit itself
    # (ScheduleMessageService).
    if topic in names.NOT_SENDABLE_TOPICS or names.is_internal_topic(topic):
        raise NoTarget(f"REAL_TOPIC={topic} is the broker's own")
    if not (text.isascii() and text.isdigit() and len(text) < 11) or int(text) > _MOST_INT:
        raise NoTarget(f"REAL_QID={text[:50]!r} is not the number of a queue")
    return topic, int(text)


def add_what_fits(properties: dict[str, str], added: Mapping[str, str]) -> None:
    """Set optional properties about the history of a message, as far as there is room. So a message
    whose properties are nearly as long as a record allows is still delivered.
    """
    size = 4 * sum(len(name) + len(value) + 2 for name, value in properties.items())
    # the upper bound of the UTF-8 length is too high to tell: count exactly
    if size > MAX_LENGTH // 2:
        size = len(encode(properties).encode()) + 1
    for name, value in added.items():
        more = len(name.encode()) + len(value.encode()) + 2
        if size + more <= MAX_LENGTH:
            properties[name] = value
            size += more


def _fits(properties: dict[str, str]) -> bool:
    return len(encode(properties).encode()) <= MAX_LENGTH


def properties_field(properties: dict[str, str]) -> bytes:
    """Properties as a record holds them, length first. Raises StoreRefused."""
    try:
        raw = encode(properties).encode()
    except UnicodeEncodeError as error:
        raise StoreRefused(ResponseCode.MESSAGE_ILLEGAL, f"the properties: {error}") from None
    if len(raw) > MAX_LENGTH:
        raise StoreRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {len(raw)} bytes are over the limit of {MAX_LENGTH}",
        )
    return layout.SHORT.pack(len(raw)) + raw
