"""Messages that the broker itself puts into its store: delayed, retried, committed, reported.

The hot path of plain sends (handlers/send.py) does not come here. What comes here has its record
built from a StoredMessage, mostly one that was read from the log and is put again under another
topic.
"""

import logging
import time
from collections.abc import Callable

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.append import OnStored
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.message_store import MessageStore, delay_levels
from mq.daemons.broker.store.records import keys_of, queue_tags_code
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.daemons.broker.timer.request import asks_for_timer, forget_timer, make_timed
from mq.protocol import names
from mq.protocol.codes import ResponseCode
from mq.protocol.flags import SysFlag
from mq.protocol.host import pack_host
from mq.protocol.message import StoredMessage, decode_record
from mq.protocol.properties import MAX_LENGTH, PropertyKey, encode

log = logging.getLogger(__name__)

_HOST_FLAGS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6


class MessageWriter:
    """Appends messages that are not plain sends."""

    def __init__(self, config: Callable[[], MessageStoreConfig], store: MessageStore) -> None:
        self._config = config
        self._store = store
        self.delays: dict[int, int] = {}  # milliseconds by delay level, from 1
        self.on_timed: Callable[[], None] = lambda: None  # a message is put for the timer
        self.configure()

    def configure(self) -> None:
        """Read the delay levels again. Raises ValueError if they cannot be read."""
        self.delays = delay_levels(self._config().message_delay_level)

    def read(self, physical: int) -> StoredMessage | None:
        """The message at a physical offset with its body as stored; None if there is none."""
        record = self._store.record_at(physical)
        return None if record is None else decode_record(record, decompress=False)

    def put_or_delay(self, message: StoredMessage, on_stored: OnStored | None = None) -> int:
        """Like `put`, but one that is delayed waits first (HookUtils.handleScheduleMessage).

        With a delay level it becomes a message of the level's queue in SCHEDULE_TOPIC_XXXX, with a
        time of delivery one of rmq_sys_wheel_timer, and remembers where it belongs. A level over
        the highest is the highest; one that is no number is none.
        """
        level = self._level(message)
        if asks_for_timer(message) and self._may_wait(message):
            now = time.time_ns() // 1_000_000
            if level > 0:
                forget_timer(message)
            elif make_timed(message, self._config(), now):
                self.on_timed()
        if level > 0:
            properties = message.properties
            level = min(level, max(self.delays))
            properties[PropertyKey.DELAY_LEVEL] = str(level)
            properties[PropertyKey.REAL_TOPIC] = message.topic
            properties[PropertyKey.REAL_QUEUE_ID] = str(message.queue_id)
            message.topic = names.SCHEDULE_TOPIC
            message.queue_id = level - 1
        return self.put(message, on_stored)

    def put(self, message: StoredMessage, on_stored: OnStored | None = None) -> int:
        """Append a message to the queue that it names; returns its physical offset.

        Its `queue_offset` and `physical_offset` are set. ``on_stored`` is called with None once it
        is stored as the flush mode promises, or with why it is not.

        Raises StoreRefused when the store takes no messages or not this one.
        """
        properties = message.properties
        field = _properties_field(properties)
        appender = self._store.appender
        queue = self._store.queue(message.topic, message.queue_id)
        address, port = message.born_host
        physical = appender.append(
            queue,
            message.body,
            field,
            flag=message.flag,
            sys_flag=message.sys_flag & ~_HOST_FLAGS,
            born_timestamp=message.born_timestamp,
            born_host=pack_host(address) + layout.INT.pack(port),
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


def restore_target(message: StoredMessage) -> bool:
    """Give a message that waited its real topic and queue; False if it does not say which.

    Its properties stay as they are stored, as with Java.
    """
    properties = message.properties
    topic = properties.get(PropertyKey.REAL_TOPIC, "")
    queue_text = properties.get(PropertyKey.REAL_QUEUE_ID, "")
    try:
        names.check_topic(topic)
        queue_id = int(queue_text)
    except ValueError:
        return False
    # A half message that was delayed would commit itself (ScheduleMessageService).
    if topic == names.TRANSACTION_HALF_TOPIC or queue_id < 0:
        return False
    message.topic = topic
    message.queue_id = queue_id
    return True


def _properties_field(properties: dict[str, str]) -> bytes:
    raw = encode(properties).encode()
    if len(raw) > MAX_LENGTH:
        raise StoreRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {len(raw)} bytes are over the limit of {MAX_LENGTH}",
        )
    return layout.SHORT.pack(len(raw)) + raw
