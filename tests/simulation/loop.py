"""The event loop of a simulated process: asyncio's own, except for clock, selector and threads.

Each turn is a step of the world. Threads run in greenlets.
"""

# asyncio's loop has no types inside, and its signatures are larger than the used part.
# mypy: disable-error-code="override, attr-defined, misc, has-type, no-any-return"

import asyncio
import asyncio.events
import heapq
from asyncio.format_helpers import _format_callback_source
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from itertools import count
from typing import TYPE_CHECKING, Any

from greenlet import greenlet

from tests.simulation.world import Event, step

if TYPE_CHECKING:
    from tests.simulation.world import Process

_THREAD_STARTS = (0.000_010, 0.000_500)  # seconds
_set_running_loop = asyncio.events._set_running_loop


class _Handle(asyncio.Handle):
    """asyncio's, without the work of its debug mode."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Any, context: Any) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None
        self._args = ()


class _TimerHandle(asyncio.TimerHandle):
    """asyncio's, without the work of its debug mode. They are not compared: the heap has their
    times.
    """

    __slots__ = ()

    def __init__(self, when: float, callback: Any, args: Any, loop: Any, context: Any) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None
        self._args = ()


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs a process. The world calls it when an event of the process is due."""

    def __init__(self, process: "Process") -> None:
        super().__init__()
        self._debug = False
        self._process = process
        self._world = process.world
        self._greenlet = greenlet(self._turns)
        self._world.keep.append(self._greenlet)
        self._timers: list[tuple[float, int, _TimerHandle]] = []  # a heap
        self._order = count()
        # A coroutine that is collected would run its `finally`, which a killed process does not.
        self._tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = 100  # number of tasks at which finished ones are removed
        self._due: Event | None = None  # the event of the world that wakes it
        self._is_in_turn = False
        self._main: asyncio.Task[None] | None = None
        self.set_exception_handler(self._log_exception)

    # calls of the world -----------------------------------------------------------------------

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
        """The greenlet of the loop: runs turns while no other event is due earlier."""
        world, process = self._world, self._process
        while True:
            _set_running_loop(self)
            self._turn()
            when = self._next_turn()
            while when is not None and world.goes_on(process, when):
                self._turn()
                when = self._next_turn()
            if when is not None:
                self._due = world.at(when, self._wake)
            _set_running_loop(None)
            world.give_way()

    def _turn(self) -> None:
        self._is_in_turn = True
        self._due = None
        end = self._world.now + self._clock_resolution
        timers, ready = self._timers, self._ready
        while timers and timers[0][0] < end:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (Exception, asyncio.CancelledError) as error:
                    self._callback_failed(handle, error)
        self._is_in_turn = False

    def _callback_failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        name = _format_callback_source(handle._callback, handle._args)
        told = {"message": f"Exception in callback {name}", "exception": error, "handle": handle}
        self.call_exception_handler(told)

    def _next_turn(self) -> float | None:
        """The time of the next event; infinity without one."""
        timers = self._timers
        now = self._world.now
        soonest = now + step(self._process.steps)
        if self._ready:
            return soonest
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            return None
        when = timers[0][0]
        return when if when > soonest else soonest

    def _wake_later(self) -> None:
        """Let the world enter it at its next event."""
        due, when = self._due, self._next_turn()
        if when is None:
            return
        if due is not None:
            if due[0] <= when:
                return
            self._world.cancel(due)
        self._due = self._world.at(when, self._wake)

    def _wake(self) -> None:
        self._due = None
        if not self._is_in_turn:  # it may be blocked by a disk
            self._process.enter(self._greenlet)

    # calls of asyncio -------------------------------------------------------------------------

    def time(self) -> float:
        return self._world.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_in_turn:
            self._wake_later()
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        if not self._is_in_turn:
            self._wake_later()
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        tasks = self._tasks
        tasks.append(task)
        if len(tasks) > self._most_tasks:
            tasks[:] = [task for task in tasks if not task.done()]
            self._most_tasks = 100 + 2 * len(tasks)
        return task

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
        self, factory: Any, host: Any = None, port: Any = None, sock: Any = None, **_: Any
    ) -> Any:
        if sock is not None:  # of http.py
            host, port = sock.host, sock.port
        return await self._world.network.connect(self._process, factory, host, port)

    async def create_datagram_endpoint(
        self, factory: Any, local_addr: Any = None, remote_addr: Any = None, **_: Any
    ) -> Any:
        return self._world.network.datagrams(self._process, factory, local_addr, remote_addr)
