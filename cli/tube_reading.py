"""Reads TubeMQ until enough is read, and retries after retriable errors."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mq.cli.runtime.interruption import is_ctrl_c
from mq.client.errors import MQError

if TYPE_CHECKING:
    from mq.client.tube.balance_consumer import TubeBalanceConsumer
    from mq.client.tube.consumer import TubeReader
    from mq.client.tube.message import TubeBatch

log = logging.getLogger(__name__)


async def connect_all(consumer: "TubeBalanceConsumer") -> int:
    """Connect to all readable partitions. Returns their number. Raises the error of a partition."""
    keys = [key for key, readable in (await consumer.partitions()).items() if readable]
    for key in keys:
        await consumer.connect(key)
    return len(keys)


@asynccontextmanager
async def all_connected(consumer: "TubeBalanceConsumer") -> AsyncIterator[int]:
    """Read all partitions during the block; yields their initial number.

    New partitions are added, and those that a restarted broker has lost are connected again.
    """
    from mq.client.tube.balance_consumer import METADATA_SECONDS

    async def again() -> None:
        while True:
            await asyncio.sleep(METADATA_SECONDS)
            try:
                await connect_all(consumer)
            except MQError as error:
                log.warning("cannot read all partitions: %s", error)

    count = await connect_all(consumer)
    task = asyncio.ensure_future(again())
    try:
        yield count
    finally:
        task.cancel()
        await asyncio.wait([task])


async def batches(
    consumer: "TubeReader", wait: float | None, limit: int | None
) -> "AsyncIterator[tuple[TubeBatch, int]]":
    """Yield each reply, and the number of its messages within the limit.

    It ends after `wait` seconds without messages, or at the limit. Raises errors that are not
    retriable.
    """
    seen = 0
    while limit is None or seen < limit:
        try:
            async with asyncio.timeout(wait):
                batch = await _next(consumer)
        except TimeoutError:
            return
        except asyncio.CancelledError:  # Ctrl-C is the normal end
            if not is_ctrl_c():
                raise
            return
        wanted = len(batch.messages) if limit is None else limit - seen
        shown = min(wanted, len(batch.messages))
        seen += shown
        yield batch, shown


async def _next(consumer: "TubeReader") -> "TubeBatch":
    from mq.client.tube.errors import NothingToRead

    while True:
        try:
            return await consumer.get_message()
        except NothingToRead:
            continue
        except MQError as error:
            if not error.retriable:
                raise
            log.warning("%s", error)


async def confirm(consumer: "TubeReader", batch: "TubeBatch") -> None:
    """Confirm shown messages; if that fails temporarily, they are delivered again."""
    from mq.client.tube.errors import ConfirmTimeout

    try:
        await consumer.confirm(batch)
    except MQError as error:
        if not (error.retriable or isinstance(error, ConfirmTimeout)):
            raise
        log.warning("%s: messages may be delivered again: %s", batch.partition_key, error)
