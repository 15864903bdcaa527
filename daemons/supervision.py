"""Supervised background tasks of a daemon.

  spawn    a task runs until it is cancelled, or until its work is done
  error    an exception is logged and counted, and the task restarts after a pause
  pause    grows with every error, so that a task that always fails costs next to nothing

So an error in a single task ends neither the daemon nor its next start. The cause of a repeated
failure must not persist when the task restarts: a task that processes items quarantines an item
that it cannot process (in a broker: `Quarantine`). The counts are for monitoring: metrics, `mq
doctor`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Self

from mq.client.machine import clock

log = logging.getLogger(__name__)

# Makes the coroutine of a task, each time that it starts.
Work = Callable[[], Coroutine[Any, Any, None]]

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
# Seconds without an error after which a task counts as healthy: its next pause is the first one.
CALM_SECONDS = 60.0
# Limit of the kept text of an error, which may quote a peer's data.
MOST_TEXT = 300


@dataclass
class Failures:
    """The errors of the tasks with one name: their number, and the last one (s since 1970)."""

    count: int = 0
    text: str = ""
    at: float = 0.0


class Tasks:
    """The tasks of a daemon. ``failures`` has the errors by task name."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.failures: dict[str, Failures] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def spawn(self, work: Work, name: str) -> asyncio.Task[None]:
        """Start a task, which restarts after an error. Names must be few, because each is kept."""
        task = asyncio.get_running_loop().create_task(self._supervise(work, name), name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def failed(self, name: str, error: BaseException) -> None:
        """Log and count an unexpected error."""
        failures = self.failures.setdefault(name, Failures())
        failures.count += 1
        failures.text = describe(error)
        failures.at = clock.time()
        log.critical("task %s failed: %s", name, failures.text, exc_info=error,
                     extra={"failure": f"task {name}"})  # fmt: skip

    def info(self) -> dict[str, str]:
        """The number of task errors, and the last one, for GET_BROKER_RUNTIME_INFO."""
        info = {"taskFailures": str(sum(one.count for one in self.failures.values()))}
        if self.failures:
            name, last = max(self.failures.items(), key=lambda item: item[1].at)
            info["lastTaskFailure"] = f"{name}: {last.text}"
            info["lastTaskFailureTimestamp"] = str(int(last.at * 1000))
        return info

    def state(self) -> Iterator[str]:
        """A line for each task that has failed, for SIGUSR1."""
        for name, one in sorted(self.failures.items()):
            yield f"task {name}: {one.count} errors, the last: {one.text}"

    async def close(self) -> None:
        """Cancel running tasks and wait for their end. Idempotent."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _supervise(self, work: Work, name: str) -> None:
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE
        while True:
            began = clock()
            try:
                await work()
                return
            except Exception as error:
                self.failed(name, error)
            except asyncio.CancelledError as error:
                if _is_cancelled():
                    raise
                self.failed(name, error)  # something that the work waited for was cancelled
            if clock() - began >= CALM_SECONDS:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def describe(error: BaseException) -> str:
    """An error in one line; for a group, its first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:MOST_TEXT] if text else type(error).__name__


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
