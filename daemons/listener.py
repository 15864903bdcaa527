"""Where a daemon meets its peers: one port, its connections, and requests in both directions.

Requests go to a handler by their code; those of the hot path go, still undecoded but for the
header's JSON, to a direct handler. A peer that sends what is not a frame is closed and counted.
"""

import asyncio
import errno
import logging
import resource
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

from mq.client.buffers import SYSTEM_BUFFERS, SocketBuffers
from mq.daemons.channel import Channel
from mq.daemons.dispatch import (
    DirectHandler,
    Guard,
    Handler,
    Overloaded,
    Refused,
    Reply,
    error_reply,
    guarded,
    guarded_direct,
    unknown_code,
)
from mq.daemons.memory import MemoryBudget
from mq.daemons.shedding import (
    CONNECTIONS_SETTING,
    WAIT_SETTING,
    Backlog,
    BusyReply,
    TurnedAway,
    refuse_sends,
)
from mq.daemons.tls import Greeter, ServerTls
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError

__all__ = ["Channel", "Listener"]

log = logging.getLogger(__name__)

# What a request costs that is answered later: a task, a command, its header's fields.
_TASK_COST = 4096
# Files of the store beside those of queues, which take a quarter: connections leave them room.
_OTHER_DESCRIPTORS = 64


class Listener:
    """A port and the handlers behind it.

    ``handlers`` answer ordinary requests, ``direct`` those of the hot path. ``port`` is the one
    bound, also where 0 was asked for. ``idle_seconds`` closes a connection on which nothing has
    come for so long (Java: serverChannelMaxIdleTimeSeconds); 0 never does. ``guard`` is asked
    before every handler; without one nothing is paid for it. With ``tls`` connections may be, or
    have to be, encrypted. An ordinary request that takes over ``slow_seconds`` is logged and
    counted. ``max_connections`` gives how many may be open; ``longest_wait`` how many
    seconds a send may wait to be served; 0 stands for no limit in all three, but that connections
    leave descriptors for files. ``memory`` is the
    budget of what peers may make us hold; without one there is no limit.
    """

    # For so many seconds a stop waits for peers to take their replies.
    LAST_WORDS = 3.0
    # How often idle connections are looked for, in seconds; also the unit of `ticks`.
    TICK = 5.0

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        host: str,
        port: int,
        *,
        direct: Mapping[int, DirectHandler] | None = None,
        idle_seconds: float = 120,
        backlog: int = 1024,
        guard: Guard | None = None,
        tls: ServerTls | None = None,
        slow_seconds: float = 0.0,
        max_connections: Callable[[], int] = lambda: 0,
        longest_wait: Callable[[], float] = lambda: 0.0,
        memory: MemoryBudget | None = None,
        buffers: SocketBuffers = SYSTEM_BUFFERS,
    ) -> None:
        self._guard = guard
        self._tls = tls
        self._buffers = buffers
        self.handlers: dict[int, Handler] = {}
        # Any object may be asked for: a header's code is checked by looking it up.
        self.direct: dict[object, DirectHandler] = {}
        self.serve(handlers, direct)
        self.host = host
        self.port = port
        self.channels: set[Channel] = set()
        self.memory = MemoryBudget() if memory is None else memory
        self.memory.watch(self.channels)
        self.backlog = Backlog(longest_wait, self.channels)
        self.ticks = 0
        self.bad_requests = 0
        self.turned_away = 0
        self.stale_reply = BusyReply(
            f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while ({WAIT_SETTING})"
        )
        self.refusals: Counter[tuple[int, str]] = Counter()  # by request code and cause
        self.slow_requests: Counter[int] = Counter()  # by request code
        self._slow_seconds = slow_seconds or float("inf")
        self._max_connections = max_connections
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._descriptors = max(1, soft - soft // 4 - _OTHER_DESCRIPTORS)
        self._idle_ticks = int(idle_seconds / self.TICK)
        self._backlog = backlog
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Future[None] | None = None  # done when the last channel has gone

    async def __aenter__(self) -> "Listener":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def serve(
        self, handlers: Mapping[int, Handler], direct: Mapping[int, DirectHandler] | None = None
    ) -> None:
        """Answer these requests too; for a daemon that needs its port before its handlers."""
        guard = self._guard
        for code, handler in handlers.items():
            self.handlers[code] = handler if guard is None else guarded(handler, guard)
        for code, direct_handler in (direct or {}).items():
            self.direct[code] = (
                direct_handler if guard is None else guarded_direct(code, direct_handler, guard)
            )

    async def bind(self) -> None:
        """Take the port without accepting yet. Raises OSError naming an address that is taken."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._accept,
                self.host,
                self.port,
                backlog=self._backlog,
                start_serving=False,
            )
        except OSError as error:
            why = str(error.strerror or error)
            if error.errno == errno.EADDRINUSE:  # the loop's own text says the address once more
                why = "another process does already"
            raise OSError(error.errno, f"cannot listen on {self.host}:{self.port}: {why}") from None
        for sock in self._server.sockets:
            self._buffers.set_on(sock)
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self) -> asyncio.Protocol:
        most, count = self._max_connections(), len(self.channels)
        if not most:
            most, count = self._descriptors, self.memory.connections()
        if most <= count:
            self.turned_away += 1
            log.warning(
                "a connection is turned away: there are %d (%s)",
                count,
                CONNECTIONS_SETTING,
                extra={"failure": "connections"},
            )
            return TurnedAway(most)
        channel = Channel(self)
        return channel if self._tls is None else Greeter(channel, self._tls)

    async def start(self) -> None:
        """Accept connections, on a port of its own if none was taken before. Raises OSError."""
        if self._server is None:
            await self.bind()
        assert self._server is not None
        await self._server.start_serving()
        self._timer = asyncio.get_running_loop().call_later(self.TICK, self._tick)

    def stop_accepting(self) -> None:
        """Take no new connection; those that are open go on."""
        if self._server is not None:
            self._server.close()

    async def finish(self, seconds: float) -> None:
        """Wait at most so long for requests that are being handled."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def close(self) -> None:
        """Stop accepting, end what runs, close every connection. Idempotent.

        A peer that does not take its replies has a few seconds; then its connection is broken off.
        """
        if self._timer is not None:
            self._timer.cancel()
        self.stop_accepting()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in list(self.channels):
            channel.close()
        if self.channels:
            loop = asyncio.get_running_loop()
            self._closing = loop.create_future()
            end = loop.call_later(self.LAST_WORDS, self._break_off)
            try:
                await self._closing
            finally:
                end.cancel()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def _break_off(self) -> None:
        log.warning("%d peers do not take what was sent: broken off", len(self.channels))
        for channel in list(self.channels):
            channel.abort()

    def handle(self, command: Command, channel: Channel) -> None:
        """Give a request to its handler and send what comes of it."""
        handler = self.handlers.get(command.code)
        reply: Reply
        if handler is None:
            reply = unknown_code(command)
        else:
            try:
                began = perf_counter()
                result = handler(command, channel)
            except Exception as error:
                reply = self.failed(command, channel, error)
            else:
                if isinstance(result, Awaitable):
                    channel.owe(_TASK_COST + len(command.body))
                    task = asyncio.ensure_future(self._await(command, channel, result, began))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                    return
                if perf_counter() - began > self._slow_seconds:
                    self._was_slow(command, channel, perf_counter() - began)
                reply = result
        self._send(command, channel, reply)

    def forget(self, channel: Channel) -> None:
        """A channel has closed."""
        self.channels.discard(channel)
        if not self.channels and self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    def complain(self, channel: Channel, error: Exception) -> None:
        """Count a bad request and log it; the log lets one line a second through for each peer."""
        self.bad_requests += 1
        log.warning(
            "bad request from %s: %s: %s",
            channel.remote,
            type(error).__name__,
            error,
            extra={"peer": channel.remote_address[0]},
        )

    def refuse_stale(self, channel: Channel, data: bytes) -> bytes:
        """Answer the sends with SYSTEM_BUSY and return the rest."""
        replies, count, rest = refuse_sends(data, self.stale_reply)
        if replies:
            channel.queue_frame(replies)
        if count:
            self.refusals[RequestCode.SEND_MESSAGE_V2, WAIT_SETTING] += count
            log.warning(
                "sends have waited too long and are refused (%s)",
                WAIT_SETTING,
                extra={"failure": "sends in time"},
            )
        return rest

    async def _await(
        self, command: Command, channel: Channel, result: Awaitable[Reply], began: float
    ) -> None:
        try:
            reply = await result
        except Exception as error:
            if channel.closed and isinstance(error, ConnectionError):
                return  # it went away while its request waited for its turn
            reply = self.failed(command, channel, error)
        finally:
            channel.owe(-_TASK_COST - len(command.body))
        if perf_counter() - began > self._slow_seconds:
            self._was_slow(command, channel, perf_counter() - began)
        self._send(command, channel, reply)

    def _was_slow(self, command: Command, channel: Channel, seconds: float) -> None:
        self.slow_requests[command.code] += 1
        log.warning(
            "request %d of %s took %.3f s",
            command.code,
            channel.remote,
            seconds,
            extra={"failure": f"slow requests {command.code}"},
        )

    def failed(self, command: Command, channel: Channel, error: Exception) -> Command:
        """The reply for a request that raised; what is not the peer's own fault is logged."""
        if isinstance(error, Refused):
            cause = error.limit if isinstance(error, Overloaded) else error.code.name
            self.refusals[command.code, cause] += 1
        elif not isinstance(error, RemoteProtocolError):
            log.error(
                "request %d of %s failed",
                command.code,
                channel.remote,
                exc_info=error,
                extra={"failure": f"request {command.code}"},
            )
        else:
            self.complain(channel, error)
        return error_reply(command, error)

    def _send(self, command: Command, channel: Channel, reply: Reply) -> None:
        if reply is None or command.is_one_way or channel.closed:
            return
        try:
            channel.send(reply)
        except LocalProtocolError as error:
            channel.send(error_reply(command, error))

    def _tick(self) -> None:
        self.ticks += 1
        self.memory.look()
        if self._idle_ticks:
            oldest = self.ticks - self._idle_ticks
            for channel in [c for c in self.channels if c.active_at < oldest]:
                log.info("closing %s: idle", channel.remote)
                channel.close()
        self._timer = asyncio.get_running_loop().call_later(self.TICK, self._tick)
