"""What every daemon is to whoever runs it: a context manager whose parts start in their order."""

from contextlib import AsyncExitStack
from typing import Self


class Lifecycle:
    """Starts its parts when it is entered, and stops them in reverse when it is left.

    A start that fails, or is cancelled, stops what it had started.
    """

    _parts: AsyncExitStack

    async def _start(self, parts: AsyncExitStack) -> None:
        """Start every part; what stops it goes on `parts`."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as parts:
            await self._start(parts)
            self._parts = parts.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()
