"""Workers: the tasks that pass messages to a listener. Each one that ends is replaced."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from mq.client.transport.session import Session

log = logging.getLogger(__name__)

RESTART_SECONDS = 1.0  # from the end of a worker to its replacement


class Workers:
    """The workers of one consumer."""

    def __init__(
        self,
        session: Session,
        group: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`work` returns only when there is no more work for good.

        `on_failure` receives an error raised in a worker that must end the program.
        """
        self._session = session
        self._group = group
        self._work = work
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    def start(self, count: int) -> None:
        for _ in range(count):
            self._start_one()

    def _start_one(self) -> None:
        if self._closing:
            return
        worker = self._session.keep_task(self._work())
        self._tasks.append(worker)
        worker.add_done_callback(self._ended)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        if self._closing:
            return
        self._tasks.remove(worker)
        error = None if worker.cancelled() else worker.exception()
        if error is not None and not isinstance(error, Exception):
            self._on_failure(error)
            return
        log.error(
            "group %s: a worker ended and will be replaced: %r",
            self._group,
            error or "it was cancelled",
        )
        # Delayed: when the loop itself ends, it cancels all tasks that exist at that time.
        asyncio.get_running_loop().call_later(RESTART_SECONDS, self._start_one)

    def includes_current(self) -> bool:
        """Whether the current task is one of the workers."""
        return asyncio.current_task() in self._tasks

    def close(self) -> None:
        """Stop replacing workers that end."""
        self._closing = True

    async def end(self, grace: float) -> None:
        """Wait until all workers have ended; cancel those still running after `grace` seconds."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace)
        for worker in late:
            worker.cancel()
        if late:
            await asyncio.wait(late)
