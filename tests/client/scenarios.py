"""Tests that are coroutines, each with something opened for it in a loop of its own."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Concatenate, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def opened(
    what: Callable[[], AbstractAsyncContextManager[T]],
) -> Callable[[Callable[Concatenate[T, P], Awaitable[None]]], Callable[P, None]]:
    """Have a test run in a loop, its first argument what `what()` opens; pytest gives the rest."""

    def decorate(test: Callable[Concatenate[T, P], Awaitable[None]]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*arguments: P.args, **named: P.kwargs) -> None:
            async def scenario() -> None:
                async with what() as made:
                    await test(made, *arguments, **named)

            asyncio.run(scenario())

        signature = inspect.signature(test)
        rest = list(signature.parameters.values())[1:]
        shown: Any = run
        shown.__signature__ = signature.replace(parameters=rest)
        return run

    return decorate


def in_a_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Have a test run in a loop of its own."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        async def scenario() -> None:
            await test(*arguments, **named)

        asyncio.run(scenario())

    return run


async def eventually(condition: Callable[[], Awaitable[T]], seconds: float = 30) -> T:
    """Return what `condition` returns once it is true: for work of a broker after its response."""
    async with asyncio.timeout(seconds):
        while not (found := await condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found
