"""A group of its own, and its partitions: how the driver and the tasks of a query hold them.

A broker lets one client of a group hold a partition. A task that died without a word holds its own
until the broker has not heard of it for half a minute (consumerRegTimeoutMs): the one that is to do
its work again waits for that.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mq.client.tube.balance_consumer import TubeBalanceConsumer
from mq.client.tube.errors import TubeError
from mq.client.tube.message import ConsumedOffset
from mq.pipeline.errors import PartitionOccupied
from mq.pipeline.tube.options import TubeReadOptions
from mq.protocol.tube.codes import UNDEFINED, Code

log = logging.getLogger(__name__)

_OCCUPIED_PAUSE = 0.5  # seconds; the client itself asks brokers each five


@asynccontextmanager
async def member(options: TubeReadOptions) -> AsyncIterator[TubeBalanceConsumer]:
    """A member of the query's group, which knows the partitions there are.

    Raises what registering at a master, and asking it, raises.
    """
    topics = options.subscription()
    made = TubeBalanceConsumer(options.masters, options.group, topics, **options.client_keywords())
    async with made as consumer:
        await consumer.partitions()
        yield consumer


async def hold(
    consumer: TubeBalanceConsumer, key: str, options: TubeReadOptions, offset: int = UNDEFINED
) -> ConsumedOffset:
    """Hold a partition; from an offset on, if one is given. Returns where it begins and ends.

    Raises PartitionOccupied if somebody else has it for longer than the options say, and what its
    broker and connecting raise.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + options.occupied_ms / 1000
    told = False
    while True:
        try:
            await consumer.connect(key, offset)
        except TubeError as error:
            if error.code not in (Code.PARTITION_OCCUPIED, Code.CLIENT_HIGH_FREQUENCY_REQUEST):
                raise
            if loop.time() >= end:
                raise PartitionOccupied(
                    key, options.group, options.occupied_ms / 1000, str(error)
                ) from None
            if not told:
                log.warning("%s: waiting for whoever has it: %s", key, error)
                told = True
            await asyncio.sleep(_OCCUPIED_PAUSE)
        else:
            return consumer.current_offsets()[key]
