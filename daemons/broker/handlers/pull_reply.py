"""The reply to a pull."""

from functools import lru_cache

from mq.daemons.broker.reading.message_finder import FOUND, MOVED, NOT_FOUND, RETRY
from mq.daemons.broker.store.consume_queue import ConsumeQueue
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


@lru_cache(maxsize=16)  # administrators name the ids that groups are sent to, and hardly ever do
def replies(suggested: int) -> dict[int, ReplyTemplate]:
    """The replies that name the broker with this id for the next pull, by their codes."""
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
    """Send the records of a pull, about `size` bytes, or what there is instead of them.

    ``suggested`` is the id of the broker that the next pull is to go to.
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
    """The request as far as a refusal needs it."""
    opaque = header["opaque"]
    assert isinstance(opaque, int)
    return Command(RequestCode.PULL_MESSAGE, opaque=opaque)
