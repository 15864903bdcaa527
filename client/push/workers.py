"""Workers: the tasks that give messages to a listener, replaced whatever happens to one."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from mq.client.session import Session

log = logging.getLogger(__name__)

RESTART_SECONDS = 1.0  # until the place of a worker that has ended is taken


class Workers:
    """The workers of one consumer."""

    def __init__(
        self,
        session: Session,
        group: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`work` goes on until there is no more to do for good.

        `on_failure` gets what is to end the whole program, raised in a worker.
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
            "group %s: a worker has ended, another takes its place: %r",
            self._group,
            error or "it was cancelled",
        )
        # Not at once: when the loop itself ends, it cancels every task that there is now.
        asyncio.get_running_loop().call_later(RESTART_SECONDS, self._start_one)

    def includes_current(self) -> bool:
        """Whether it is one of them that asks."""
        return asyncio.current_task() in self._tasks

    def close(self) -> None:
        """From now on a worker that ends is not replaced."""
        self._closing = True

    async def end(self, grace: float) -> None:
        """Wait until all have ended, cancel those that have not after `grace` seconds."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace)
        for worker in late:
            worker.cancel()
        if late:
            await asyncio.wait(late)
