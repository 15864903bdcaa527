"""Saves in threads, in their order: a late one brings back nothing of before."""

import asyncio
from collections.abc import Callable

from mq.client.machine import threads


class Saves:
    """Saves of one thing, each in a thread.

    When whoever waits for one is cancelled, as by a stop, its thread goes on. Where the next save
    is done before it, it is left out.
    """

    def __init__(self) -> None:
        self._lock = threads.Lock()
        self._begun = 0
        self._done = 0

    async def run(self, save: Callable[[], None]) -> None:
        """Run one. Raises what it raises."""
        self._begun += 1
        number = self._begun

        def work() -> None:
            with self._lock:
                if number > self._done:
                    save()
                    self._done = number

        await asyncio.to_thread(work)
