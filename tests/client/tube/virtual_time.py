"""A loop whose clock goes on as soon as nothing is left to do, over real sockets.

Bytes between two sockets of this machine are there when they have been written, so that a loop with
nothing that is ready waits for a timer only: the clock jumps to it. Work of other threads is waited
for as it comes.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Bytes may be under way for a moment on a machine that is busy. Not long: each jump waits for it.
GRACE_SECONDS = 0.005


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.loop: JumpingLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout is None or timeout <= 0:
            return ready or (super().select(timeout) if timeout is None else ready)
        if self.loop.threads:
            return super().select(timeout)
        ready = super().select(min(timeout, GRACE_SECONDS))
        if not ready:
            self.loop.jumped += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time stands still as long as there is something to do."""

    def __init__(self) -> None:
        self.jumped = 0.0
        self.threads = 0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.jumped

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> Any:
        self.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: object) -> None:
        self.threads -= 1


def run_fast(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario whose waiting takes no time."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(scenario)
