"""Saves in threads, in order: a late save never overwrites a newer one."""

import asyncio
from collections.abc import Callable

from mq.client.machine import threads


class Saves:
    """Saves of one object, each in a thread.

    If the caller is cancelled, as by a stop, the thread continues. A save is skipped if a later one
    has finished before it.
    """

    def __init__(self) -> None:
        self._lock = threads.Lock()
        self._begun = 0
        self._done = 0

    async def run(self, save: Callable[[], None]) -> None:
        """Run a save. Raises what it raises."""
        self._begun += 1
        number = self._begun

        def work() -> None:
            with self._lock:
                if number > self._done:
                    save()
                    self._done = number

        await asyncio.to_thread(work)
