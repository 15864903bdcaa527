"""Sends of producers (method 13)."""

import logging
import struct
from zlib import crc32

from mq.client.machine import clock
from mq.daemons.tube.broker.access import RequestError, refuse_later
from mq.daemons.tube.broker.serving import Serving, client_id
from mq.daemons.tube.broker.store.errors import FAILED, OVERFLOW, Refused
from mq.daemons.tube.broker.store.topic_store import Done, MessageIds
from mq.daemons.tube.rpc import Call
from mq.protocol.native import native
from mq.protocol.tube.codes import Code
from mq.protocol.tube.frame import TOKEN
from mq.protocol.tube.messages import SendMessageRequestP2B, SendMessageResponseB2P, parse
from mq.protocol.tube.names import OFFSET_HISTORY_TOPIC
from mq.protocol.tube.payload import NO_KEY, key_code
from mq.protocol.tube.rpc import RESPONSE_HEADERS, varint

log = logging.getLogger(__name__)

_FRAME = struct.Struct(">IIII")  # token, serial, one chunk, its length
_FRONT = len(RESPONSE_HEADERS) + 5  # size of an answer's payload before its message
_CRC_MASK = 0x7FFF_FFFF
_UNCHECKED = -1  # the checksum field of a producer without checksums

#: A send: client id, topic, partition, payload, its checksum, the checksum field, the address of
#: the sender, the key code of the type, flag; visit token, and that of authentication.
Sent = tuple[str, str, int, bytes, int, int, int, int, int, tuple[int, str]]


class Sends:
    """Answers sends; the order of checks is that of BrokerServiceServer.sendMessageP2B."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._ids = MessageIds()
        self._successes = Successes()
        self.refused: dict[int, int] = {}  # by code
        self.taken = 0
        self._failure: Refused | None = None

    def handle(self, call: Call) -> None:
        """Store a message; the answer is sent when it is as durable as the flush mode promises.

        Raises MalformedRpc.
        """

        frame = self._successes.frame

        def done(refused: Refused | None, message_id: int, now: int, at_index: int) -> None:
            if refused is None:
                self.taken += 1
                call.answer_frame(frame(call.request.serial, message_id, now, at_index))
                return
            if refused.code in (OVERFLOW, FAILED) and refused is not self._failure:
                self._failure = refused  # of all messages of a write, which counts once
                self._serving.writes.failed()
            self._refuse(call, refused.code, str(refused))

        try:
            self._take(read_send(call.request.body), done)
        except RequestError as denied:
            self.refused[denied.code] = self.refused.get(denied.code, 0) + 1
            answer = refusal(denied.code, str(denied))
            if (soon := refuse_later(call, denied, answer)) is not None:
                call.answer(soon)
        except Refused as refused:
            self._refuse(call, refused.code, str(refused))

    def _take(self, sent: Sent, done: Done) -> None:
        """Raises Denied and Refused."""
        client, name, partition, payload, checksum, said, address, code, flag, tokens = sent
        serving = self._serving
        if not serving.is_started or serving.writes.is_stopped:
            raise RequestError(
                Code.SERVICE_UNAVAILABLE, "Write StoreService temporary unavailable!"
            )
        serving.access.check_tokens(*tokens, produces=True)
        client_id(client)
        if name == OFFSET_HISTORY_TOPIC:
            raise RequestError(
                Code.FORBIDDEN,
                f"topicName {OFFSET_HISTORY_TOPIC} does not allow producers to send data!",
            )
        topic, store = serving.need_partition(name, partition)
        if not payload:
            raise RequestError(Code.BAD_REQUEST, "data length is zero!")
        if len(payload) > topic.max_size:
            raise RequestError(
                Code.BAD_REQUEST,
                f"data length over max length, allowed max length is {topic.max_size}, "
                f"data length is {len(payload)}",
            )
        if said != checksum and said != _UNCHECKED:
            raise RequestError(
                Code.FORBIDDEN,
                f"Checksum msg data failure: {said} of {topic.name} not equal to the "
                f"data's checksum of {checksum}",
            )
        now = clock.milliseconds()
        message_id = self._ids.next(now)
        store.append(partition, payload, checksum, address, code, flag, message_id, now, done)

    def _refuse(self, call: Call, code: int, text: str) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1
        call.answer(refusal(code, text))


def refusal(code: int, text: str) -> SendMessageResponseB2P:
    """Return the answer to a refused message."""
    return SendMessageResponseB2P(success=False, errCode=code, errMsg=text)


def read_send(body: bytes) -> Sent:
    """Decode a request, natively if it has the usual form. Raises MalformedRpc."""
    sent: Sent | None = None if native is None else native.read_send(body)
    return sent or read_in_python(body)


def read_in_python(body: bytes) -> Sent:
    """Decode the same with protobuf. Raises MalformedRpc."""
    message = parse(SendMessageRequestP2B, body)
    kind = message.msgType.strip()
    info = message.authInfo
    return (
        *(message.clientId, message.topicName, message.partitionId, message.data),
        *(crc32(message.data) & _CRC_MASK, message.checkSum, message.sentAddr),
        *(key_code(kind) if kind else NO_KEY, message.flag),
        (info.visitAuthorizedToken, info.authAuthorizedToken),
    )


class Successes:
    """The frames for successful sends.

    There is one for each message, so it is built from pieces; those with the time are the same for
    a millisecond. The tests compare it with protobuf's.
    """

    _LOW = 21  # bits of an id that are written as three bytes here

    def __init__(self) -> None:
        self._high = -1
        self._high_bytes = b""
        self._now = -1
        self._now_bytes = b""

    def frame(self, serial: int, message_id: int, now: int, at_index: int) -> bytes:
        """Return the whole answer to a send."""
        high = message_id >> self._LOW
        if high != self._high:
            self._high, self._high_bytes = high, varint(high)
        if now != self._now:
            self._now, self._now_bytes = now, varint(now)
        text = b"%d" % message_id
        body = b"\x08\x01\x10\xc8\x01\x1a%c%b\x20\x00\x28%c%c%c%b\x30%b\x38%b" % (
            len(text),
            text,
            message_id & 127 | 128,
            message_id >> 7 & 127 | 128,
            message_id >> 14 & 127 | 128,
            self._high_bytes,
            self._now_bytes,
            varint(at_index),
        )
        size = len(body)  # under 80
        return b"%b%b%c\x08\x0d\x12%c%b" % (
            _FRAME.pack(TOKEN, serial, 1, _FRONT + size),
            RESPONSE_HEADERS,
            size + 4,
            size,
            body,
        )
