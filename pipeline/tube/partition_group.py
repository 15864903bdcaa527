"""The query's own group, and its partitions: how the driver and the tasks of a query hold them.

A broker lets one client of a group hold a partition. A killed task keeps its partition until its
broker has received nothing from it for half a minute (consumerRegTimeoutMs); the task that repeats
its work waits for that.
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

_OCCUPIED_PAUSE = 0.5  # seconds; the client itself queries brokers every five


@asynccontextmanager
async def member(options: TubeReadOptions) -> AsyncIterator[TubeBalanceConsumer]:
    """Provide a member of the query's group, which knows the current partitions.

    Raises the errors of the registration at a master, and of its queries.
    """
    topics = options.subscription()
    made = TubeBalanceConsumer(options.masters, options.group, topics, **options.client_keywords())
    async with made as consumer:
        await consumer.partitions()
        yield consumer


async def hold(
    consumer: TubeBalanceConsumer, key: str, options: TubeReadOptions, offset: int = UNDEFINED
) -> ConsumedOffset:
    """Hold a partition, from an offset on if one is given. Returns its start and end.

    Raises PartitionOccupied if another client holds it for longer than the options allow, and the
    errors of the connection and the broker.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + options.occupied_ms / 1000
    logged = False
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
            if not logged:
                log.warning("%s: waiting until its holder releases it: %s", key, error)
                logged = True
            await asyncio.sleep(_OCCUPIED_PAUSE)
        else:
            return consumer.current_offsets()[key]
