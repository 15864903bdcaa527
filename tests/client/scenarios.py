"""Decorators for tests that are coroutines: each runs in an event loop of its own."""

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
    """Run a test in an event loop, with the object that `what()` opens as its first argument.

    pytest passes the other arguments.
    """

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
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        async def scenario() -> None:
            await test(*arguments, **named)

        asyncio.run(scenario())

    return run


async def eventually(condition: Callable[[], Awaitable[T]], seconds: float = 30) -> T:
    """Wait until `condition` returns a true value, and return that value.

    It serves to wait for work that a broker does after its response. Raises TimeoutError after
    `seconds`.
    """
    async with asyncio.timeout(seconds):
        while not (found := await condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found
