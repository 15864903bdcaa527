"""The offsets of the delay levels and the state of the timer, as slaves and tools request them."""

import contextlib

from mq.client.machine import files
from mq.daemons.broker.delayed import timer_checkpoint
from mq.daemons.broker.delayed.delay_levels import DelayedMessages
from mq.daemons.broker.store import MessageStore
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command


class TimerHandlers:
    """Reports the timer's state, whether or not the timer runs."""

    def __init__(self, store: MessageStore) -> None:
        config = store.root / "config"
        self._paths = [
            config / timer_checkpoint.INHERITED_NAME,
            config / timer_checkpoint.FILE_NAME,
        ]

    @serves(RequestCode.GET_TIMER_CHECK_POINT)
    def check_point(self, command: Command, channel: Channel) -> Command:
        """The timer's checkpoint file: seven i64, as TimerCheckpoint.encode writes them.

        While this broker takes over from another one, the other broker's checkpoint.
        """
        content = b""
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                content = content or files.read_bytes(path, timer_checkpoint.CONTENT_SIZE)
        if len(content) < timer_checkpoint.CONTENT_SIZE:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "The checkpoint is null: this broker has had no message for its timer",
            )
        return command.reply(body=content)


class DelayOffsetHandlers:
    """Serves offsets of delay levels."""

    def __init__(self, delayed: DelayedMessages) -> None:
        self._delayed = delayed

    @serves(RequestCode.GET_ALL_DELAY_OFFSET)
    def all_offsets(self, command: Command, channel: Channel) -> Command:
        """The offset of each delay level, which slaves keep, too."""
        return command.reply(body=self._delayed.answer())
