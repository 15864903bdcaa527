"""Confirming messages, or not: which are committed, and which are redelivered."""

import asyncio
from typing import Any

import pytest

from mq.client.errors import ConnectError, MQError, RequestTimeout
from mq.client.tube.errors import ConfirmTimeout, TubeError
from mq.protocol.tube.codes import UNDEFINED, Code, Method
from tests.client.tube.consumers import holding
from tests.client.tube.scripted import (
    BROKEN,
    HANG,
    HANG_UP,
    Broker,
    Master,
    Step,
    message,
    refuse,
)
from tests.client.tube.virtual_time import run_fast

GET = Method.GET_MESSAGES_C2B
COMMIT = Method.CONSUMER_COMMIT_C2B


def test_a_confirmed_pack_is_committed_and_the_next_get_goes_on_behind_it() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)], [message(2)])
        async with holding(master, broker) as consumer:
            first = await consumer.get_message()
            assert not broker.asked(GET)[0].lastPackConsumed  # the first get confirms nothing
            assert await consumer.confirm(first) == 28
            assert broker.asked(COMMIT)[0].lastPackConsumed
            assert consumer.current_offsets()["1:orders:0"] == (28, 56)
            second = await consumer.get_message()
            assert broker.asked(GET)[1].lastPackConsumed
            assert second.messages[0].message_id == 2
            await consumer.confirm(second.confirm_context)
            assert broker.committed_of(broker.partition()) == 2

    run_fast(scenario())


def test_a_pack_that_was_not_consumed_comes_again() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)], [message(2)])
        async with holding(master, broker) as consumer:
            first = await consumer.get_message()
            await consumer.confirm(first, consumed=False)
            assert not broker.asked(COMMIT)[0].lastPackConsumed
            again = await consumer.get_message()
            assert again.messages == first.messages
            assert not broker.asked(GET)[1].lastPackConsumed

    run_fast(scenario())


@pytest.mark.parametrize("locally", [True, False])
def test_a_pack_whose_reply_was_lost_comes_again(locally: bool) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), *([message(number)] for number in range(3)))
        async with holding(master, broker, confirm_locally=locally) as consumer:
            await consumer.confirm(await consumer.get_message())

            def lose(request: Any) -> str:
                broker.usually(GET, request)
                broker.plays(GET)
                return HANG_UP

            broker.plays(GET, lose)
            with pytest.raises(ConnectError):
                await consumer.get_message()
            second = await consumer.get_message()
            assert [one.message_id for one in second.messages] == [1]

    run_fast(scenario())


def test_if_the_one_gives_up_to_whom_messages_were_to_go_the_next_one_has_them() -> None:
    async def scenario(step: int) -> bool:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker) as consumer:
            first = asyncio.ensure_future(consumer.get_message())
            await asyncio.sleep(0)
            second = asyncio.ensure_future(consumer.get_message())
            for _ in range(step):
                await asyncio.sleep(0)
            first.cancel()
            if first.done() and not first.cancelled():
                second.cancel()
                return False
            async with asyncio.timeout(5):
                assert (await second).messages[0].message_id == 1
            return True

    assert {run_fast(scenario(step)) for step in range(25)} == {True, False}


def test_confirming_locally_leaves_it_to_the_next_get() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)], [message(2)], [message(3)])
        async with holding(master, broker, confirm_locally=True) as consumer:
            assert await consumer.confirm(await consumer.get_message()) == UNDEFINED
            assert broker.committed_of(broker.partition()) == 0
            second = await consumer.get_message()
            assert broker.committed_of(broker.partition()) == 1
            assert second.messages[0].message_id == 2
            await consumer.confirm(second)
            assert not broker.asked(COMMIT)
        assert broker.committed_of(broker.partition()) == 2  # with the farewell

    run_fast(scenario())


@pytest.mark.parametrize(
    "context",
    ["", "1:orders:0", "1:orders:0@", "1:orders:0@x", "1:orders@5", "x:orders:0@5", "a@b@5", "@5"],
)
def test_a_context_that_is_none_is_refused(context: str) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker) as consumer:
            await consumer.get_message()
            with pytest.raises(TubeError) as caught:
                await consumer.confirm(context)
            assert caught.value.code == Code.BAD_REQUEST
            assert not broker.asked(COMMIT)

    run_fast(scenario())


def test_messages_can_be_confirmed_once_and_only_by_their_own_context() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)], [message(2)])
        async with holding(master, broker) as consumer:
            first = await consumer.get_message()
            at_once = await asyncio.gather(
                consumer.confirm(first), consumer.confirm(first), return_exceptions=True
            )
            assert at_once[0] == 28
            assert isinstance(at_once[1], TubeError) and at_once[1].code == Code.BAD_REQUEST
            second = await consumer.get_message()
            assert second.confirm_context != first.confirm_context
            for context in (first.confirm_context, "1:orders:7@5"):
                with pytest.raises(ConfirmTimeout):
                    await consumer.confirm(context)
            await consumer.confirm(second)

    run_fast(scenario())


@pytest.mark.parametrize(
    "step", [HANG_UP, HANG, BROKEN, refuse(COMMIT, Code.UNAUTHORIZED)], ids=str
)
def test_a_commit_in_vain_is_raised_and_the_partition_goes_on(step: Step) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)], [message(2)])
        async with holding(master, broker) as consumer:
            broker.plays(COMMIT, step)
            batch = await consumer.get_message()
            with pytest.raises(MQError):
                await consumer.confirm(batch)
            second = await consumer.get_message()
            assert broker.asked(GET)[1].lastPackConsumed  # this says it again
            assert second.messages[0].message_id == 2

    run_fast(scenario())


def test_who_gives_up_confirming_does_not_end_it() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)], [message(2)])
        async with holding(master, broker) as consumer:
            batch = await consumer.get_message()
            task = asyncio.ensure_future(consumer.confirm(batch))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await broker.heard(COMMIT)
            second = await consumer.get_message()
            assert second.messages[0].message_id == 2
            assert broker.committed_of(broker.partition()) == 1

    run_fast(scenario())


def test_messages_that_are_not_confirmed_in_time_come_again() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker, ready_wait=200.0) as consumer:
            first = await consumer.get_message()
            given = asyncio.get_running_loop().time()
            again = await consumer.get_message()
            assert again.messages == first.messages
            waited = broker.asked_at(GET)[1] - given
            assert 60 <= waited < 75  # 60 s, and what was left to the next heartbeat
            assert not broker.asked(GET)[1].lastPackConsumed
            with pytest.raises(ConfirmTimeout):
                await consumer.confirm(first)
            await consumer.confirm(again)
            assert broker.committed_of(broker.partition()) == 1

    run_fast(scenario())


def test_messages_that_are_being_confirmed_do_not_come_again() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)], [message(2)])
        options = {"confirm_wait": 1.0, "ready_wait": 100.0, "timeout": 100.0}
        async with holding(master, broker, **options) as consumer:
            broker.plays(COMMIT, HANG)
            first = await consumer.get_message()
            confirming = asyncio.ensure_future(consumer.confirm(first))
            await asyncio.sleep(50)
            assert len(broker.asked(GET)) == 1
            with pytest.raises(RequestTimeout):
                await confirming

    run_fast(scenario())


def test_messages_are_held_for_ever_if_the_options_say_so() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker, confirm_wait=float("inf")) as consumer:
            batch = await consumer.get_message()
            await asyncio.sleep(3600)
            await consumer.confirm(batch)
            assert broker.committed_of(broker.partition()) == 1

    run_fast(scenario())
