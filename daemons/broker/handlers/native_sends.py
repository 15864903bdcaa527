"""Plain sends as the native path takes them (docs/decisions/0047).

All that stand in one buffer are taken at once. Who waits for each reply sends one at a time, and a
call for it costs more than what is done in it: of those that come in one turn of the loop, each on
a connection of its own, the first opens the batch, and the others are taken together at its end.
"""

from collections.abc import Callable, Mapping
from typing import Any

from mq.daemons.broker.handlers.usual_properties import UNUSUAL
from mq.daemons.broker.native_failure import tell_failure
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.append import Appender
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.waiters import log_failure
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
# Requests that need not be looked at in vain: the codes of sends begin with a 1 or a 3.
_OTHERS = (_PULL, *(header_start(digit)[:-1] for digit in (2, 4, 5, 6, 7, 8, 9)))
# Sends that are taken together: there is always room for as many, and no need to hold more.
_MOST_ALONE = 64
_PREFIX = PREFIX.size
_LENGTH = layout.INT.size  # what a frame's length does not count
_read_length = layout.INT.unpack_from


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
        self._alone: dict[Channel, bytes] = {}  # sends of this turn that are still to be taken
        self._can_be = native is not None and len(appender.store_host) == IPV4_HOST
        self.on_end: Callable[[], None] = lambda: None
        appender.before_turn_ends.append(self.settle)

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
    def bulk(self) -> Bulk | None:
        """Takes plain sends from bytes that have come, from a position on, as `SendHandlers.send`
        does, and returns where another frame begins. None where there is no native path.
        """
        return self._take if self._path is not None else None

    def bulk_with(self, pulls: Bulk) -> Bulk:
        """The same with pulls, where these are served, too."""

        def take(data: bytes, position: int, channel: Channel) -> int:
            if channel not in self._alone and data.startswith(_PULL, position + _PREFIX):
                return pulls(data, position, channel)
            behind = self._take(data, position, channel)
            if data.startswith(_PULL, behind + _PREFIX):
                return pulls(data, behind, channel)
            return behind

        return take

    def defer(self, data: bytes, channel: Channel) -> bool:
        """Keep a send that has come alone until the end of this turn of the loop, but not behind
        anything else that comes on its connection; says whether it is kept."""
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
            if channel.ended:  # for what came before
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
        except failures:  # it has changed nothing: all of it is still to be served
            self._end(channel)
            return position
        if taken is None:
            return position
        behind, packed, replies, prompt_replies = taken
        appender = self._appender
        appender.append_packed(packed, place[-1])
        if replies:
            appender.reply_when_stored(channel, replies)
        if prompt_replies:
            appender.reply_when_stored(channel, prompt_replies, True)
        assert isinstance(behind, int)
        return behind

    def settle(self) -> None:
        """Take what has come alone now, and not at the end of this turn: each connection's in the
        order in which it came."""
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
        """Have Python serve one."""
        try:
            channel.serve_frame(data)
        except Exception:  # those of other connections are still to be taken
            log_failure("what came from %s cannot be served", channel.remote)
            channel.abort()  # as the loop does where it raises at once

    def _take_each(self, sends: list[tuple[bytes, bytes, Channel]], begin: int) -> int:
        """Take plain sends, each a frame of its own, up to the first that is none; returns how
        many."""
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
        """Leave sends to Python from now on: what the path failed at may come with each buffer."""
        self._can_be = False
        self._path = None
        tell_failure(f"what came from {channel.remote}", "sends")
        self.on_end()


def _is_alone(data: bytes, channel: Channel) -> bool:
    """Whether this is one whole frame, of a small send as most clients write it.

    None is put off of a connection that has closed: behind those that are told of that, a request
    that is no send after all would keep what nobody takes away any more.
    """
    return (
        len(data) < LARGE
        and not channel.closed
        and channel.dialect is Dialect.ORDINARY
        and data.startswith(_SENDS, _PREFIX)
        and _read_length(data)[0] + _LENGTH == len(data)
    )
