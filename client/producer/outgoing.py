"""Converts messages to the requests that send them. No I/O."""

from collections.abc import Sequence

from mq.client.errors import ClientError
from mq.client.machine import clock
from mq.client.routing.targets import DEFAULT_QUEUES
from mq.protocol.batch import check_batch, encode_batch
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.compression import CompressionType, compress
from mq.protocol.flags import SysFlag
from mq.protocol.frame import MAX_FRAME
from mq.protocol.headers.send import Letter
from mq.protocol.message import Message
from mq.protocol.message_id import UniqueIdMaker
from mq.protocol.names import DEFAULT_TOPIC, RETRY_PREFIX, check_topic
from mq.protocol.properties import PropertyKey
from mq.protocol.properties import encode as encode_properties

# The broker's default limit (maxMessageSize), checked before sending. Raise it for brokers with a
# higher limit (DefaultMQProducer.maxMessageSize).
MAX_BODY = 4 * 1024 * 1024
# The limit of a body as it is sent: the largest frame less 64 KB for properties and header.
MAX_SENT = MAX_FRAME - 64 * 1024
_COMPRESSION_LEVEL = 5  # as in Java's producers
_COMPRESSION = CompressionType.ZLIB


class Draft:
    """An encoded message or batch, which can be sent to any queue of its topic, repeatedly."""

    __slots__ = ("_body", "_code", "_fields", "ids", "source", "topic")

    def __init__(
        self,
        topic: str,
        ids: str,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes,
        source: Message | Sequence[Message],
    ) -> None:
        self.topic = topic
        self.source = source  # the message or messages that it encodes
        self.ids = ids  # the unique ids, separated by commas
        self._code = code
        self._fields = fields
        self._body = body

    def command(self, queue: MessageQueue) -> Command:
        """Return the request that sends it to `queue`."""
        fields = {
            **self._fields,
            Letter.QUEUE_ID: str(queue.queue_id),
            Letter.BROKER_NAME: queue.broker_name,
        }
        return Command(self._code, fields, self._body)


def draft(
    group: str,
    message: Message,
    next_id: UniqueIdMaker,
    compress_over: int,
    in_unit: bool = False,
    max_body: int = MAX_BODY,
) -> Draft:
    """Encode a message. It gets a unique id here, unless it has one, and keeps it.

    `in_unit` marks a client that belongs to a unit (isUnitMode).

    Raises:
        ClientError: the body is empty, over `max_body` bytes, or over `MAX_SENT` when compressed.
        IllegalName: the topic's name is not allowed.
        ValueError: the properties are too long.
    """
    _check(message, max_body)
    unique_id = message.system.get(PropertyKey.UNIQUE_KEY)
    if unique_id is None:
        unique_id = message.system[PropertyKey.UNIQUE_KEY] = next_id()
    body = bytes(message.body)
    sys_flag = 0
    if len(body) >= compress_over:
        compressed = compress(body, _COMPRESSION, _COMPRESSION_LEVEL)
        if len(compressed) < len(body):  # Java's producer sends the longer one
            body = compressed
            sys_flag = _COMPRESSION.sys_flag
    if len(body) > MAX_SENT:
        raise ClientError(
            f"a message body of {len(message.body)} bytes has {len(body)} as it is sent: "
            f"no broker takes more than {MAX_SENT}"
        )
    if message.topic.startswith(RETRY_PREFIX):
        return _draft_retry(group, message, unique_id, sys_flag, body, in_unit)
    code = RequestCode.SEND_MESSAGE_V2
    if PropertyKey.TRANSACTION_PREPARED in message.system:
        sys_flag |= SysFlag.TRANSACTION_PREPARED
    elif PropertyKey.MESSAGE_TYPE in message.system:
        code = RequestCode.SEND_REPLY_MESSAGE_V2
    fields = _fields(group, message.topic, sys_flag, message.flag, message.encode_properties())
    if in_unit:
        fields[Letter.UNIT_MODE] = "true"
    return Draft(message.topic, unique_id, code, fields, body, message)


def _draft_retry(
    group: str, message: Message, unique_id: str, sys_flag: int, body: bytes, in_unit: bool
) -> Draft:
    """Encode a message for a retry topic: two properties move to the header (sendKernelImpl of
    Java's producer).
    """
    properties = message.all_properties()
    reconsume_times = properties.pop(PropertyKey.RECONSUME_TIME, "0")
    max_reconsume_times = properties.pop(PropertyKey.MAX_RECONSUME_TIMES, None)
    text = encode_properties(properties)
    fields = _fields(group, message.topic, sys_flag, message.flag, text)
    fields[Letter.RECONSUME_TIMES] = reconsume_times
    if in_unit:
        fields[Letter.UNIT_MODE] = "true"
    if max_reconsume_times is not None:
        fields[Letter.MAX_RECONSUME_TIMES] = max_reconsume_times
    return Draft(message.topic, unique_id, RequestCode.SEND_MESSAGE_V2, fields, body, message)


def draft_batch(
    group: str,
    messages: Sequence[Message],
    next_id: UniqueIdMaker,
    in_unit: bool = False,
    max_body: int = MAX_BODY,
) -> Draft:
    """Encode messages as one batch. Each one gets a unique id here, unless it has one, and keeps
    it.

    Raises:
        ClientError: a body is empty, or all of them together are over `max_body` bytes.
        IllegalName: the topic's name is not allowed.
        ValueError: the messages cannot form a batch, or their properties are too long.
    """
    check_batch(messages)
    ids = []
    for message in messages:
        _check(message, max_body)
        if PropertyKey.UNIQUE_KEY not in message.system:
            message.system[PropertyKey.UNIQUE_KEY] = next_id()
        ids.append(message.system[PropertyKey.UNIQUE_KEY])
    body = encode_batch(messages)
    if len(body) > max_body:
        raise ClientError(f"a batch of {len(body)} bytes is over the limit of {max_body}: split it")
    first = messages[0]
    # The broker adds these to each message, after the message's own properties.
    wait = "true" if first.wait_store_ok else "false"
    properties = encode_properties({PropertyKey.WAIT_STORE: wait})
    fields = _fields(group, first.topic, 0, 0, properties)
    fields[Letter.BATCH] = "true"
    if in_unit:
        fields[Letter.UNIT_MODE] = "true"
    code = RequestCode.SEND_BATCH_MESSAGE
    return Draft(first.topic, ",".join(ids), code, fields, body, messages)


def _check(message: Message, max_body: int) -> None:
    check_topic(message.topic)
    if not len(message.body):
        # Java's producers refuse an empty body (Validators.checkMessage), and some Java brokers
        # fail on it.
        raise ClientError("a message needs a body of at least one byte")
    if len(message.body) > max_body:
        raise ClientError(
            f"a message body of {len(message.body)} bytes is over the limit of {max_body}"
        )


def _fields(group: str, topic: str, sys_flag: int, flag: int, properties: str) -> dict[str, str]:
    """Return the fields of SendMessageRequestHeaderV2 except the queue. Written by hand for speed.

    tests/client/producer/test_outgoing.py checks that they match the header.
    """
    return {
        Letter.PRODUCER_GROUP: group,
        Letter.TOPIC: topic,
        Letter.DEFAULT_TOPIC: DEFAULT_TOPIC,
        Letter.DEFAULT_TOPIC_QUEUE_NUMS: _DEFAULT_QUEUES_TEXT,
        Letter.SYS_FLAG: str(sys_flag),
        Letter.BORN_TIMESTAMP: str(int(clock.time() * 1000)),
        Letter.FLAG: str(flag),
        Letter.PROPERTIES: properties,
        Letter.RECONSUME_TIMES: "0",
        Letter.UNIT_MODE: "false",
        Letter.BATCH: "false",
    }


_DEFAULT_QUEUES_TEXT = str(DEFAULT_QUEUES)
