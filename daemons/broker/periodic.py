"""Periodic tasks: work that is repeated at intervals, until it is cancelled."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from mq.daemons.supervision import Work

log = logging.getLogger(__name__)


async def save_periodically(
    save: Callable[[], Awaitable[None]], seconds: Callable[[], float], what: str
) -> None:
    """Save at intervals until cancelled. A failure is logged and retried at the next interval."""
    while True:
        await asyncio.sleep(seconds())
        try:
            await save()
        except OSError as error:
            log.error("cannot save %s: %s", what, error)


def saving(
    save: Callable[[], Awaitable[None]], seconds: Callable[[], float], what: str
) -> tuple[Work, str]:
    """The task that saves at intervals, and its name."""
    return partial(save_periodically, save, seconds, what), what
