"""What the timer has come to, as slaves and tools of 5.x ask for it."""

from mq.client.machine import files
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.timer.checkpoint import CONTENT_SIZE, FILE_NAME
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler, Refused
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command


def handlers(store: MessageStore) -> dict[int, Handler]:
    """The table of this subject."""
    path = store.root / "config" / FILE_NAME

    def check_point(command: Command, channel: Channel) -> Command:
        """The timer's checkpoint file: seven i64, as TimerCheckpoint.encode writes them."""
        try:
            content = files.read_bytes(path, CONTENT_SIZE)
        except FileNotFoundError:
            content = b""
        if len(content) < CONTENT_SIZE:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "The checkpoint is null: this broker has had no message for its timer",
            )
        return command.reply(body=content)

    return {RequestCode.GET_TIMER_CHECK_POINT: check_point}
