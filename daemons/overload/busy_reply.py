"""Overload protection: the reply SYSTEM_BUSY, made without decoding more than a request's number.

A send that has waited for too long is refused without being decoded: its sender has given it up or
soon will, and the time is better spent on later sends. Java does the same with requests in its
threads' queues (BrokerFastFailure).
"""

import orjson

from mq.protocol.codes import SENDS, RequestCode, ResponseCode
from mq.protocol.command import JSON, ONE_WAY, RESPONSE
from mq.protocol.command_reader import check_length
from mq.protocol.frame import HEADER_LENGTH, MAX_FRAME, PREFIX, header_start
from mq.protocol.reply_template import ReplyTemplate

WAIT_SETTING = "waitTimeMillsInSendQueue"

# Start of headers whose fields are in the usual order, as clients like Java's write them.
_COMMON_START = header_start(RequestCode.SEND_MESSAGE_V2)
_ANSWERED = b',"flag":0,'
_OPAQUE = b'"opaque":'
_MOST_DIGITS = 12  # digits of a request's number, which has 32 bits, plus one


class BusyReply:
    """The reply SYSTEM_BUSY with one remark, for any request."""

    def __init__(self, remark: str) -> None:
        template = ReplyTemplate(ResponseCode.SYSTEM_BUSY, remark=remark)
        start, self.end = template.around_opaque()
        size = len(start) + len(self.end)
        # The bytes before a request's number, by its number of digits.
        self.begins = [
            PREFIX.pack(size + digits + 4, size + digits) + start for digits in range(_MOST_DIGITS)
        ]

    def frame(self, opaque: bytes) -> bytes:
        """The whole frame; `opaque` is the number of the request, in digits."""
        return self.begins[len(opaque)] + opaque + self.end


def opaque_in(head: bytes) -> bytes | None:
    """The request number in the first bytes of a frame, in digits; None if it is not among them."""
    found = head.find(_OPAQUE, 8)
    if found < 0:
        return None
    digits = head[found + len(_OPAQUE) :].lstrip()
    opaque = digits[: len(digits) - len(digits.lstrip(b"-0123456789"))]
    return opaque if opaque.lstrip(b"-").isdigit() and len(opaque) < _MOST_DIGITS else None


def refuse_sends(data: bytes, reply: BusyReply) -> tuple[bytes, int, bytes]:
    """Refuse every send.

    Returns the replies, the number of sends, and the rest: other requests, and the start of an
    incomplete frame. Raises RemoteProtocolError for an invalid length of a frame.
    """
    # Refusing is the main work of an overloaded broker, so it must be very cheap.
    replies: list[bytes] = []
    others: list[bytes] = []
    begins, reply_end = reply.begins, reply.end
    refused = position = 0
    end = len(data)
    while end - position >= 8:
        length, word = PREFIX.unpack_from(data, position)
        if not 4 <= length <= MAX_FRAME:
            check_length(length)
        stop = position + 4 + length
        if stop > end:
            break
        start = position + 8
        body = start + (word & HEADER_LENGTH)
        opaque: bytes | None = b""
        # The flag and the number follow the fields, which are long.
        if data.startswith(_COMMON_START, start) and word >> 24 == JSON:
            at = data.rfind(_ANSWERED, start, body)
            if at >= 0:
                at = data.find(_OPAQUE, at, body) + len(_OPAQUE)
                opaque = data[at : data.find(b",", at, body)]
        if not opaque or not opaque.isdigit() or len(opaque) >= _MOST_DIGITS:
            opaque = _opaque_of_send(data, start, min(body, stop), word)
        if opaque is None:
            others.append(data[position:stop])
        else:
            refused += 1
            if opaque:
                replies += (begins[len(opaque)], opaque, reply_end)
        position = stop
    others.append(data[position:])
    return b"".join(replies), refused, b"".join(others)


def _opaque_of_send(data: bytes, start: int, body: int, word: int) -> bytes | None:
    """The number of a send; empty for a one-way send; None if the request is not a send."""
    if word >> 24 != JSON:
        return None
    try:
        header = orjson.loads(data[start:body])
        if header["code"] not in SENDS or header["flag"] & RESPONSE:
            return None
        opaque = b"%d" % header["opaque"]
        if len(opaque) >= _MOST_DIGITS:
            return None
        return b"" if header["flag"] & ONE_WAY else opaque
    except (ValueError, TypeError, KeyError):
        return None  # the full decoder reports the error
