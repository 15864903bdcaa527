"""The event loop of a simulated process: asyncio's own, but for clock, selector and threads.

Each turn of it is a step of the world. Work of threads runs in greenlets.
"""

# The inside of asyncio's loop has no types, and its signatures are many times what is used here.
# mypy: disable-error-code="override, attr-defined, misc, has-type, no-any-return"

import asyncio
import asyncio.events
import heapq
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from greenlet import greenlet

from tests.simulation.world import STEP

if TYPE_CHECKING:
    from tests.simulation.world import Process

_THREAD_STARTS = (0.000_010, 0.000_500)  # seconds


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs a process. The world calls it when something of it is due."""

    def __init__(self, process: "Process") -> None:
        super().__init__()
        self._debug = False
        self._process = process
        self._world = process.world
        self._greenlet = greenlet(self._turns)
        self._world.keep.append(self._greenlet)
        self._due: Any = None  # the event of the world that wakes it
        self._is_in_turn = False
        self._main: asyncio.Task[None] | None = None
        self.set_exception_handler(self._log_exception)

    # what the world calls ---------------------------------------------------------------------

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        def begin() -> None:
            task = self.create_task(main(), name=f"main of {self._process.name}")
            task.add_done_callback(self._ended)
            self._main = task

        self.call_soon(begin)

    def cancel_main(self) -> None:
        """Ask the program to leave, as asyncio.run does on SIGINT."""
        if self._main is not None:
            self._main.cancel()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        process = self._process
        if not task.cancelled():
            process.exit = task.exception()
            process.has_returned = process.exit is None
        text = "ends" if process.exit is None else f"fails: {process.exit!r}"
        self._world.tell(process.name, text)
        self._world.soon(process.end, process.steps)

    def _turns(self) -> None:
        """The greenlet of the loop: a turn each time that it is entered."""
        while True:
            self._turn()
            self._wake_later()
            self._world.leave()

    def _turn(self) -> None:
        self._is_in_turn = True
        self._due = None
        asyncio.events._set_running_loop(self)
        end = self.time() + self._clock_resolution
        scheduled, ready = self._scheduled, self._ready
        while scheduled and (scheduled[0]._cancelled or scheduled[0]._when < end):
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)
            else:
                ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        asyncio.events._set_running_loop(None)
        self._is_in_turn = False

    def _wake_later(self) -> None:
        """Have the world enter it when something is due."""
        if self._ready:
            when = self._world.now
        elif self._scheduled:
            when = self._scheduled[0]._when
        else:
            return
        due = self._due
        if due is not None and not due.cancelled:
            if due.when <= when:
                return
            due.cancelled = True
        step = self._process.steps.uniform(*STEP)
        self._due = self._world.at(max(when, self._world.now + step), self._wake)

    def _wake(self) -> None:
        self._due = None
        if not self._is_in_turn:  # it may be blocked by a disk
            self._process.enter(self._greenlet)

    # what asyncio calls -----------------------------------------------------------------------

    def time(self) -> float:
        return self._world.now

    def _call_soon(self, *args: Any) -> asyncio.Handle:
        handle = super()._call_soon(*args)
        if not self._is_in_turn:
            self._wake_later()
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = super().call_at(when, callback, *args, context=context)
        if not self._is_in_turn:
            self._wake_later()
        return handle

    def is_running(self) -> bool:
        return True

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    def _check_closed(self) -> None:
        pass

    def _check_thread(self) -> None:
        pass

    def _timer_handle_cancelled(self, handle: Any) -> None:
        pass

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        raise OSError(f"there are no names in a simulation: {host}")

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future = self.create_future()

        def work() -> None:
            result, error = None, None
            try:
                result = func(*args)
            except Exception as raised:
                error = raised
            self.call_soon(done, result, error)

        def done(result: Any, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self._process.run_in_thread(work, self._process.steps.uniform(*_THREAD_STARTS))
        return future

    def _log_exception(self, _: Any, context: dict[str, Any]) -> None:
        if self._process.is_alive:
            text = f"{context.get('message')}: {context.get('exception')!r}"
            self._world.tell(self._process.name, f"loop: {text}")

    async def create_server(
        self, factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        return self._world.network.listen(self._process, factory, host, port, **options)

    async def create_connection(
        self, factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self._world.network.connect(self._process, factory, host, port)

    async def create_datagram_endpoint(
        self, factory: Any, local_addr: Any = None, remote_addr: Any = None, **_: Any
    ) -> Any:
        return self._world.network.datagrams(self._process, factory, local_addr, remote_addr)
