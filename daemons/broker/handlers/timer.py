"""What the timer has come to, as slaves and tools of 5.x ask for it."""

from mq.client.machine import files
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.timer.checkpoint import CONTENT_SIZE, FILE_NAME
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.serving import serves
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command


class TimerHandlers:
    """Tells of the timer, whether or not it runs."""

    def __init__(self, store: MessageStore) -> None:
        self._path = store.root / "config" / FILE_NAME

    @serves(RequestCode.GET_TIMER_CHECK_POINT)
    def check_point(self, command: Command, channel: Channel) -> Command:
        """The timer's checkpoint file: seven i64, as TimerCheckpoint.encode writes them."""
        try:
            content = files.read_bytes(self._path, CONTENT_SIZE)
        except FileNotFoundError:
            content = b""
        if len(content) < CONTENT_SIZE:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "The checkpoint is null: this broker has had no message for its timer",
            )
        return command.reply(body=content)
