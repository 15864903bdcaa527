"""What a listener does when more comes than it can take: refuse early, in few words, and cheaply.

What was read and cannot be served in this turn of the loop waits here, so that one busy connection
does not hold up the others. A connection that has its share waiting is not read from: refusing
costs nearly as much as serving, so the best that can be done with more than can be served is to
leave it with its sender. TCP tells that one to wait; who sends little is read all the while.

A send that has waited for too long all the same is refused before it is looked at: its sender has
given it up or soon will, and the time is better spent on those behind it. Java does the same with
requests in the queues of its threads (BrokerFastFailure).
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Set
from time import perf_counter
from typing import TYPE_CHECKING, cast

import orjson

from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import JSON, ONE_WAY, RESPONSE
from mq.protocol.connection import check_length
from mq.protocol.frame import HEADER_LENGTH, MAX_FRAME, PREFIX
from mq.protocol.reply_template import ReplyTemplate

if TYPE_CHECKING:
    from mq.daemons.channel import Channel

LARGE = 8192  # bytes; a smaller read is served at once where nothing waits
TURN_BYTES = 256 * 1024  # served in one turn of the loop, of large reads
# And no piece more after so many seconds: of requests that are small and cost much, such as pulls,
# these bytes keep the loop for longer than others should wait.
_TURN_SECONDS = 0.004
MOST_WAITING = 64 * 1024 * 1024  # bytes; more are left to TCP, whoever sends them
# What waits is kept below what is served in this part of the longest wait, so that hardly any of it
# is ever refused, but may be so many bytes; and so many where sends may wait for any time.
_OF_LONGEST_WAIT = 0.25
_LEAST_TARGET = 2 * 1024 * 1024
_TARGET_WITHOUT_LIMIT = 8 * 1024 * 1024
_RATE_WEIGHT = 0.1  # of the latest turn, in the bytes that are served a second
_STALE_COST = 8  # refusing takes so many times less than serving
WAIT_SETTING = "waitTimeMillsInSendQueue"
CONNECTIONS_SETTING = "maxConnections"
# How long a connection that is one too many may take to say what it wants, in seconds, and how
# many of those there may be; more are closed without a word.
TURN_AWAY_SECONDS = 1.0
MOST_TURNED_AWAY = 100

_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
# How headers of clients begin that write their fields in order, as Java's do.
_COMMON_START = b'{"code":%d,' % RequestCode.SEND_MESSAGE_V2
_ANSWERED = b',"flag":0,'
_OPAQUE = b'"opaque":'
_MOST_DIGITS = 12  # of a request's number, which has 32 bits, and one


class BusyReply:
    """The reply SYSTEM_BUSY with one remark, for any request."""

    def __init__(self, remark: str) -> None:
        template = ReplyTemplate(ResponseCode.SYSTEM_BUSY, remark=remark)
        start, self.end = template.around_opaque()
        size = len(start) + len(self.end)
        # What stands before a request's number, by its digits.
        self.begins = [
            PREFIX.pack(size + digits + 4, size + digits) + start for digits in range(_MOST_DIGITS)
        ]

    def frame(self, opaque: bytes) -> bytes:
        """The whole frame; `opaque` is the number of the request, in digits."""
        return self.begins[len(opaque)] + opaque + self.end


def opaque_in(head: bytes) -> bytes | None:
    """The number of the request that these first bytes of a frame begin, in digits, if it is among
    them."""
    found = head.find(_OPAQUE, 8)
    if found < 0:
        return None
    digits = head[found + len(_OPAQUE) :].lstrip()
    opaque = digits[: len(digits) - len(digits.lstrip(b"-0123456789"))]
    return opaque if opaque.lstrip(b"-").isdigit() and len(opaque) < _MOST_DIGITS else None


def refuse_sends(data: bytes, reply: BusyReply) -> tuple[bytes, int, bytes]:
    """Refuse every send.

    Returns the replies, how many sends there were, and the rest: other requests, and the beginning
    of a frame that has not come whole. Raises RemoteProtocolError for a length that no frame has.
    """
    # Refusing is what an overloaded broker does most: it must cost next to nothing.
    replies: list[bytes] = []
    others: list[bytes] = []
    begins, reply_end = reply.begins, reply.end
    refused = position = 0
    end = len(data)
    while end - position >= 8:
        length, word = PREFIX.unpack_from(data, position)
        if not 4 <= length <= MAX_FRAME:
            check_length(length)
        stop = position + 4 + length
        if stop > end:
            break
        start = position + 8
        body = start + (word & HEADER_LENGTH)
        opaque: bytes | None = b""
        # The flag and the number stand behind the fields, which are long.
        if data.startswith(_COMMON_START, start) and word >> 24 == JSON:
            at = data.rfind(_ANSWERED, start, body)
            if at >= 0:
                at = data.find(_OPAQUE, at, body) + len(_OPAQUE)
                opaque = data[at : data.find(b",", at, body)]
        if not opaque or not opaque.isdigit() or len(opaque) >= _MOST_DIGITS:
            opaque = _opaque_of_send(data, start, min(body, stop), word)
        if opaque is None:
            others.append(data[position:stop])
        else:
            refused += 1
            if opaque:
                replies += (begins[len(opaque)], opaque, reply_end)
        position = stop
    others.append(data[position:])
    return b"".join(replies), refused, b"".join(others)


def _opaque_of_send(data: bytes, start: int, body: int, word: int) -> bytes | None:
    """The number of a request that is a send; empty for a one-way one; None if it is no send."""
    if word >> 24 != JSON:
        return None
    try:
        header = orjson.loads(data[start:body])
        if header["code"] not in _SENDS or header["flag"] & RESPONSE:
            return None
        opaque = b"%d" % header["opaque"]
        if len(opaque) >= _MOST_DIGITS:
            return None
        return b"" if header["flag"] & ONE_WAY else opaque
    except (ValueError, TypeError, KeyError):
        return None  # whoever reads it with care says what is wrong


class Backlog:
    """What a listener has read from its connections and not served yet.

    ``longest_wait`` gives the seconds after which a send in it is refused; 0 never does.
    ``channels`` are all connections: while it is ``full`` none of them is read from.
    """

    def __init__(
        self,
        longest_wait: Callable[[], float],
        channels: Set["Channel"],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channels = channels
        self._longest_wait = longest_wait
        self._clock = clock
        self._waiting: dict[Channel, deque[tuple[bytes, float]]] = {}
        self._held: set[Channel] = set()
        self._bytes: dict[Channel, int] = {}  # that wait of each
        self._paused: set[Channel] = set()  # those with their share waiting
        self._left = TURN_BYTES
        self._scheduled = False
        self._rate = 0.0  # bytes a second
        self._turned = 0.0  # when the last turn of a busy stretch ended; 0 before the first
        self.size = 0  # bytes that wait
        self.full = False

    def keeps(self, channel: "Channel", data: bytes) -> bool:
        """Whether what a connection has got is kept for later; else it is to be served now."""
        pieces = self._waiting.get(channel)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)
        if pieces is None:
            if self._left > 0:
                self._left -= len(data)
                return False
            pieces = self._waiting[channel] = deque()
            channel.waits = True
        pieces.append((data, self._clock()))
        self.size += len(data)
        waiting = self._bytes[channel] = self._bytes.get(channel, 0) + len(data)
        if waiting > self._share():
            self._paused.add(channel)
            channel.hold_reading(True)
        if self.size > MOST_WAITING and not self.full:
            self.full = True
            for each in self._channels:
                self.hold(each)
        return True

    def hold(self, channel: "Channel") -> None:
        """Read no more from a connection until there is room again."""
        self._held.add(channel)
        channel.hold_reading(True)

    def rest(self, channel: "Channel") -> list[bytes]:
        """What waits of a connection that closes; it waits no more."""
        pieces = self._waiting.pop(channel, ())
        self._bytes.pop(channel, None)
        self._held.discard(channel)
        self._paused.discard(channel)
        channel.waits = False
        self.size -= sum(len(data) for data, _ in pieces)
        return [data for data, _ in pieces]

    def _share(self) -> int:
        """Bytes of one connection that may wait."""
        limit = self._longest_wait()
        target = self._rate * limit * _OF_LONGEST_WAIT if limit else _TARGET_WITHOUT_LIMIT
        target = min(max(target, _LEAST_TARGET), MOST_WAITING)
        return int(target) // max(1, len(self._waiting))

    def _measure(self, served: int) -> None:
        """Note how fast it goes, over turns that follow each other without a rest."""
        now = self._clock()
        if served > 0 and now > self._turned > 0.0:
            rate = served / (now - self._turned)
            self._rate += (rate - self._rate) * (_RATE_WEIGHT if self._rate else 1.0)
        self._turned = now if self._waiting else 0.0

    def _turn(self) -> None:
        """Serve what waits, a piece of each connection in turn, until enough is done."""
        self._scheduled = False
        self._left = TURN_BYTES
        limit = self._longest_wait()
        oldest = self._clock() - limit if limit else float("-inf")
        before = self.size
        until = perf_counter() + _TURN_SECONDS
        try:
            while self._waiting and self._left > 0 and perf_counter() < until:
                self._serve_next(oldest)
            if self._waiting:
                self._left = 0  # what is read in this turn waits behind it
        finally:
            self._measure(before - self.size)
            if self._waiting and not self._scheduled:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._turn)
        if self.full and self.size < MOST_WAITING // 2:
            self.full = False
            held, self._held = self._held - self._paused, set()
            for channel in held:
                channel.hold_reading(False)

    def _serve_next(self, oldest: float) -> None:
        channel, pieces = next(iter(self._waiting.items()))
        del self._waiting[channel]
        data, came = pieces.popleft()
        self.size -= len(data)
        self._bytes[channel] -= len(data)
        if pieces:
            self._waiting[channel] = pieces  # behind the others
        else:
            del self._bytes[channel]
            channel.waits = False
        if channel in self._paused and not pieces:
            self._paused.discard(channel)
            if not self.full:
                channel.hold_reading(False)
            else:
                self._held.add(channel)
        if came < oldest:
            self._left -= len(data) // _STALE_COST
            channel.read(data, stale=True)
        else:
            self._left -= len(data)
            channel.read(data)


class TurnedAway(asyncio.Protocol):
    """A connection over the limit: its first request is answered SYSTEM_BUSY, then it is closed."""

    waiting = 0  # of all listeners of this process

    def __init__(self, limit: int) -> None:
        self._reply = BusyReply(
            f"[OVERLOAD]the broker has {limit} connections, which is the limit "
            f"({CONNECTIONS_SETTING}); try again later"
        )
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not instances of it
        TurnedAway.waiting += 1
        if TurnedAway.waiting > MOST_TURNED_AWAY:
            transport.close()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(TURN_AWAY_SECONDS, transport.close)

    def connection_lost(self, error: Exception | None) -> None:
        TurnedAway.waiting -= 1
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        opaque = opaque_in(self._data[:4096])
        if opaque is not None:
            self._transport.write(self._reply.frame(opaque))
            self._transport.close()
            return
        if len(self._data) > 4096:
            self._transport.close()
