"""Decodes and checks a broker's answer to a get, with its messages, in one pass.

A message is left out, and counted, if its checksum does not match its payload, or the payload is
too short for the attributes that its flag announces: it cannot be delivered, and the partition
continues after it, as in the original's clients.

For topics with a filter, messages of another type or of none are left out. (Brokers filter by a
hash, which other types may share. The C++ client keeps messages without a type, Java's does not.)
"""

import logging
from collections.abc import Collection
from itertools import repeat
from typing import Any, NamedTuple

from mq.client.tube.message import TubeMessage
from mq.protocol.native import failures, native
from mq.protocol.tube import payload
from mq.protocol.tube.codes import UNDEFINED
from mq.protocol.tube.errors import MalformedPayload
from mq.protocol.tube.messages import GetMessageResponseB2C, TransferedMessage, parse

log = logging.getLogger(__name__)


class GetAnswer(NamedTuple):
    """A broker's answer to a get. Missing numbers are UNDEFINED."""

    success: bool
    code: int
    text: str
    offset: int
    wait_ms: int
    escapes: bool
    lag: int
    is_slow: bool
    most: int
    messages: list[TubeMessage]
    size: int  # bytes of their bodies
    damaged: int  # damaged messages that were left out
    unwanted: int  # messages that the filter left out


def decode_get_answer(
    data: bytes, topic: str, wanted: Collection[bytes] | None = None, *, interpreted: bool = False
) -> GetAnswer:
    """Decode a GetMessageResponseB2C of a topic.

    `wanted` are the wanted message types, in UTF-8; None means all. `interpreted` disables the
    native path. Raises MalformedRpc if the answer cannot be decoded.
    """
    if native is not None and not interpreted:
        found = None
        try:
            found = native.read_tube_messages(data, topic, None if wanted is None else set(wanted))
        except failures:
            log.exception("the native path failed to decode an answer; using Python")
        if found is not None:
            fields, rows, (size, damaged, unwanted) = found
            # Creating a NamedTuple from a tuple; calling the class takes twice as long.
            messages: list[TubeMessage] = list(map(_new, repeat(TubeMessage), rows))
            return GetAnswer._make((*fields, messages, size, damaged, unwanted))
    return _interpreted(parse(GetMessageResponseB2C, data), topic, wanted)


_new: Any = tuple.__new__


def _interpreted(
    answer: GetMessageResponseB2C, topic: str, wanted: Collection[bytes] | None
) -> GetAnswer:
    messages: list[TubeMessage] = []
    size = damaged = unwanted = 0
    for given in answer.messages:
        try:
            message = _message(given, topic)
        except MalformedPayload:
            damaged += 1
            continue
        if wanted is not None and (message.message_type or "").encode() not in wanted:
            unwanted += 1
            continue
        messages.append(message)
        size += len(message.body)
    return GetAnswer(
        answer.success,
        answer.errCode,
        answer.errMsg,
        answer.currOffset if answer.HasField("currOffset") else UNDEFINED,
        answer.minLimitTime if answer.HasField("minLimitTime") else UNDEFINED,
        answer.escFlowCtrl,
        answer.currDataDlt if answer.HasField("currDataDlt") else UNDEFINED,
        answer.requireSlow,
        answer.maxOffset if answer.HasField("maxOffset") else UNDEFINED,
        messages,
        size,
        damaged,
        unwanted,
    )


def _message(given: TransferedMessage, topic: str) -> TubeMessage:
    if payload.checksum(given.payLoadData) != given.checkSum:
        raise MalformedPayload("the checksum is another")
    body, attributes = payload.decode(given.payLoadData, given.flag)
    return TubeMessage(topic, body, given.messageId, given.flag, attributes)
