"""Registering at masters: which is asked, which error is raised, and starts that are given up."""

import asyncio
from typing import Any

import pytest

from mq.client.errors import BadAnswer, ClientError, ConnectError, MQError, RequestTimeout
from mq.client.tube.consumer import TubeConsumer
from mq.client.tube.errors import (
    GroupDiffers,
    GroupForbidden,
    NotAuthenticated,
    StandbyMaster,
    TubeError,
)
from mq.protocol.tube.codes import UNDEFINED, Code, Method
from tests.client.tube.consumers import GROUP, consuming
from tests.client.tube.scripted import (
    BROKEN,
    GARBAGE,
    HANG,
    HANG_UP,
    STANDBY,
    Master,
    Step,
    accept,
    opened,
    refuse,
)
from tests.client.tube.virtual_time import run_fast

REGISTER = Method.CONSUMER_REGISTER_C2M
BEAT = Method.CONSUMER_HEARTBEAT_C2M
CLOSE = Method.CONSUMER_CLOSE_C2M


FAILURES: list[Step] = [HANG_UP, HANG, BROKEN, GARBAGE]


async def start(*masters: Master, **options: Any) -> TubeConsumer:
    """Start a consumer and close it. Raises the error of the start."""
    consumer = TubeConsumer([one.address for one in masters], GROUP, ["orders"], **options)
    try:
        await consumer.start()
    finally:
        await consumer.close()
    return consumer


def test_registering_says_who_consumes_what() -> None:
    async def scenario() -> None:
        master = Master()
        topics = {"orders": ["paid", "open"], "refunds": None, "events": []}
        async with consuming(master, topics=topics) as consumer:
            request = master.asked(REGISTER)[0]
            assert request.clientId == consumer.client_id
            assert consumer.client_id.startswith("reports_127.0.0.1-")
            assert (request.groupName, request.hostName) == ("reports", "127.0.0.1")
            assert list(request.topicList) == ["events", "orders", "refunds"]
            assert list(request.topicCondition) == ["orders#open,paid"]
            assert not request.requireBound and request.sessionTime > 0
            assert (request.defFlowCheckId, request.groupFlowCheckId) == (UNDEFINED, UNDEFINED)
            assert request.qryPriorityId == UNDEFINED
            assert not request.subscribeInfo
            assert not request.HasField("authInfo") and not request.HasField("sessionKey")

    run_fast(scenario())


def test_each_master_is_tried_once_and_the_first_that_takes_us_is_kept() -> None:
    async def scenario() -> None:
        masters = [Master(), Master(), Master()]
        masters[0].plays(REGISTER, STANDBY)
        masters[1].plays(REGISTER, refuse(REGISTER, Code.INTERNAL_SERVER_ERROR))
        async with consuming(masters):
            await masters[2].heard(BEAT)
        assert [len(one.asked(REGISTER)) for one in masters] == [1, 1, 1]
        assert [len(one.asked(BEAT)) for one in masters] == [0, 0, 1]
        assert [len(one.asked(CLOSE)) for one in masters] == [0, 0, 1]

    run_fast(scenario())


@pytest.mark.parametrize("step", FAILURES, ids=str)
def test_a_master_that_cannot_be_asked_is_passed_over(step: Step) -> None:
    async def scenario() -> None:
        masters = [Master(), Master()]
        masters[0].plays(REGISTER, step)
        async with consuming(masters):
            assert len(masters[1].asked(REGISTER)) == 1

    run_fast(scenario())


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (STANDBY, StandbyMaster),
        (HANG_UP, ConnectError),
        (HANG, RequestTimeout),
        (BROKEN, BadAnswer),
        (GARBAGE, BadAnswer),
        (refuse(REGISTER, Code.CERTIFICATE_FAILURE), NotAuthenticated),
        (refuse(REGISTER, Code.BAD_REQUEST), TubeError),
        (refuse(REGISTER, Code.TOPIC_NOT_DEPLOYED), TubeError),
        *((refuse(REGISTER, code), GroupDiffers) for code in range(424, 431)),
    ],
    ids=str,
)
def test_if_none_takes_us_the_reason_of_the_last_is_raised(step: Step, kind: type[MQError]) -> None:
    async def scenario() -> None:
        masters = [Master(), Master()]
        masters[0].plays(REGISTER, HANG_UP)
        masters[1].plays(REGISTER, step)
        async with opened(*masters):
            with pytest.raises(kind):
                await start(*masters)
            assert [len(one.asked(REGISTER)) for one in masters] == [1, 1]
            assert not any(one.asked(CLOSE) for one in masters)

    run_fast(scenario())


@pytest.mark.parametrize("code", [Code.CONSUME_GROUP_FORBIDDEN, Code.CONSUME_CONTENT_FORBIDDEN])
def test_a_group_that_is_forbidden_asks_no_other_master(code: Code) -> None:
    async def scenario() -> None:
        masters = [Master(), Master()]
        masters[0].plays(REGISTER, refuse(REGISTER, code))
        async with opened(*masters):
            with pytest.raises(GroupForbidden) as caught:
                await start(*masters)
            assert caught.value.code == code and not caught.value.retriable
            assert not masters[1].requests

    run_fast(scenario())


def test_a_start_that_failed_can_be_tried_again_and_one_that_succeeded_is_made_once() -> None:
    async def scenario() -> None:
        master = Master()
        master.plays(REGISTER, STANDBY, accept(REGISTER))
        async with opened(master):
            consumer = TubeConsumer(master.address, GROUP, ["orders"])
            with pytest.raises(ClientError, match="not started"):
                await consumer.get_message()
            with pytest.raises(ClientError, match="not started"):
                async for _ in consumer:
                    pass
            with pytest.raises(StandbyMaster):
                await consumer.start()
            await asyncio.gather(consumer.start(), consumer.start())
            await consumer.start()
            assert len(master.asked(REGISTER)) == 2
            await consumer.close()
            with pytest.raises(ClientError, match="closed"):
                await consumer.start()

    run_fast(scenario())


def test_a_start_that_is_given_up_is_over() -> None:
    async def scenario() -> None:
        master = Master()
        master.plays(REGISTER, HANG, accept(REGISTER))
        async with opened(master):
            consumer = TubeConsumer(master.address, GROUP, ["orders"])
            starting = asyncio.ensure_future(consumer.start())
            await master.heard(REGISTER)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            await consumer.start()
            await consumer.close()

    run_fast(scenario())


def test_a_cancelled_start_continues_for_another_caller() -> None:
    async def scenario() -> None:
        master = Master()
        master.plays(REGISTER, STANDBY, HANG, accept(REGISTER))
        async with opened(master):
            consumer = TubeConsumer([master.address, "127.0.0.1:1"], GROUP, ["orders"])
            starts = [asyncio.ensure_future(consumer.start()) for _ in range(2)]
            await master.heard(REGISTER)
            starts[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await starts[0]
            with pytest.raises(ConnectError):
                await starts[1]
            await consumer.close()

    run_fast(scenario())


def test_a_consumer_that_is_closed_while_it_starts_starts_no_more() -> None:
    async def scenario() -> None:
        master = Master()
        master.plays(REGISTER, HANG)
        async with opened(master):
            consumer = TubeConsumer(master.address, GROUP, ["orders"])
            starting = asyncio.ensure_future(consumer.start())
            await master.heard(REGISTER)
            await consumer.close()
            with pytest.raises(ClientError, match="closed"):
                await starting

    run_fast(scenario())
