"""Messages that the broker itself puts into its store: delayed, retried, committed, reported.

The hot path of plain sends (handlers/send.py) does not come here. What comes here has its record
built from a StoredMessage, mostly one that was read from the log and is put again under another
topic.
"""

import logging
import struct
from collections.abc import Callable, Mapping

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.delay_levels import delay_levels
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.records import keys_of, queue_tags_code
from mq.daemons.broker.store.waiters import OnStored
from mq.daemons.broker.tables.topics import Topics
from mq.daemons.broker.timer.request import asks_for_timer, forget_timer, make_timed
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
    """A message that waited does not say where it belongs, or that may not be. The text says."""


class MessageWriter:
    """Appends messages that are not plain sends."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: Topics,
        on_timed: Callable[["MessageWriter"], None] = lambda writer: None,
    ) -> None:
        """``on_timed`` is called when a message is put for the timer."""
        self._settings = settings
        self._store = store
        self._topics = topics
        self.delays: dict[int, int] = {}  # milliseconds by delay level, from 1
        self._on_timed = on_timed
        self.configure()

    def configure(self) -> None:
        """Read the delay levels again. Raises ValueError if they cannot be read."""
        self.delays = delay_levels(self._settings.store.message_delay_level)

    def read(self, physical: int) -> StoredMessage | None:
        """The message at a physical offset with its body as stored; None if there is none.

        Raises RemoteProtocolError for bytes that are no message, or one whose body is damaged.
        """
        record = self._store.record_at(physical)
        if record is None:
            return None
        # It is stored again, with a checksum of its own: of a damaged body that would be right.
        return decode_record(record, decompress=False, check_crc=True)

    def read_of(self, topic: str, physical: int) -> StoredMessage | None:
        """The message of a topic that begins at a physical offset; None if there is no such."""
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

        ``physical`` is where the entry says that it is. An entry that is damaged may name another
        message: it is mended then, and a filler for one that is lost is None.
        """
        message = self.read_of(topic, physical)
        if message is None or (message.queue_id, message.queue_offset) != (queue_id, index):
            entry = self._store.entries.at(topic, queue_id, index)
            message = None if entry is None else self.read_of(topic, entry[0])
        return message

    def restore_target(self, message: StoredMessage) -> None:
        """Give a message that waited its real topic and queue. Raises NoTarget."""
        message.topic, message.queue_id = self.target_of(message.properties)

    def target_of(self, properties: Mapping[str, str]) -> tuple[str, int]:
        """The real topic and queue of a message that waited.

        Its properties stay as they are stored, as with Java. They are not believed: a store may be
        older than the checks of what is stored, or another's. A queue that its topic has no more is
        another one of the topic; a topic that is not there is made again as if it were sent to.

        Raises NoTarget.
        """
        topic, queue_id = real_target(properties)
        config = self._topics.find_or_remake(topic)
        if config is None:
            raise NoTarget(f"there is no topic {topic} (REAL_TOPIC)")
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if queue_id >= queues and self._store.queues.get(topic, queue_id) is None:
            if queues <= 0:
                raise NoTarget(f"the topic {topic} has no queues")
            queue_id %= queues
        return topic, queue_id

    def put_or_delay(self, message: StoredMessage, on_stored: OnStored | None = None) -> int:
        """Like `put`, but one that is delayed waits first (HookUtils.handleScheduleMessage).

        With a delay level it becomes a message of the level's queue in SCHEDULE_TOPIC_XXXX, with a
        time of delivery one of rmq_sys_wheel_timer, and remembers where it belongs. A level over
        the highest is the highest; one that is not a number is ignored.
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
        # A retry comes at once rather than never. (Any other is refused for its sender to know.)
        if message.topic.startswith(names.RETRY_PREFIX) and not _fits({**properties, **added}):
            properties.pop(PropertyKey.DELAY_LEVEL, None)
            return
        properties.update(added)
        message.topic = names.SCHEDULE_TOPIC
        message.queue_id = level - 1

    def put(self, message: StoredMessage, on_stored: OnStored | None = None) -> int:
        """Append a message to the queue that it names; returns its physical offset.

        Its `queue_offset` and `physical_offset` are set. ``on_stored`` is called with None once it
        is stored as the flush mode promises, or with why it is not.

        Raises StoreRefused when the store takes no messages, or not this one (MESSAGE_ILLEGAL).
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

    Retry and dead letter topics are longer than the name of their group. A message that waited
    for such a topic could never be delivered.
    """
    if len(topic) > names.MAX_TOPIC_LENGTH:
        raise StoreRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"topic {topic} has {len(topic)} characters, over the limit of "
            f"{names.MAX_TOPIC_LENGTH}: failed messages of a group are redelivered only if its "
            f"name has at most {names.MAX_TOPIC_LENGTH - len(names.RETRY_PREFIX)} characters",
        )


def real_target(properties: Mapping[str, str]) -> tuple[str, int]:
    """The topic and queue that the properties of a message name which waited, whether or not there
    are such. Raises NoTarget for what nothing that waited may name."""
    topic = properties.get(PropertyKey.REAL_TOPIC, "")
    text = properties.get(PropertyKey.REAL_QUEUE_ID, "")
    try:
        names.check_topic(topic)
    except names.IllegalName as error:
        raise NoTarget(f"REAL_TOPIC: {error}") from None
    # Nothing that has waited belongs there: a half would commit itself, for one
    # (ScheduleMessageService).
    if topic in names.NOT_SENDABLE_TOPICS or names.is_internal_topic(topic):
        raise NoTarget(f"REAL_TOPIC={topic} is the broker's own")
    if not (text.isascii() and text.isdigit() and len(text) < 11) or int(text) > _MOST_INT:
        raise NoTarget(f"REAL_QID={text[:50]!r} is not the number of a queue")
    return topic, int(text)


def add_what_fits(properties: dict[str, str], added: Mapping[str, str]) -> None:
    """Set properties that say how a message fared, and that it can do without: those for which
    there is room. What was sent with properties of nearly the most that a record holds is still
    delivered so."""
    size = 4 * sum(len(name) + len(value) + 2 for name, value in properties.items())
    if size > MAX_LENGTH // 2:  # the most it can be in UTF-8 says nothing: count
        size = len(encode(properties).encode()) + 1
    for name, value in added.items():
        more = len(name.encode()) + len(value.encode()) + 2
        if size + more <= MAX_LENGTH:
            properties[name] = value
            size += more


def _fits(properties: dict[str, str]) -> bool:
    return len(encode(properties).encode()) <= MAX_LENGTH


def properties_field(properties: dict[str, str]) -> bytes:
    """Properties as a record holds them, their length first. Raises StoreRefused."""
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
