"""The reply to a pull."""

from mq.daemons.broker.message_finder import FOUND, MOVED, NOT_FOUND, RETRY
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.channel import Channel
from mq.protocol.codes import RequestCode
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.reply_template import ReplyTemplate

_REMARKS = {
    FOUND: "FOUND",
    NOT_FOUND: "OFFSET_OVERFLOW_ONE",
    RETRY: "NO_MATCHED_MESSAGE",
    MOVED: "OFFSET_MOVED",
}
_NEXT = {"suggestWhichBrokerId": "0"} | dict.fromkeys(
    ("nextBeginOffset", "minOffset", "maxOffset"), "%d"
)
REPLIES = {code: ReplyTemplate(code, _NEXT, remark) for code, remark in _REMARKS.items()}


def answer_pull(
    header: dict[str, object],
    channel: Channel,
    queue: ConsumeQueue,
    code: int,
    next_offset: int,
    slices: list[bytes | memoryview],
    size: int,
) -> None:
    """Send the records of a pull, about `size` bytes, or what there is instead of them."""
    flag = header["flag"]
    assert isinstance(flag, int)
    if flag & ONE_WAY:
        return
    opaque = header["opaque"]
    if type(opaque) is not int:
        raise TypeError("opaque")
    reply = REPLIES[code].frame(
        *(next_offset, queue.minimum, queue.readable, opaque), body_size=size
    )
    channel.send_parts([reply, *slices], size)


def request_of(header: dict[str, object]) -> Command:
    """The request as far as a refusal needs it."""
    opaque = header["opaque"]
    assert isinstance(opaque, int)
    return Command(RequestCode.PULL_MESSAGE, opaque=opaque)
