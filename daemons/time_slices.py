"""Work that grows with the number of topics or groups, done in steps."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mq.client.machine.clock import perf_counter
from mq.daemons.channel import Channel

# Limit in seconds of one step, which other work waits for; a send takes a hundredth of it.
STEP_SECONDS = 0.002
# Limit in seconds of one turn of the event loop for work whose amount clients control. For example,
# twenty thousand suspended pulls with one long filter, which a connection may have, would stop
# everything for half a second with each message. The same holds for messages that a pop skips, and
# redelivered popped messages.
TURN_SECONDS = 0.005
# After heavy work, other work gets so many times its duration, up to so many seconds.
REST = 6.0
LONGEST_REST = 1.0


class TimeSlices:
    """`await steps.rest()` in a loop lets other work run once the step has lasted long enough."""

    def __init__(self) -> None:
        self._began = perf_counter()

    async def rest(self) -> None:
        """Continue in another turn of the event loop if this one has lasted long enough."""
        if perf_counter() - self._began > STEP_SECONDS:
            await asyncio.sleep(0)
            self._began = perf_counter()


class OneAtATime:
    """`async with one_at_a_time.turn(channel)` around work that keeps the interpreter busy, in a
    thread or in steps.

    One runs at a time, and after each, other work has the interpreter for longer than it took, so a
    client that requests such work repeatedly gets no more than its share of this process. A client
    that disconnects while it waits does not get its turn, so that its request is not kept.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._busy = False

    @asynccontextmanager
    async def turn(self, channel: Channel) -> AsyncIterator[None]:
        """Raises ConnectionError if the connection closes before its turn."""
        if self._busy:
            await self._wait(channel)
        self._busy = True
        began = perf_counter()
        try:
            yield
        finally:
            rest = min((perf_counter() - began) * REST, LONGEST_REST)
            asyncio.get_running_loop().call_later(rest, self._next)

    async def _wait(self, channel: Channel) -> None:
        has_turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def give_up(_: Channel) -> None:
            if not has_turn.done():
                has_turn.set_result(False)

        channel.on_close.append(give_up)
        self._waiting.append(has_turn)
        try:
            if not await has_turn:
                raise ConnectionError("closed before its turn")
        except asyncio.CancelledError:
            if has_turn.done() and not has_turn.cancelled() and has_turn.result():
                self._next()  # it had already been given the turn
            raise
        finally:
            if give_up in channel.on_close:
                channel.on_close.remove(give_up)

    def _next(self) -> None:
        while self._waiting:
            has_turn = self._waiting.popleft()
            if not has_turn.done():
                has_turn.set_result(True)
                return
        self._busy = False
