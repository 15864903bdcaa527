"""The native path through a snode: plain sends and their replies, a buffer at a time.

Requests that a client has sent together are written to their enode together, with other opaques and
the fields `o` and `p`, and replies that the enode has sent together are returned to each client
together; Python does not decode the messages (docs/decisions/0047). It is used as long as nothing
must see the sends: no access control, no interceptor, no limit of flow control, no pushes. All
other requests, and those that the native path does not support, are forwarded by `Forwarding`.

A `RelayPeer` is the connection to an enode. It has a `Relay`, which knows the requests on the
native path; those without a reply in time, or whose connection ends, are refused as by
`Forwarding`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Unpack, cast

from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout
from mq.client.machine.clock import perf_counter
from mq.client.options import ClientKeywords
from mq.client.transport.in_flight import SILENCE_SECONDS
from mq.client.transport.peer import Owner, Peer
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import error_reply
from mq.daemons.snode.enodes import MAIN, Enodes, unavailable
from mq.daemons.snode.forwarding import Forwarding
from mq.daemons.snode.topic_sizes import TopicSizes
from mq.protocol.codes import RequestCode
from mq.protocol.command import RESPONSE, Command
from mq.protocol.command_reader import FrameBuffer, check_length
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import INT, MAX_FRAME, PREFIX, decode, header_start
from mq.protocol.native import failures, native

log = logging.getLogger(__name__)

# Checks for requests without a reply, per timeout.
_CHECKS = 8
# Limit of pushed topics that are compared; with more, all sends are left to Python.
_MOST_PUSHED = 64
# Attributes of a channel: the number that identifies its requests, and the fields added to them.
_NUMBER, _ADDED = "relay number", "relay fields"
_PULL = header_start(RequestCode.PULL_MESSAGE)  # not offered to the native path


class Relays:
    """The data shared by the relays of all connections: channels and counters."""

    def __init__(self, timeout: float) -> None:
        """`timeout` in seconds, of each request."""
        self.timeout = timeout
        self.forwarding: Forwarding
        self.sizes: TopicSizes
        self._channels: dict[int, Channel] = {}
        self._last = 0

    def number_of(self, channel: Channel) -> int:
        """The number that identifies the requests of a channel."""
        number = channel.attributes.get(_NUMBER)
        if number is None:
            self._last = number = (self._last + 1) & 0x7FFF_FFFF
            channel.attributes[_NUMBER] = number
            self._channels[number] = channel
            channel.on_close.append(self._forget)
        return cast(int, number)

    def _forget(self, channel: Channel) -> None:
        self._channels.pop(channel.attributes[_NUMBER], None)

    def channel(self, number: int) -> Channel | None:
        """The channel with that number; None if it has closed."""
        return self._channels.get(number)

    def refuse(self, settled: tuple[int, int, int, int], enode: str, error: MQError) -> None:
        """Refuse a request of a client."""
        number, opaque, code, pending_bytes = settled
        self.forwarding.relay_failed(code)
        channel = self.channel(number)
        if channel is None:
            return
        channel.reserve(-pending_bytes)
        channel.send(error_reply(Command(code, {}, opaque=opaque), unavailable(enode, error)))


class RelayPeer(Peer):
    """A connection to an enode with clients' requests that Python has not decoded."""

    def __init__(
        self, session: Owner, address: str, loop: asyncio.AbstractEventLoop, relays: Relays
    ) -> None:
        self._relays = relays
        self._relay: Any = native.Relay(MAX_FRAME)
        self._frames = FrameBuffer()
        self._check: asyncio.TimerHandle | None = None
        super().__init__(session, address, loop)

    def relay(
        self,
        data: bytes,
        position: int,
        channel: Channel,
        enode: str,
        added: bytes,
        alone: str | None,
        pushed: frozenset[str],
    ) -> int:
        """Relay the plain sends to an enode from a position on, except those to pushed topics;
        returns the position of the first other frame.
        """
        number = self._relays.number_of(channel)
        now = perf_counter()
        taken = self._relay.take(data, position, number, added, enode, now, alone, list(pushed))
        if taken is None:
            return position
        following, frames, _, count, pending_bytes = taken
        channel.reserve(pending_bytes)
        self._relays.forwarding.relay_began(count)
        self._batch.append(frames)
        self._write_soon()
        if self._check is None:
            self._check = self._loop.call_later(self._relays.timeout / _CHECKS, self._check_late)
        return cast(int, following)

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self.spoke = True
        frames = self._frames
        try:
            if frames.pieces:
                data = frames.take(data)
                if not data:
                    return
            position, end = 0, len(data)
            while self.error is None:
                position = self._relay_answers(data, position)
                if end - position < INT.size:
                    break
                (length,) = INT.unpack_from(data, position)
                check_length(length)
                if position + INT.size + length > end:
                    break
                self._take(decode(data[position + INT.size : position + INT.size + length]))
                position += INT.size + length
            frames.keep(data, position)
        except RemoteProtocolError as error:
            self._end(BadAnswer(self.address, str(error)))

    def _relay_answers(self, data: bytes, position: int) -> int:
        following, answered, sizes = self._relay.answers(data, position)
        relays = self._relays
        for number, frames, count, pending_bytes, began in answered:
            relays.forwarding.relay_answered(count, perf_counter() - began)
            channel = relays.channel(number)
            if channel is not None and not channel.closed:
                channel.reserve(-pending_bytes)
                channel.send_frame(frames)
        for topic, size, count in sizes:
            relays.sizes.sent(topic, size, count)
        return cast(int, following)

    def _take(self, command: Command) -> None:
        """Process a frame that is not a reply to a relayed request, or that Python must decode."""
        if not command.flag & RESPONSE:
            self._session.serve(command, self)
            return
        pending = self._pending.pop(command.opaque, None)
        if pending is not None:
            if not pending.future.done():
                self._complete(pending, command)
            return
        settled = self._relay.settle(command.opaque) if -(1 << 31) <= command.opaque < 0 else None
        if settled is not None:
            number, opaque, _, pending_bytes = settled
            self._relays.forwarding.relay_answered(1, 0.0)
            channel = self._relays.channel(number)
            if channel is not None and not channel.closed:
                channel.reserve(-pending_bytes)
                command.opaque, command.serialization = opaque, 0
                channel.send(command)

    def _check_late(self) -> None:
        self._check = None
        seconds = self._relays.timeout
        late = self._relay.give_up(perf_counter() - seconds)
        if late and self._heard <= self._loop.time() - SILENCE_SECONDS:
            self._end(ConnectError(self.address, f"nothing was received for {seconds:g} s"))
        for settled in late:
            self._relays.refuse(
                settled, self.address, RequestTimeout(self.address, seconds, settled[2])
            )
        if len(self._relay) and self.error is None:
            self._check = self._loop.call_later(seconds / _CHECKS, self._check_late)

    def _end(self, error: MQError, *, flushes: bool = True) -> None:
        super()._end(error, flushes=flushes)
        if self._check is not None:
            self._check.cancel()
        for settled in self._relay.give_up():
            self._relays.refuse(settled, self.address, error)


class RelaySession(Session):
    """A session whose connections relay."""

    def __init__(
        self, relays: Relays, namesrv: str | tuple[str, ...], **keywords: Unpack[ClientKeywords]
    ) -> None:
        self._relays = relays
        super().__init__(namesrv, **keywords)

    def _peer(self, address: str) -> Peer:
        if self._loop is None or address in self._peers:
            return super()._peer(address)
        peer = self._peers[address] = RelayPeer(self, address, self._loop, self._relays)
        return peer

    def relaying(self, address: str) -> RelayPeer:
        """The connection to an address, created if necessary."""
        peer = self._peer(address)
        assert isinstance(peer, RelayPeer)
        return peer


class NativeRelay:
    """Relays plain sends from clients' data, while `is_open` allows it."""

    def __init__(
        self,
        enodes: Enodes,
        is_open: Callable[[], bool],
        pushed: Callable[[], frozenset[str]],
        alone: Callable[[Channel], str | None],
        has_waiting: Callable[[str], bool],
        address: Callable[[], str],
    ) -> None:
        """`alone` returns the enode of a request that names none, `pushed` the topics whose sends
        Python must see, `has_waiting` whether requests of an enode wait in `Forwarding`.
        """
        self._enodes = enodes
        self._is_open = is_open
        self._pushed = pushed
        self._alone = alone
        self._has_waiting = has_waiting
        self._address = address
        self.has_failed = False

    def take(self, data: bytes, position: int, channel: Channel) -> int:
        """Relay the plain sends from a position; returns the position of the first other frame."""
        if self.has_failed or data.startswith(_PULL, position + PREFIX.size):
            return position
        pushed = self._pushed()
        if len(pushed) > _MOST_PUSHED or not self._is_open():
            return position
        try:
            named = native.Relay.enode_of(data, position, MAX_FRAME)
            if named is None:
                return position
            alone = self._alone(channel) if not named else None
            enode: str = named or alone or ""
            address = self._enodes.masters.get(enode)
            if address is None or self._has_waiting(enode):
                return position
            self._enodes.ready(MAIN, address)
            session = self._enodes.session
            assert isinstance(session, RelaySession)
            peer = session.relaying(address)
            return peer.relay(data, position, channel, enode, self._added(channel), alone, pushed)
        except failures as error:  # nothing has been relayed
            if isinstance(error, MQError):
                return position
            self.has_failed = True
            log.critical("the native path has failed; sends no longer use it", exc_info=error)
            return position

    def _added(self, channel: Channel) -> bytes:
        added = channel.attributes.get(_ADDED)
        if added is None:
            added = f'"o":"{channel.remote}","p":"{self._address()}",'.encode()
            channel.attributes[_ADDED] = added
        return cast(bytes, added)
