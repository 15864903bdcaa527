"""Plain sends, stored by the native path (docs/decisions/0047).

All sends in one buffer are stored in one call. A producer that waits for each reply sends one
message at a time, and a native call costs more than the work in it. So of the sends that arrive in
one turn of the event loop, each on its own connection, the first opens the batch, and the others
are stored together at the end of the turn.
"""

from collections.abc import Callable, Mapping
from typing import Any

from mq.daemons.broker.native_failure import log_native_failure
from mq.daemons.broker.store import Appender, ConsumeQueue, layout, log_failure
from mq.daemons.broker.usual_properties import UNUSUAL
from mq.daemons.channel import Bulk, Channel
from mq.daemons.overload.backlog import LARGE
from mq.protocol.codes import Dialect, RequestCode
from mq.protocol.frame import MAX_FRAME, PREFIX, header_start
from mq.protocol.native import failures, native
from mq.protocol.record import IPV4_HOST
from mq.protocol.reply_template import ReplyTemplate

_PULL = header_start(RequestCode.PULL_MESSAGE)
_CODES = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE
_SENDS = tuple(map(header_start, _CODES))
# Requests that are not offered to the native path: the codes of sends start with 1 or 3.
_OTHERS = (_PULL, *(header_start(digit)[:-1] for digit in (2, 4, 5, 6, 7, 8, 9)))
# Limit of sends stored together: the batch always has room for them, and holding more gains
# nothing.
_MOST_ALONE = 64
_PREFIX = PREFIX.size
_LENGTH = layout.INT.size  # bytes of a frame that its length field does not count
_read_length = layout.INT.unpack_from


class NativeSends:
    """Stores plain sends from frames if the native path is available.

    ``remembered`` has the queues by topic and queue id as written in a header. ``on_end`` is called
    when the path has failed and is no longer used.
    """

    def __init__(
        self, appender: Appender, remembered: Mapping[tuple[str, str], ConsumeQueue]
    ) -> None:
        self._appender = appender
        self._remembered = remembered
        self._path: Any = None
        self._alone: dict[Channel, bytes] = {}  # deferred sends of this turn
        self._can_be = native is not None and len(appender.store_host) == IPV4_HOST
        self.on_end: Callable[[], None] = lambda: None
        appender.before_turn_ends.append(self.settle)

    def configure(
        self, max_body: int, added: str, reply: ReplyTemplate, batch_reply: ReplyTemplate
    ) -> None:
        """Apply the settings: the largest body, the property that each message gets, and the reply
        templates of a message and of a batch.
        """
        if self._can_be:
            pieces = (reply.pieces(), batch_reply.pieces())
            host = self._appender.store_host
            self._path = native.SendPath(max_body, MAX_FRAME, added, list(UNUSUAL), host, *pieces)

    @property
    def bulk(self) -> Bulk | None:
        """Stores plain sends from received bytes, starting at a position, like `SendHandlers.send`;
        returns the position of the first other frame. None if there is no native path.
        """
        return self._take if self._path is not None else None

    def bulk_with(self, pulls: Bulk) -> Bulk:
        """Like `bulk`, and passes pulls to ``pulls``."""

        def take(data: bytes, position: int, channel: Channel) -> int:
            if channel not in self._alone and data.startswith(_PULL, position + _PREFIX):
                return pulls(data, position, channel)
            following = self._take(data, position, channel)
            if data.startswith(_PULL, following + _PREFIX):
                return pulls(data, following, channel)
            return following

        return take

    def defer(self, data: bytes, channel: Channel) -> bool:
        """Defer a single send to the end of this turn of the event loop, but not past anything else
        that arrives on its connection. Returns whether it is deferred.
        """
        alone = self._alone
        if channel in alone or len(alone) == _MOST_ALONE or not self._appender.will_end_turn:
            return False
        if not _is_alone(data, channel):
            return False
        alone[channel] = data
        return True

    def _take(self, data: bytes, position: int, channel: Channel) -> int:
        if channel in self._alone or len(self._alone) == _MOST_ALONE:
            self.settle()
            if channel.ended:  # by a frame that came before
                return len(data)
            if channel.stalled:
                return position
        if data.startswith(_OTHERS, position + _PREFIX):
            return position
        place = None if self._path is None else self._appender.place()
        if place is None:
            return position
        try:
            relayed = channel.dialect is not Dialect.ORDINARY
            host = channel.born_host
            taken = self._path.take(data, position, self._remembered, host, relayed, *place)
        except failures:  # nothing has been stored: Python serves all of it
            self._end(channel)
            return position
        if taken is None:
            return position
        following, packed, replies, prompt_replies = taken
        appender = self._appender
        appender.append_packed(packed, place[-1])
        if replies:
            appender.reply_when_stored(channel, replies)
        if prompt_replies:
            appender.reply_when_stored(channel, prompt_replies, True)
        assert isinstance(following, int)
        return following

    def settle(self) -> None:
        """Store the deferred sends now instead of at the end of the turn, in order of arrival."""
        while self._alone:
            alone, self._alone = self._alone, {}
            sends = [(data, channel.born_host, channel) for channel, data in alone.items()]
            begin = 0
            while begin < len(sends):
                taken = self._take_each(sends, begin)
                if not taken:
                    data, _, channel = sends[begin]
                    self._leave(data, channel)
                begin += taken or 1

    def _leave(self, data: bytes, channel: Channel) -> None:
        """Have Python serve one frame."""
        try:
            channel.serve_frame(data)
        except Exception:  # the sends of other connections must still be stored
            log_failure("cannot serve a frame of %s", channel.remote)
            channel.abort()  # as the event loop does if serving raises directly

    def _take_each(self, sends: list[tuple[bytes, bytes, Channel]], begin: int) -> int:
        """Store plain sends, each a frame of its own, up to the first that is not a plain send;
        returns how many.
        """
        place = None if self._path is None else self._appender.place()
        if place is None:
            return 0
        try:
            taken = self._path.take_each(sends, begin, self._remembered, *place)
        except failures:
            self._end(sends[begin][-1])
            return 0
        if taken is None:
            return 0
        number, packed, replies, prompt_replies = taken
        self._appender.append_packed(packed, place[-1])
        self._appender.reply_all_when_stored(replies, prompt_replies)
        assert isinstance(number, int)
        return number

    def _end(self, channel: Channel) -> None:
        """Leave sends to Python from now on: the cause of the failure may come with each buffer."""
        self._can_be = False
        self._path = None
        log_native_failure(f"what came from {channel.remote}", "sends")
        self.on_end()


def _is_alone(data: bytes, channel: Channel) -> bool:
    """Whether the buffer is one whole frame of a small send, as most clients write it.

    No send of a closed connection is deferred: its close callbacks have run, so if the request
    turned out not to be a send, nothing would free what it keeps.
    """
    return (
        len(data) < LARGE
        and not channel.closed
        and channel.dialect is Dialect.ORDINARY
        and data.startswith(_SENDS, _PREFIX)
        and _read_length(data)[0] + _LENGTH == len(data)
    )
