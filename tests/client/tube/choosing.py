"""A consumer that chooses its partitions, and its masters."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mq.client.tube.balance_consumer import TubeBalanceConsumer
from mq.protocol.tube.codes import Method
from tests.client.tube.consumers import GROUP
from tests.client.tube.scripted import (
    Broker,
    Master,
    accept,
    opened,
)

META = Method.CONSUMER_GET_PART_META_C2M
TAKE = Method.CONSUMER_REGISTER_C2B
KEYS = ["1:orders:0", "1:orders:1", "1:orders:10000", "1:orders:10001"]


def metadata(broker: Broker, status: int = 1, number: int = 9) -> dict[str, Any]:
    """The lists of an answer: two stores of two partitions each."""
    return {
        "brokerConfigId": 5,
        "brokerConfigList": [f"1:127.0.0.1:{broker.port}"],
        "topicMetaInfoId": number,
        "topicMetaInfoList": [f"orders#1:2:2:{status},7:1:1:1"],
    }


@asynccontextmanager
async def choosing(
    master: Master, broker: Broker, **options: Any
) -> AsyncIterator[TubeBalanceConsumer]:
    async with opened(master, broker):
        if not master.has_script(META):
            master.plays(META, accept(META, **metadata(broker)))
        async with TubeBalanceConsumer(master.address, GROUP, ["orders"], **options) as consumer:
            yield consumer
