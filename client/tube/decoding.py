"""The answer of a broker to a get, and its messages, checked and taken apart in one pass.

A message is left out, and counted, if its checksum is not that of its payload, or the payload has
no room for the attributes that its flag promises: nobody can be given it, and the partition goes on
behind it, as with the original's clients.

Of topics with a filter a message is left out that is of another type, or of none. (Brokers filter
by a hash, which others may have. The C++ client keeps messages without a type, Java's does not.)
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
    """What a broker answered to a get. Numbers are UNDEFINED where it did not say them."""

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
    damaged: int  # messages left out because they are
    unwanted: int  # messages left out because the filter does not let them through


def decode_get_answer(
    data: bytes, topic: str, wanted: Collection[bytes] | None = None, *, interpreted: bool = False
) -> GetAnswer:
    """Read a GetMessageResponseB2C of a topic.

    `wanted` are the types of messages that are, in UTF-8; None for all. With `interpreted` Python
    does it all. Raises MalformedRpc if it cannot be read.
    """
    if native is not None and not interpreted:
        found = None
        try:
            found = native.read_tube_messages(data, topic, None if wanted is None else set(wanted))
        except failures:
            log.exception("the native path could not read an answer; Python reads it")
        if found is not None:
            fields, rows, (size, damaged, unwanted) = found
            # A tuple becomes a message where it is; calling the class costs twice as much.
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
