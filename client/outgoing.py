"""Drafts: from a message to the request that sends it. No I/O."""

from collections.abc import Sequence

from mq.client.errors import ClientError
from mq.client.machine import clock
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

# The broker's default limit (maxMessageSize); it refuses more, this says so before sending. Raise
# it where the brokers have a higher one (DefaultMQProducer.maxMessageSize).
MAX_BODY = 4 * 1024 * 1024
# Of a body as it is sent: no broker takes longer frames, and 32 KB of properties go with it.
MAX_SENT = MAX_FRAME - 64 * 1024
DEFAULT_QUEUES = 4  # of a topic that a broker creates on the first message to it
_COMPRESSION_LEVEL = 5  # as Java's producers
_COMPRESSION = CompressionType.ZLIB


class Draft:
    """A message, or a batch, ready to go to any queue of its topic, more than once if need be."""

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
        self.source = source  # what it was made of
        self.ids = ids  # the unique ids, joined by commas
        self._code = code
        self._fields = fields
        self._body = body

    def command(self, queue: MessageQueue) -> Command:
        """The request that sends it to `queue`."""
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
    """Make a message ready to send; it keeps the unique id that it gets here.

    `in_unit` says that the client is of a unit (isUnitMode).

    Raises:
        ClientError: the body is empty, over `max_body` bytes, or compressed over `MAX_SENT`.
        IllegalName: of the topic.
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
    """To a retry topic two properties travel in the header (sendKernelImpl of Java's producer)."""
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
    """Make messages ready to be sent as one batch; each keeps the unique id that it gets here.

    Raises:
        ClientError: a body is empty, or all of them together are over `max_body` bytes.
        IllegalName: of the topic.
        ValueError: they cannot go together, or properties are too long.
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
    # The broker gives these to each message, after those that the message has itself.
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
        # Java's producers refuse it (Validators.checkMessage), and some of its brokers choke on it.
        raise ClientError("a message needs a body of at least one byte")
    if len(message.body) > max_body:
        raise ClientError(
            f"a message body of {len(message.body)} bytes is over the limit of {max_body}"
        )


def _fields(group: str, topic: str, sys_flag: int, flag: int, properties: str) -> dict[str, str]:
    """The fields of SendMessageRequestHeaderV2 but for the queue; by hand, it is the hot path.

    tests/client/test_outgoing.py holds them to the header.
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
