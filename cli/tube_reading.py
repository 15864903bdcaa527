"""Reading TubeMQ until somebody has seen enough: over whatever is worth another try."""

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
    """Read all partitions that may be read; how many there are. Raises why one cannot be."""
    keys = [key for key, readable in (await consumer.partitions()).items() if readable]
    for key in keys:
        await consumer.connect(key)
    return len(keys)


@asynccontextmanager
async def all_connected(consumer: "TubeBalanceConsumer") -> AsyncIterator[int]:
    """Read all partitions as long as the block lasts; gives how many there are at first.

    New ones too, and again those that a broker has forgotten: it was started again.
    """
    from mq.client.tube.balance_consumer import METADATA_SECONDS

    async def again() -> None:
        while True:
            await asyncio.sleep(METADATA_SECONDS)
            try:
                await connect_all(consumer)
            except MQError as error:
                log.warning("not all partitions can be read: %s", error)

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
    """Reply after reply, and how many of its messages are wanted.

    Until nothing has come for so long, or so many messages have. Raises what another try does not
    change.
    """
    seen = 0
    while limit is None or seen < limit:
        try:
            async with asyncio.timeout(wait):
                batch = await _next(consumer)
        except TimeoutError:
            return
        except asyncio.CancelledError:  # Ctrl-C, which is how one ends it
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
    """Confirm what was shown; if that is in vain for now, it comes again."""
    from mq.client.tube.errors import ConfirmTimeout

    try:
        await consumer.confirm(batch)
    except MQError as error:
        if not (error.retriable or isinstance(error, ConfirmTimeout)):
            raise
        log.warning("%s: messages may come again: %s", batch.partition_key, error)
