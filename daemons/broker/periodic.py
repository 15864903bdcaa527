"""Periodic tasks: work that is done again at intervals, until it is cancelled."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from mq.daemons.supervision import Work

log = logging.getLogger(__name__)


async def save_again_and_again(
    save: Callable[[], Awaitable[None]], seconds: Callable[[], float], what: str
) -> None:
    """Save at intervals until cancelled. What cannot be saved now is saved the next time."""
    while True:
        await asyncio.sleep(seconds())
        try:
            await save()
        except OSError as error:
            log.error("%s cannot be saved now: %s", what, error)


def saving(
    save: Callable[[], Awaitable[None]], seconds: Callable[[], float], what: str
) -> tuple[Work, str]:
    """The task that saves at intervals, and its name."""
    return partial(save_again_and_again, save, seconds, what), what
