"""A trace of a sent message, as the Java client writes it (TraceDataEncoder, AsyncTraceDispatcher).

A trace is a message of the trace topic whose keys are the id and the keys of the traced one.
"""

from typing import TYPE_CHECKING

from mq.protocol.message import Message
from mq.protocol.message_id import decode_offset_id
from mq.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from mq.client.producer import Producer, SendResult

_CONTENT = "\x01"  # between the contents of an entry
_ENTRY = "\x02"  # after an entry
_NORMAL_MESSAGE = 0  # MessageType.Normal_Msg


async def send_trace(
    producer: "Producer", message: Message, result: "SendResult", began: float, ended: float
) -> None:
    """Write the trace of `message`; `began` and `ended` are in seconds since the epoch."""
    place = decode_offset_id(result.offset_message_id)
    keys = " ".join(message.keys)
    contents = (
        "Pub",
        str(int(began * 1000)),
        "DefaultRegion",
        producer.group,
        message.topic,
        result.message_id,
        message.tags or "",
        keys,
        f"{place.host}:{place.port}",
        str(len(message.body)),
        str(int((ended - began) * 1000)),
        str(_NORMAL_MESSAGE),
        result.offset_message_id,
        "true",
    )
    body = _CONTENT.join(contents) + _ENTRY
    trace = Message(TRACE_TOPIC, body.encode(), keys=(result.message_id, *message.keys))
    await producer.send(trace)
