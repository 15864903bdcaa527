"""SEND_MESSAGE in its three forms: the hot path of the broker.

A request of SEND_MESSAGE_V2 arrives as a parsed header and a body, and leaves as a record in the
open batch of the store and a reply frame that the store sends when the record is safe. Nothing here
waits, logs or builds an object per message. The field keys are those of SendMessageRequestHeaderV2:

  a producer group   b topic            c default topic   d default queues   e queue id
  f system flag      g born timestamp   h flag            i properties       j reconsume times
  k unit mode        l max reconsumes   m batch           n broker name
  o born host, from a snode             p the snode
"""

import struct
import time
from collections.abc import Mapping, Sequence
from functools import partial

import orjson

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.send.batches import messages_of
from mq.daemons.broker.send.born_host import born_host
from mq.daemons.broker.send.indirect_send import IndirectSends
from mq.daemons.broker.send.native_sends import NativeSends
from mq.daemons.broker.send.targets import SendTargets
from mq.daemons.broker.store import (
    Appender,
    ConsumeQueue,
    Origin,
    StoreRefused,
    key_hash,
    keys_of,
    layout,
)
from mq.daemons.broker.usual_properties import UsualProperties, names_timer
from mq.daemons.channel import Channel
from mq.daemons.dispatch import DirectHandler, Refused
from mq.daemons.request_codes import serves
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.headers.send import Letter, SendMessageRequestHeader, SendMessageRequestHeaderV2
from mq.protocol.message import StoredMessage
from mq.protocol.message_id import join_ids
from mq.protocol.names import RETRY_PREFIX, TIMER_TOPIC, TRANSACTION_HALF_TOPIC
from mq.protocol.properties import (
    MAX_LENGTH,
    PropertyKey,
    decode,
    drop_brokers_own,
    encode,
)
from mq.protocol.recall import RecallHandle
from mq.protocol.reply_template import ReplyTemplate
from mq.protocol.tags import tags_code

_SHORT = layout.SHORT
# Field keys of the header's second version, bound here because every message needs them.
_BATCH = Letter.BATCH
_BORN_TIMESTAMP = Letter.BORN_TIMESTAMP
_DEFAULT_TOPIC = Letter.DEFAULT_TOPIC
_DEFAULT_QUEUES = Letter.DEFAULT_TOPIC_QUEUE_NUMS
_FLAG = Letter.FLAG
_PROPERTIES = Letter.PROPERTIES
_QUEUE_ID = Letter.QUEUE_ID
_RECONSUME_TIMES = Letter.RECONSUME_TIMES
_SYS_FLAG = Letter.SYS_FLAG
_TOPIC = Letter.TOPIC
_UNIT_MODE = Letter.UNIT_MODE
_REQUIRED = [declared.wire for declared in SendMessageRequestHeaderV2.FIELDS if declared.required]
_DELAY = PropertyKey.DELAY_LEVEL
_PREPARED = PropertyKey.TRANSACTION_PREPARED
_HOST_FLAGS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6


class SendHandlers:
    """Serves sends of producers."""

    def __init__(
        self,
        settings: BrokerSettings,
        targets: SendTargets,
        appender: Appender,
        indirect: IndirectSends,
    ) -> None:
        self._settings = settings
        self._targets = targets
        self._indirect = indirect
        self._remembered = targets.remembered
        self._appender = appender
        self._host_text = appender.store_host.hex().upper()  # the first part of an offset id
        self.native = NativeSends(appender, self._remembered)
        self.refused = 0
        self.configure()

    def configure(self) -> None:
        """Read again the settings that are used for every message."""
        config = self._settings.broker
        self._max_body = self._settings.store.max_message_size
        self._cluster = f"{PropertyKey.CLUSTER}\x01{config.broker_cluster_name}"
        self._no_properties = _field(self._cluster)
        self._usual = UsualProperties(self._cluster)
        trace = "true" if config.trace_on else "false"
        region = config.region_id.replace("%", "%%")
        switches = {PropertyKey.MSG_REGION: region, PropertyKey.TRACE_SWITCH: trace}
        place = {"queueId": "%d", "queueOffset": "%d"}
        one = switches | {"msgId": f"{self._host_text}%016X"} | place
        self._stored = ReplyTemplate(ResponseCode.SUCCESS, one)
        self._stored_timed = ReplyTemplate(ResponseCode.SUCCESS, one | {"recallHandle": "%s"})
        self._stored_half = ReplyTemplate(ResponseCode.SUCCESS, one | {"transactionId": "%s"})
        self._stored_batch = ReplyTemplate(ResponseCode.SUCCESS, switches | {"msgId": "%s"} | place)
        self._accept_from = config.start_accept_send_request_time_stamp
        self.native.configure(self._max_body, self._cluster, self._stored, self._stored_batch)
        self._targets.forget()

    def direct(self) -> dict[int, DirectHandler]:
        # The header says whether it is a batch, under either code (SendMessageProcessor).
        return {RequestCode.SEND_MESSAGE_V2: self.send, RequestCode.SEND_BATCH_MESSAGE: self.send}

    # entry points ---------------------------------------------------------------------------

    def send(self, header: dict[str, object], body: bytes, channel: Channel) -> None:
        """Store a message whose header has the second version, in JSON."""
        fields = header["extFields"]
        opaque = header["opaque"]
        if type(opaque) is not int:
            raise TypeError("opaque")
        if not isinstance(fields, dict):
            raise TypeError("extFields is not an object")
        batch = fields.get(_BATCH, "false")
        if batch != "false" and batch.lower() == "true":
            return self.batch(header, body, channel)
        queue = self._remembered.get((fields[_TOPIC], fields[_QUEUE_ID])) or self._find(
            fields, channel
        )
        if len(body) > self._max_body:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a body of {len(body)} bytes is over the limit of {self._max_body} "
                f"(maxMessageSize)",
            )
        text = fields.get(_PROPERTIES)
        sys_flag = int(fields[_SYS_FLAG])
        if sys_flag:
            sys_flag = _checked(sys_flag, text)
        hashes: Sequence[int] = ()
        code = 0
        promptly = False
        if queue.topic[0] == "%":
            properties = decode(text or "")
            drop_brokers_own(properties, queue.topic)
            return self._send_indirectly(header, fields, queue, properties, body, sys_flag, channel)
        if not text:
            properties_field = self._no_properties
        elif (usual := self._usual.read(text, queue.topic)) is not None:
            properties_field, code, hashes, promptly = usual
        else:
            properties = decode(text)
            drop_brokers_own(properties)
            if _DELAY in properties or _PREPARED in properties or names_timer(properties):
                return self._send_indirectly(
                    header, fields, queue, properties, body, sys_flag, channel
                )
            code = tags_code(properties.get(PropertyKey.TAGS))
            hashes = [key_hash(queue.topic, key) for key in keys_of(properties)]
            promptly = properties.pop(PropertyKey.WAIT_STORE, "") == "false"
            properties_field = _field(f"{encode(properties)}\x02{self._cluster}")
        appender = self._appender
        try:
            physical = appender.append(
                queue,
                body,
                properties_field,
                flag=int(fields[_FLAG]),
                sys_flag=sys_flag,
                born_timestamp=int(fields[_BORN_TIMESTAMP]),
                born_host=born_host(fields, channel),
                reconsume_times=int(fields.get(_RECONSUME_TIMES) or 0),
                tags_code=code,
            )
        except StoreRefused as refusal:
            self.refused += 1
            raise Refused(refusal.code, refusal.remark) from None
        if hashes:
            appender.index_hashes(hashes, physical)
        flag = header["flag"]
        assert isinstance(flag, int)
        if not flag & ONE_WAY:
            reply = self._stored.frame(physical, queue.queue_id, queue.appended - 1, opaque)
            appender.reply_when_stored(channel, reply, promptly)
        return None

    def _send_indirectly(
        self,
        header: dict[str, object],
        fields: dict[str, str],
        queue: ConsumeQueue,
        properties: dict[str, str],
        body: bytes,
        sys_flag: int,
        channel: Channel,
    ) -> None:
        """Store a message under another topic than its sender named."""
        promptly = properties.get(PropertyKey.WAIT_STORE) == "false"
        try:
            message = self._indirect.send(fields, queue, properties, body, sys_flag, channel)
        except StoreRefused as refusal:
            self.refused += 1
            raise Refused(refusal.code, refusal.remark) from None
        flag = header["flag"]
        assert isinstance(flag, int)
        if not flag & ONE_WAY:
            template, values = self._stored_indirectly(message)
            place = (message.physical_offset, queue.queue_id, message.queue_offset)
            opaque = header["opaque"]
            assert isinstance(opaque, int)
            reply = template.frame(*place, *values, opaque)
            self._appender.reply_when_stored(channel, reply, promptly)

    def _stored_indirectly(self, message: StoredMessage) -> tuple[ReplyTemplate, tuple[bytes, ...]]:
        """The reply template of a message that waits, and the values of the fields that no other
        reply has.

        The reply to a half message has its unique id as ``transactionId``: the proxy of 5.x ends
        transactions by it. Java's brokers of 5.x send the field with every reply, but clients and
        proxies read it only for half messages.
        """
        unique = message.properties.get(PropertyKey.UNIQUE_KEY)
        if message.topic == TRANSACTION_HALF_TOPIC and unique:
            return self._stored_half, (orjson.dumps(unique)[1:-1],)
        handle = self._recall_handle(message)
        return (self._stored_timed if handle else self._stored), handle

    def _recall_handle(self, message: StoredMessage) -> tuple[bytes, ...]:
        """The handle by which a message that waits in the timer can be recalled; empty for other
        messages.

        Source: SendMessageProcessor.attachRecallHandle of 5.3.
        """
        properties = message.properties
        unique = properties.get(PropertyKey.UNIQUE_KEY)
        topic = properties.get(PropertyKey.REAL_TOPIC, RETRY_PREFIX)
        if message.topic != TIMER_TOPIC or not unique or topic.startswith(RETRY_PREFIX):
            return ()
        due = int(properties[PropertyKey.TIMER_OUT_MS]) + 1  # within the slot, not at its start
        handle = RecallHandle(topic, self._settings.broker.broker_name, due, unique)
        return (handle.encode().encode(),)

    def batch(self, header: dict[str, object], body: bytes, channel: Channel) -> None:
        """Store several messages in one queue: all or none."""
        fields = header["extFields"]
        opaque = header["opaque"]
        if type(opaque) is not int:
            raise TypeError("opaque")
        if not isinstance(fields, dict):
            raise TypeError("extFields is not an object")
        queue = self._remembered.get((fields[_TOPIC], fields[_QUEUE_ID])) or self._find(
            fields, channel
        )
        if len(body) > self._max_body:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch of {len(body)} bytes is over the limit of {self._max_body} "
                f"(maxMessageSize)",
            )
        if queue.topic.startswith(RETRY_PREFIX):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {queue.topic}",
            )
        common = decode(fields.get(_PROPERTIES) or "")
        drop_brokers_own(common)
        sys_flag = int(fields[_SYS_FLAG])
        transaction = sys_flag & SysFlag.TRANSACTION_MASK
        if _DELAY in common or transaction not in (0, SysFlag.TRANSACTION_PREPARED):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "a batch may be neither delayed nor the end of transactions",
            )
        promptly = common.pop(PropertyKey.WAIT_STORE, "") == "false"
        # 5.x clients also give the batch an id (DefaultMQProducer.batch). It must not replace the
        # ids of the messages.
        common.pop(PropertyKey.UNIQUE_KEY, None)
        common[PropertyKey.CLUSTER] = self._settings.broker.broker_cluster_name
        try:
            origin = Origin(
                sys_flag=_checked(sys_flag & ~transaction),
                born_timestamp=int(fields[_BORN_TIMESTAMP]),
                born_host=born_host(fields, channel),
                reconsume_times=int(fields.get(_RECONSUME_TIMES) or 0),
            )
            if transaction:
                read = partial(messages_of, body, common=common, usual=self._usual)
                ids, first_offset = self._indirect.prepare_batch(queue, common, body, read, origin)
            else:
                messages = messages_of(body, queue.topic, common, self._usual)
                if not messages:
                    raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch without a message")
                physicals, first_offset = self._appender.append_batch(
                    queue, messages, **origin._asdict()
                )
                ids = join_ids(self._appender.store_host, physicals)
        except StoreRefused as refusal:
            self.refused += 1
            raise Refused(refusal.code, refusal.remark) from None
        flag = header["flag"]
        assert isinstance(flag, int)
        if flag & ONE_WAY:
            return
        reply = self._stored_batch.frame(ids, queue.queue_id, first_offset, opaque)
        self._appender.reply_when_stored(channel, reply, promptly)

    @serves(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    def send_command(self, command: Command, channel: Channel) -> None:
        """Store a message whose header has the first version, or RocketMQ's binary form."""
        header: dict[str, object] = {
            "opaque": command.opaque,
            "flag": command.flag,
            "extFields": read_send(command).encode(),
        }
        try:
            self.send(header, bytes(command.body), channel)
        except KeyError as error:
            raise RemoteProtocolError(f"the header lacks the field {error}") from None
        except (TypeError, ValueError, struct.error) as error:
            raise RemoteProtocolError(f"a field of the header is malformed: {error}") from None

    # rare steps -----------------------------------------------

    def _find(self, fields: Mapping[str, str], channel: Channel) -> ConsumeQueue:
        if self._accept_from and clock.time() * 1000 < self._accept_from:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "broker unable to service, until "
                + time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._accept_from / 1000)),
            )
        for name in _REQUIRED:
            if name not in fields:
                raise RemoteProtocolError(f"the header lacks the field {name}")
        return self._targets.find(
            fields[_TOPIC],
            fields[_QUEUE_ID],
            fields[_DEFAULT_TOPIC],
            int(fields[_DEFAULT_QUEUES]),
            fields.get(_UNIT_MODE) == "true",
            channel,
        )


def read_send(command: Command) -> SendMessageRequestHeaderV2:
    """The header of a send in its second version, whichever version was received.

    Fields of the other version are ignored.
    """
    if command.code != RequestCode.SEND_MESSAGE:
        return command.read_header(SendMessageRequestHeaderV2)
    header = command.read_header(SendMessageRequestHeader)
    return SendMessageRequestHeaderV2(
        **{declared.name: getattr(header, declared.name) for declared in header.FIELDS}
    )


def _field(properties: str) -> bytes:
    """Properties as a record holds them, length first. Raises Refused if they are too long."""
    raw = properties.encode()
    if len(raw) > MAX_LENGTH:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {len(raw)} bytes are over the limit of {MAX_LENGTH}",
        )
    return _SHORT.pack(len(raw)) + raw


def _checked(sys_flag: int, properties: str | None = None) -> int:
    """The system flag of a request as it is stored: this broker sets the address families of the
    hosts. Raises Refused for a message that would be stored and never delivered.
    """
    transaction = sys_flag & SysFlag.TRANSACTION_MASK
    if transaction == SysFlag.TRANSACTION_ROLLBACK or (
        transaction == SysFlag.TRANSACTION_PREPARED and f"{_PREPARED}\x01" not in (properties or "")
    ):
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the system flag {sys_flag} marks a message of a transaction, but the property "
            f"TRAN_MSG is missing",
        )
    return sys_flag & ~_HOST_FLAGS & 0x7FFFFFFF
