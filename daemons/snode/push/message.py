"""Pushed messages: from a send and the broker's reply to the frame for a consumer.

Only messages that the broker has stored in the queue to which they were sent are pushed. Delayed,
timed and half messages are stored elsewhere (the snode branch pushes these at once, with the offset
of another queue), and so are messages of a retry topic that are delayed or dead: consumers pull
these.

Sources: the snode branch's PushServiceImpl (buildPushMessage), SendMessageProcessor.
"""

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from mq.client.machine import clock
from mq.protocol.batch import decode_batch
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import SnodeCode
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.frame import PREFIX, encode
from mq.protocol.headers.send import Letter
from mq.protocol.host import split_address
from mq.protocol.message_id import place_of_offset_id
from mq.protocol.names import RETRY_PREFIX
from mq.protocol.properties import BROKERS_OWN, NAME_VALUE_SEPARATOR, PropertyKey
from mq.protocol.record import CRC_MASK, IPV6_BITS, MAGIC_V1, MAGIC_V2, head

# A message with one of these properties is not stored in its queue at once, or not unchanged. A
# user property whose name ends like one of them has the same effect: the message is pulled then.
_ELSEWHERE = tuple(
    name + NAME_VALUE_SEPARATOR
    for name in (
        PropertyKey.DELAY_LEVEL,
        PropertyKey.TRANSACTION_PREPARED,
        PropertyKey.TIMER_DELAY_MS,
        PropertyKey.TIMER_DELAY_SEC,
        PropertyKey.TIMER_DELIVER_MS,
        *BROKERS_OWN,  # the broker removes them
    )
)
_OTHER_FORMS = SysFlag.TRANSACTION_MASK | SysFlag.INNER_BATCH
_LONGEST_TOPIC_V1 = 127  # bytes: the length is an i8
_LONG = Struct(">h")
_SHORT = Struct(">b")


class StoredPush(NamedTuple):
    """A message as its broker has stored it."""

    queue: MessageQueue
    offset: int  # in the queue
    store_host: bytes  # packed
    store_port: int
    physical_offset: int
    message_id: str
    flag: int
    body: bytes | memoryview
    properties: bytes


class AcknowledgedSend:
    """A send that a broker has acknowledged, decoded for pushing."""

    def __init__(
        self,
        enode: str,
        fields: Mapping[str, str],
        body: bytes | memoryview,
        answer: Mapping[str, str],
        born_host: bytes,
    ) -> None:
        """`fields` are those of SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE, `answer` those of the reply;
        `born_host` is packed as in a record.

        Raises ValueError or KeyError if it cannot be pushed, because the reply lacks the location
        of the message.
        """
        self.queue = MessageQueue(fields[Letter.TOPIC], enode, int(answer["queueId"]))
        self.offset = int(answer["queueOffset"])
        self._fields = fields
        self._body = body
        self._born_host = born_host
        self._ids = answer.get("msgId", "").split(",")
        self._times = int(fields.get(Letter.RECONSUME_TIMES) or 0)
        self._sys_flag = int(fields[Letter.SYS_FLAG]) & ~IPV6_BITS
        self._born = int(fields[Letter.BORN_TIMESTAMP])
        # The reply of a broker without the snode dialect has no store time.
        self._stored_at = int(answer.get("storeTimestamp") or clock.milliseconds())

    def messages(self) -> Iterator[StoredPush]:
        """The message, or those of a batch. Raises ValueError if the location of one is missing."""
        fields = self._fields
        properties = (fields.get(Letter.PROPERTIES) or "").encode()
        queue = self.queue
        if fields.get(Letter.BATCH) != "true":
            flag = int(fields.get(Letter.FLAG) or 0)
            place = place_of_offset_id(self._ids[0])
            yield StoredPush(queue, self.offset, *place, self._ids[0], flag, self._body, properties)
            return
        try:
            elements = list(decode_batch(self._body))
        except RemoteProtocolError as error:
            raise ValueError(str(error)) from None
        if len(elements) != len(self._ids):
            raise ValueError(f"{len(self._ids)} ids for {len(elements)} messages")
        if any(names_elsewhere(bytes(element.properties).decode()) for element in elements):
            raise ValueError("the broker stores a message of the batch with other properties")
        for number, (element, offset_id) in enumerate(zip(elements, self._ids, strict=True)):
            own = bytes(element.properties)
            # The properties that the broker adds to each message of a batch, after its own.
            both = own + (b"" if own.endswith(b"\x02") or not own else b"\x02") + properties
            yield StoredPush(
                queue,
                self.offset + number,
                *place_of_offset_id(offset_id),
                offset_id,
                element.flag,
                element.body,
                both,
            )

    def record(self, message: StoredPush) -> bytes:
        """The record of a message, as in a pull.

        Raises ValueError or struct.error for values that do not fit.
        """
        store_host = message.store_host
        born_host, born_port = split_address(self._born_host)
        sys_flag = (
            self._sys_flag
            | (SysFlag.BORN_HOST_V6 if len(born_host) == 16 else 0)
            | (SysFlag.STORE_HOST_V6 if len(store_host) == 16 else 0)
        )
        topic = message.queue.topic.encode()
        second_form = len(topic) > _LONGEST_TOPIC_V1
        topic_length = (_LONG if second_form else _SHORT).pack(len(topic))
        body, properties = message.body, message.properties
        fixed = head(sys_flag)
        size = fixed.size + len(body) + len(topic_length) + len(topic) + 2 + len(properties)
        return b"".join(
            (
                fixed.pack(
                    size,
                    MAGIC_V2 if second_form else MAGIC_V1,
                    crc32(body) & CRC_MASK,
                    message.queue.queue_id,
                    message.flag,
                    message.offset,
                    message.physical_offset,
                    sys_flag,
                    self._born,
                    born_host,
                    born_port,
                    self._stored_at,
                    store_host,
                    message.store_port,
                    self._times,
                    0,
                    len(body),
                ),
                body,
                topic_length,
                topic,
                _LONG.pack(len(properties)),
                properties,
            )
        )


class PushHeaders:
    """The headers of pushes of one queue to one group, built once."""

    __slots__ = ("_alone", "_full")

    def __init__(self, queue: MessageQueue, group: str) -> None:
        fields = {"queueOffset": _OFFSET, "topic": queue.topic, "queueId": str(queue.queue_id)}
        self._alone = _template(fields)
        self._full = _template(
            {
                **fields,
                "messageId": _ID,
                "consumerGroup": group,
                "enodeName": queue.broker_name,
            }
        )

    def full(self, message: StoredPush, record: bytes) -> bytes:
        """The frame with a record."""
        start, middle, end = self._full
        text = b"%s%d%s%s%s" % (start, message.offset, middle, message.message_id.encode(), end)
        return _frame(text, record)

    def alone(self, message: StoredPush) -> bytes:
        """The frame with only the body, as the seed pushes it."""
        start, end = self._alone
        return _frame(b"%s%d%s" % (start, message.offset, end), message.body)


# Placeholders at which the header is cut, with the name before them and the quotes. No other text
# in a header can contain them, because quotes would be escaped.
_OFFSET, _ID = "offset", "id"
_CUTS = tuple(
    b'"%s":"%s"' % (name.encode(), value.encode())
    for name, value in (("queueOffset", _OFFSET), ("messageId", _ID))
)


def _template(fields: Mapping[str, str]) -> list[bytes]:
    """The header of a push with these fields, cut at its placeholders."""
    parts = [encode(Command(SnodeCode.PUSH_MESSAGE, fields, flag=ONE_WAY))[PREFIX.size :]]
    for cut in _CUTS:
        if cut in parts[-1]:
            start, end = parts.pop().split(cut)
            name, _, _ = cut.partition(b":")
            parts += [start + name + b':"', b'"' + end]
    return parts


def _frame(header: bytes, body: bytes | memoryview) -> bytes:
    size = len(header)
    return b"".join((PREFIX.pack(4 + size + len(body), size), header, body))


def is_pushed(fields: Mapping[str, str]) -> bool:
    """Whether the message of this send is stored at once in the queue to which it was sent."""
    if fields.get(Letter.TOPIC, RETRY_PREFIX).startswith(RETRY_PREFIX):
        return False
    sys_flag = fields.get(Letter.SYS_FLAG, "")
    if not sys_flag.isdigit() or int(sys_flag) & _OTHER_FORMS:
        return False
    properties = fields.get(Letter.PROPERTIES) or ""
    return not names_elsewhere(properties)


def names_elsewhere(properties: str) -> bool:
    """Whether properties contain a name because of which a message is not stored unchanged."""
    return any(name in properties for name in _ELSEWHERE)
