"""The lifecycle of every daemon: a context manager whose components start in order."""

from contextlib import AsyncExitStack
from typing import Self


class Lifecycle:
    """Starts its components when it is entered, and stops them in reverse order when it is left.

    A start that fails, or is cancelled, stops the components that it had started.
    """

    _parts: AsyncExitStack

    async def _start(self, parts: AsyncExitStack) -> None:
        """Start every component; callbacks that stop it go on `parts`."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as parts:
            await self._start(parts)
            self._parts = parts.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()
