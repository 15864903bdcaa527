"""The answer to a get: a frame with the messages, built natively if possible.

The messages are most of it, and are copied once, from the read data into the frame. The Python
version builds the same frame with protobuf's messages.
"""

from collections.abc import Set

from mq.daemons.tube.broker.store.layout import HEAD, HEAD_SIZE, PREFIX, TOKEN
from mq.protocol.native import native
from mq.protocol.tube.codes import Code, Method
from mq.protocol.tube.messages import GetMessageResponseB2C, TransferedMessage
from mq.protocol.tube.rpc import RESPONSE_HEADERS, encode_response

_BEFORE = GetMessageResponseB2C(
    success=True, errCode=Code.SUCCESS, errMsg="OK!"
).SerializeToString()
_LONG = (1 << 64) - 1


# The wanted records: of a partition, with these codes (None: any). None: all records.
Wanted = tuple[int, Set[int] | None] | None


class BadRecords(Exception):
    """The read data contains an invalid record."""


def answer(
    serial: int,
    runs: list[bytes],
    offset: int,
    lag: int,
    slow: bool,
    most: int,
    wanted: Wanted = None,
) -> tuple[bytes, int]:
    """Return the frame and its number of messages.

    ``runs`` are spans of records; ``offset`` is the start of the get in the index, ``lag`` the size
    of the data after the read part, ``most`` the end of the index. Raises BadRecords.
    """
    if native is None:
        return answer_in_python(serial, runs, offset, lag, slow, most, wanted)
    made: tuple[bytes, int] | None = native.tube_answer(
        runs, wanted, serial, RESPONSE_HEADERS, Method.GET_MESSAGES_C2B, _BEFORE,
        trailer(offset, lag, slow, most),
    )  # fmt: skip
    if made is None:
        raise BadRecords
    return made


def answer_in_python(
    serial: int,
    runs: list[bytes],
    offset: int,
    lag: int,
    slow: bool,
    most: int,
    wanted: Wanted = None,
) -> tuple[bytes, int]:
    """Return the same in Python. Raises BadRecords."""
    messages = [message for run in runs for message in messages_of(run, wanted)]
    body = GetMessageResponseB2C(
        success=True,
        errCode=Code.SUCCESS,
        errMsg="OK!",
        messages=messages,
        currOffset=offset,
        minLimitTime=0,
        escFlowCtrl=False,
        currDataDlt=lag,
        requireSlow=slow,
        maxOffset=most,
    ).SerializeToString()
    try:
        return encode_response(serial, Method.GET_MESSAGES_C2B, body), len(messages)
    except ValueError:
        raise BadRecords from None


def messages_of(run: bytes, wanted: Wanted = None) -> list[TransferedMessage]:
    """Return the messages of wanted records of a span. Raises BadRecords."""
    found = []
    at = 0
    while at < len(run):
        if len(run) - at < HEAD_SIZE:
            raise BadRecords
        length, token, checksum, of, _, _, _, code, message_id, flag = HEAD.unpack_from(run, at)
        end = at + length + 4
        if token != TOKEN or length <= PREFIX or end > len(run):
            raise BadRecords
        payload = run[at + HEAD_SIZE : end]
        at = end
        if wanted is not None and (
            of != wanted[0] or (wanted[1] is not None and code not in wanted[1])
        ):
            continue
        if flag & 1 and (
            len(payload) < 4 or int.from_bytes(payload[:4], "big", signed=True) > len(payload) - 4
        ):
            raise BadRecords  # missing attributes: no client could read it
        found.append(
            TransferedMessage(
                messageId=message_id, checkSum=checksum, payLoadData=payload, flag=flag
            )
        )
    return found


def trailer(offset: int, lag: int, slow: bool, most: int) -> bytes:
    """Return the part of the answer after its messages: fields 5 to 10."""
    return b"\x28%b\x30\x00\x38\x00\x40%b\x48%b\x50%b" % (
        _varint(offset),
        _varint(lag),
        b"\x01" if slow else b"\x00",
        _varint(most),
    )


def _varint(number: int) -> bytes:
    number &= _LONG
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
