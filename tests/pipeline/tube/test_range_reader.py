"""The behaviour of a task when a broker gives unusual replies: with scripted peers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mq.protocol.tube.codes import Code, Method, OpType
from tests.client.tube.scripted import (
    HANG_UP,
    Broker,
    Master,
    accept,
    message,
    opened,
    refuse,
)
from tests.client.tube.virtual_time import run_fast
from tests.pipeline.conftest import require_spark

require_spark()

from mq.client.tube.errors import NotAuthenticated  # noqa: E402
from mq.pipeline.errors import BrokerAway, DataLoss, PartitionOccupied  # noqa: E402
from mq.pipeline.puller import QueueRange  # noqa: E402
from mq.pipeline.tube.options import parse_tube_options  # noqa: E402
from mq.pipeline.tube.reading import RangeReader  # noqa: E402

GET, COMMIT = Method.GET_MESSAGES_C2B, Method.CONSUMER_COMMIT_C2B
TAKE, META = Method.CONSUMER_REGISTER_C2B, Method.CONSUMER_GET_PART_META_C2M

Read = Callable[..., Awaitable[list[int]]]


@asynccontextmanager
async def peers(*numbers: int) -> AsyncIterator[tuple[Broker, Read]]:
    """A broker with messages, one per reply, and a function that reads the ids of a range."""
    master, broker = Master(), Broker()
    async with opened(master, broker):
        brokers = [f"1:127.0.0.1:{broker.port}"]
        topics = ["orders#1:1:1:1"]
        lists = {"brokerConfigId": 5, "brokerConfigList": brokers}
        master.plays(META, accept(META, topicMetaInfoId=9, topicMetaInfoList=topics, **lists))
        broker.stores(broker.partition(), *([message(number)] for number in numbers))

        async def read(end: int, *, skip_absent: bool = True, **options: str) -> list[int]:
            given = {"masters": master.address, "topic": "orders", "group": "spark", **options}
            whole = QueueRange("orders", "1", 0, 0, end)
            reader = RangeReader(parse_tube_options(given), whole, skip_absent=skip_absent)
            return [one.message_id async for reply in reader.replies() for one in reply.messages]

        yield broker, read


def usual(broker: Broker, method: Method) -> Callable[[Any], Any]:
    return lambda request: broker.usually(method, request)


def by_turns(broker: Broker, method: Method, *steps: Any) -> None:
    """Answer with these steps, then as usual; None means as usual.

    The request is executed in any case.
    """

    def turn(step: Any) -> Callable[[Any], Any]:
        def answer(request: Any) -> Any:
            answered = usual(broker, method)(request)
            return answered if step is None else step

        return answer

    broker.plays(method, *map(turn, steps), usual(broker, method))


@pytest.mark.parametrize("method", [GET, COMMIT])
@pytest.mark.parametrize("step", [HANG_UP, "broken"])
def test_messages_with_a_lost_reply_or_confirmation_are_read_once(
    method: Method, step: str
) -> None:
    async def scenario() -> None:
        async with peers(1, 2, 3) as (broker, read):
            by_turns(broker, method, None, step)
            assert await read(84) == [1, 2, 3]

    run_fast(scenario())


@pytest.mark.parametrize(
    "step",
    [
        refuse(GET, Code.HB_NO_NODE),
        refuse(GET, Code.DUPLICATE_PARTITION),
        refuse(GET, Code.CERTIFICATE_FAILURE),
        refuse(GET, Code.SERVICE_UNAVAILABLE),
        refuse(GET, Code.MOVED),
        refuse(GET, Code.INTERNAL_SERVER_ERROR),
    ],
    ids=lambda step: Code(step.errCode).name,
)
def test_a_temporary_refusal_is_retried(step: Any) -> None:
    async def scenario() -> None:
        async with peers(1, 2, 3) as (broker, read):
            by_turns(broker, GET, None, step)
            assert await read(84) == [1, 2, 3]

    run_fast(scenario())


def test_a_rate_limit_is_obeyed_however_often_it_is_reported() -> None:
    async def scenario() -> None:
        async with peers(1, 2) as (broker, read):
            limited: Any = refuse(GET, Code.SERVER_CONSUME_SPEED_LIMIT)
            limited.minLimitTime = 5000
            by_turns(broker, GET, *[limited] * 20)
            begin = asyncio.get_running_loop().time()
            assert await read(56, numRetries="0") == [1, 2]
            assert asyncio.get_running_loop().time() - begin >= 100

    run_fast(scenario())


def test_messages_in_the_memory_of_a_broker_are_awaited() -> None:
    async def scenario() -> None:
        async with peers(1, 2) as (broker, read):
            by_turns(broker, GET, None, *[refuse(GET, Code.NOT_FOUND)] * 50)  # 20 seconds
            assert await read(56, numRetries="0") == [1, 2]

    run_fast(scenario())


def test_messages_that_a_broker_reports_and_never_returns_are_data_loss() -> None:
    async def scenario() -> None:
        async with peers(1, 2) as (broker, read):
            broker.plays(GET, refuse(GET, Code.NOT_FOUND))
            with pytest.raises(DataLoss, match="offset 0: 1 attempts failed"):
                await read(56, numRetries="0")
            with pytest.raises(BrokerAway):
                await read(56, numRetries="0", failOnDataLoss="false", skip_absent=False)

    run_fast(scenario())


def test_messages_deleted_before_or_during_a_read_are_data_loss() -> None:
    async def scenario() -> None:
        async with peers(1, 2, 3, 4) as (broker, read):

            def raised(request: Any) -> Any:
                if request.opType == OpType.REGISTER:
                    request.currOffset = max(request.currOffset, 28)
                return broker.usually(TAKE, request)

            broker.plays(TAKE, raised)
            with pytest.raises(DataLoss, match="from offset 0 to 28 are gone: they were deleted"):
                await read(112)
            broker.plays(TAKE, raised)
            assert await read(112, failOnDataLoss="false") == [2, 3, 4]

            broker.plays(TAKE)

            def skips(request: Any) -> Any:
                broker.committed["orders:0"] += 2
                return broker.usually(GET, request)

            broker.plays(GET, skips, usual(broker, GET))
            with pytest.raises(DataLoss, match="from offset 0 to 56 are gone"):
                await read(112)

    run_fast(scenario())


def test_a_partition_of_another_client_is_awaited_until_the_timeout() -> None:
    async def scenario() -> None:
        async with peers(1) as (broker, read):
            occupied = refuse(TAKE, Code.PARTITION_OCCUPIED)
            broker.plays(TAKE, *[occupied] * 4, usual(broker, TAKE))
            assert await read(28) == [1]
            broker.plays(TAKE, occupied)
            begin = asyncio.get_running_loop().time()
            with pytest.raises(PartitionOccupied, match="A query needs a group of its own"):
                await read(28, occupiedTimeoutMs="12000")
            assert 12 <= asyncio.get_running_loop().time() - begin < 20

    run_fast(scenario())


def test_a_missing_permission_is_not_reported_as_data_loss() -> None:
    async def scenario() -> None:
        async with peers(1) as (broker, read):
            broker.plays(TAKE, refuse(TAKE, Code.CERTIFICATE_FAILURE))
            with pytest.raises(NotAuthenticated):
                await read(28, numRetries="1")

    run_fast(scenario())
