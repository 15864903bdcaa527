"""Work that grows with the number of topics or groups, done in steps between which others are
served."""

import asyncio
from time import perf_counter

# What others wait at most for one step; a send takes a hundredth of it.
STEP_SECONDS = 0.002


class Steps:
    """`await steps.rest()` in a loop lets others have a turn once the step has lasted its time."""

    def __init__(self) -> None:
        self._began = perf_counter()

    async def rest(self) -> None:
        """Go on in another turn of the loop if this one has lasted long enough."""
        if perf_counter() - self._began > STEP_SECONDS:
            await asyncio.sleep(0)
            self._began = perf_counter()
