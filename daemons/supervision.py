"""Background tasks of a daemon, supervised.

    spawn    a task works until it is cancelled, or until it has nothing more to do
    error    whatever it raises is logged and counted, and it begins again after a pause
    pause    grows from error to error, so that a task that always fails costs next to nothing

So no error in a single task ends the daemon, or its next start. What makes a task fail again and
again must not be with it when it begins again: a task that works through items sets the one aside
that it cannot handle (of a broker: `SetAside`). What is counted here is for those who watch: the
metrics, `mq doctor`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Self

from mq.client.machine import clock

log = logging.getLogger(__name__)

#: Makes what a task does, each time that it begins.
Work = Callable[[], Coroutine[Any, Any, None]]

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
# A task that has worked for so long since its last error is well: its next pause is the first one.
CALM_SECONDS = 60.0
# Of the text of an error that is kept; it may quote what a peer has sent.
MOST_TEXT = 300


@dataclass
class Failures:
    """What went wrong in the tasks of a name: how often, and the last time (s since 1970)."""

    count: int = 0
    text: str = ""
    at: float = 0.0


class Tasks:
    """The tasks of a daemon. ``failures`` has those that went wrong, by their names."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.failures: dict[str, Failures] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def spawn(self, work: Work, name: str) -> asyncio.Task[None]:
        """Start a task; what it does begins again after an error. Names are few: each is kept."""
        task = asyncio.get_running_loop().create_task(self._supervise(work, name), name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def failed(self, name: str, error: BaseException) -> None:
        """Log and count an error that was none that the work expects."""
        failures = self.failures.setdefault(name, Failures())
        failures.count += 1
        failures.text = describe(error)
        failures.at = clock.time()
        log.critical("task %s failed: %s", name, failures.text, exc_info=error,
                     extra={"failure": f"task {name}"})  # fmt: skip

    def info(self) -> dict[str, str]:
        """For GET_BROKER_RUNTIME_INFO: how often a task has failed, and the last time."""
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
        """Cancel what still runs and wait for its end. Idempotent."""
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
    """An error in one line; of a group, its first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:MOST_TEXT] if text else type(error).__name__


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
