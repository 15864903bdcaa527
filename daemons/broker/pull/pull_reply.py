"""The reply to a pull."""

from functools import lru_cache

from mq.daemons.broker.pull.message_finder import FOUND, MOVED, NOT_FOUND, RETRY
from mq.daemons.broker.store import ConsumeQueue
from mq.daemons.channel import Channel
from mq.protocol.codes import RequestCode
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.names import MASTER_ID
from mq.protocol.reply_template import ReplyTemplate

_REMARKS = {
    FOUND: "FOUND",
    NOT_FOUND: "OFFSET_OVERFLOW_ONE",
    RETRY: "NO_MATCHED_MESSAGE",
    MOVED: "OFFSET_MOVED",
}
_OFFSETS = ("nextBeginOffset", "minOffset", "maxOffset")


@lru_cache(maxsize=16)  # administrators choose the suggested ids and rarely change them
def replies(suggested: int) -> dict[int, ReplyTemplate]:
    """Reply templates that suggest this broker id for the next pull, by their codes."""
    fields = {"suggestWhichBrokerId": str(suggested)} | dict.fromkeys(_OFFSETS, "%d")
    return {code: ReplyTemplate(code, fields, remark) for code, remark in _REMARKS.items()}


REPLIES = replies(MASTER_ID)


def answer_pull(
    header: dict[str, object],
    channel: Channel,
    queue: ConsumeQueue,
    code: int,
    next_offset: int,
    slices: list[bytes | memoryview],
    size: int,
    suggested: int = MASTER_ID,
) -> None:
    """Send the records of a pull, about `size` bytes, or the reply for its code.

    ``suggested`` is the id of the broker for the next pull.
    """
    flag = header["flag"]
    assert isinstance(flag, int)
    if flag & ONE_WAY:
        return
    opaque = header["opaque"]
    if type(opaque) is not int:
        raise TypeError("opaque")
    template = (REPLIES if suggested == MASTER_ID else replies(suggested))[code]
    reply = template.frame(*(next_offset, queue.minimum, queue.readable, opaque), body_size=size)
    channel.send_parts([reply, *slices], size)


def request_of(header: dict[str, object]) -> Command:
    """The request with only the fields that an error reply needs."""
    opaque = header["opaque"]
    assert isinstance(opaque, int)
    return Command(RequestCode.PULL_MESSAGE, opaque=opaque)
