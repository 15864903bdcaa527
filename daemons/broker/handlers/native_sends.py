"""Plain sends as the native path takes them, for all of a buffer at once (docs/decisions/0047)."""

from collections.abc import Callable, Mapping
from typing import Any

from mq.daemons.broker.handlers.usual_properties import UNUSUAL
from mq.daemons.broker.native_failure import tell_failure
from mq.daemons.broker.store.append import Appender
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.channel import Channel
from mq.protocol.codes import Dialect, RequestCode
from mq.protocol.frame import MAX_FRAME, PREFIX, header_start
from mq.protocol.native import failures, native
from mq.protocol.record import IPV4_HOST
from mq.protocol.reply_template import ReplyTemplate

_PULL = header_start(RequestCode.PULL_MESSAGE)  # it need not be looked at in vain


class NativeSends:
    """What takes plain sends from frames, where the native path is there.

    ``remembered`` has the queues by topic and queue id as they stand in a header. ``on_end`` is
    called when the path has failed: it is not taken any more.
    """

    def __init__(
        self, appender: Appender, remembered: Mapping[tuple[str, str], ConsumeQueue]
    ) -> None:
        self._appender = appender
        self._remembered = remembered
        self._path: Any = None
        self._can_be = native is not None and len(appender.store_host) == IPV4_HOST
        self.on_end: Callable[[], None] = lambda: None

    def configure(
        self, max_body: int, added: str, reply: ReplyTemplate, batch_reply: ReplyTemplate
    ) -> None:
        """What the settings say: the largest body, the property that each message gets, and what
        is answered to a message and to a batch."""
        if self._can_be:
            pieces = (reply.pieces(), batch_reply.pieces())
            host = self._appender.store_host
            self._path = native.SendPath(max_body, MAX_FRAME, added, list(UNUSUAL), host, *pieces)

    @property
    def bulk(self) -> Callable[[bytes, int, Channel], int] | None:
        """Takes plain sends from bytes that have come, from a position on, as `SendHandlers.send`
        does, and returns where another frame begins. None where there is no native path."""
        return self._take if self._path is not None else None

    def _take(self, data: bytes, position: int, channel: Channel) -> int:
        if data.startswith(_PULL, position + PREFIX.size):
            return position
        appender = self._appender
        place = appender.place()
        if place is None or self._path is None:
            return position
        try:
            relayed = channel.dialect is not Dialect.ORDINARY
            host = channel.born_host
            taken = self._path.take(data, position, self._remembered, host, relayed, *place)
        except failures:  # it has changed nothing: all of it is still to be served
            self._end(channel)
            return position
        if taken is None:
            return position
        behind, packed, replies, prompt_replies = taken
        appender.append_packed(packed, place[-1])
        if replies:
            appender.reply_when_stored(channel, replies)
        if prompt_replies:
            appender.reply_when_stored(channel, prompt_replies, True)
        assert isinstance(behind, int)
        return behind

    def _end(self, channel: Channel) -> None:
        """Leave sends to Python from now on: what the path failed at may come with each buffer."""
        self._can_be = False
        self._path = None
        tell_failure(f"what came from {channel.remote}", "sends")
        self.on_end()
