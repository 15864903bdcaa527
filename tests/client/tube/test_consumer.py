"""Reading message after message, and leaving: at any moment, whatever peers do."""

import asyncio
import gc
import ssl
from typing import Any

import pytest

from mq.client.errors import ClientError
from mq.client.transport.tls import client_context
from mq.client.tube.consumer import TubeConsumer
from mq.client.tube.errors import TubeError
from mq.daemons.tls_config import load_test_certificate
from mq.protocol.tube.codes import Code, EventType, Method
from tests.client.tube.consumers import GROUP, consuming, holding
from tests.client.tube.scripted import (
    HANG,
    HANG_UP,
    Broker,
    Master,
    Step,
    accept,
    message,
    opened,
    refuse,
)
from tests.client.tube.virtual_time import run_fast
from tests.daemons.own_time import settled

BEAT = Method.CONSUMER_HEARTBEAT_C2M
CLOSE = Method.CONSUMER_CLOSE_C2M
REGISTER = Method.CONSUMER_REGISTER_C2B
GET = Method.GET_MESSAGES_C2B
COMMIT = Method.CONSUMER_COMMIT_C2B


def stocked(partitions: int, packs: int) -> Broker:
    """A broker whose partitions have packs of two messages, numbered by partition and place."""
    broker = Broker()
    for number in range(partitions):
        broker.stores(
            broker.partition(number),
            *(
                [message(number * 1000 + pack * 2), message(number * 1000 + pack * 2 + 1)]
                for pack in range(packs)
            ),
        )
    return broker


def everything(partitions: int, packs: int) -> list[int]:
    return [number * 1000 + one for number in range(partitions) for one in range(packs * 2)]


def test_messages_come_one_after_the_other_and_are_confirmed_behind_the_last() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(2, 5)
        seen: list[int] = []
        async with holding(master, broker, 0, 1) as consumer:
            async for one in consumer:
                seen.append(one.message_id)
                given = len(seen)
                assert sum(broker.committed.values()) <= given // 2
                if given == 20:
                    break
        assert sorted(seen) == everything(2, 5)
        assert dict(broker.committed) == {"orders:0": 5, "orders:1": 5}

    run_fast(scenario())


def test_a_pack_that_was_left_in_the_middle_comes_again() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(1, 2)
        async with holding(master, broker) as consumer:
            async for one in consumer:
                if one.message_id == 2:
                    break
        assert broker.committed_of(broker.partition()) == 1

    run_fast(scenario())


def test_a_block_left_with_an_error_confirms_nothing() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(1, 2)
        with pytest.raises(RuntimeError, match="mine"):
            async with holding(master, broker) as consumer:
                async for one in consumer:
                    if one.message_id == 1:
                        raise RuntimeError("mine")
        assert broker.committed_of(broker.partition()) == 0

    run_fast(scenario())


def test_one_may_iterate_again() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(1, 3)
        seen: list[int] = []
        async with holding(master, broker) as consumer:
            for _ in range(3):
                async for one in consumer:
                    seen.append(one.message_id)
                    if one.message_id % 2:
                        break
        assert seen == everything(1, 3)
        assert broker.committed_of(broker.partition()) == 3

    run_fast(scenario())


def test_a_loop_that_was_left_in_the_middle_of_a_reply_is_gone_on_with_at_once() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(1, 2)
        seen: list[int] = []
        async with holding(master, broker) as consumer:
            async for one in consumer:
                seen.append(one.message_id)
                break
            begun = asyncio.get_running_loop().time()
            async for one in consumer:
                seen.append(one.message_id)
                if len(seen) == 5:
                    break
            assert asyncio.get_running_loop().time() - begun < 1
        assert seen == [0, *everything(1, 2)]

    run_fast(scenario())


def test_of_loops_side_by_side_each_confirms_what_it_has_been_given_itself() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(2, 2)
        async with holding(master, broker, 0, 1) as consumer:
            first, second = aiter(consumer), aiter(consumer)
            # Each has the last message of a reply, and works on it.
            for loop in (first, first, second, second):
                one = await anext(loop)
            assert sum(broker.committed.values()) == 0
            await anext(first)  # done with its first reply
            assert sum(broker.committed.values()) == 1
            assert broker.committed_of(broker.partition(one.message_id // 1000)) == 0
            await anext(second)
            assert sum(broker.committed.values()) == 2

    run_fast(scenario())


def test_reading_goes_on_over_whatever_is_worth_another_try() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(1, 1)
        codes = [301, 400 + 3, 404, 452, 500, 503, 510, 599]
        async with holding(master, broker) as consumer:

            def lift(request: Any) -> Any:
                broker.plays(GET)
                return broker.step(GET, request)

            broker.plays(GET, *(refuse(GET, code) for code in codes), HANG_UP, HANG, lift)
            async for one in consumer:
                if one.message_id == 1:
                    break
            assert len(broker.asked(GET)) == len(codes) + 3

    run_fast(scenario())


def test_reading_ends_with_what_another_try_does_not_change() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker) as consumer:
            broker.plays(GET, refuse(GET, Code.BAD_REQUEST))
            with pytest.raises(TubeError) as caught:
                async for _ in consumer:
                    pass
            assert caught.value.code == Code.BAD_REQUEST

    run_fast(scenario())


def test_reading_ends_without_an_error_when_the_consumer_is_closed() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(1, 1)
        async with holding(master, broker) as consumer:

            async def read() -> list[int]:
                return [one.message_id async for one in consumer]

            reading = asyncio.ensure_future(read())
            await broker.heard(COMMIT)
            await asyncio.sleep(5)
            await consumer.close()
            assert await reading == [0, 1]

    run_fast(scenario())


def test_a_confirmation_in_vain_does_not_end_the_reading() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(1, 3)
        async with holding(master, broker) as consumer:
            broker.plays(COMMIT, HANG_UP)
            seen: list[int] = []
            async for one in consumer:
                seen.append(one.message_id)
                if len(seen) == 6:
                    break
            assert seen == everything(1, 3)

    run_fast(scenario())


def unregistered(master: Master) -> Any:
    """An answer that is given only as long as the master has not heard of it."""

    def answer(request: Any) -> Any:
        assert not master.asked(CLOSE)
        return accept(REGISTER)

    return answer


def test_who_leaves_gives_the_partitions_back_before_the_master_hears_of_it() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(3, 1)
        async with holding(master, broker, 0, 1, 2):
            broker.plays(REGISTER, unregistered(master))
        given_back = [one.partitionId for one in broker.asked(REGISTER) if one.opType == 32]
        assert sorted(given_back) == [0, 1, 2]
        closing = master.asked(CLOSE)[0]
        assert closing.groupName == GROUP and closing.clientId

    run_fast(scenario())


@pytest.mark.parametrize("step", [HANG, HANG_UP, refuse(REGISTER, 500)], ids=str)
def test_leaving_takes_as_long_as_the_options_say_at_most(step: Step) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        master, broker = Master(), Broker()
        async with holding(master, broker, 0, 1, close_wait=4.0) as consumer:
            broker.plays(REGISTER, step)
            master.plays(CLOSE, HANG)
            began = loop.time()
            await consumer.close()
            assert loop.time() - began == 4.0
            await consumer.close()

    run_fast(scenario())


def test_who_leaves_waits_for_what_is_being_taken() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        master, broker = Master(), Broker()
        async with consuming(master, broker, close_wait=30.0) as consumer:
            failing = refuse(REGISTER, Code.SERVICE_UNAVAILABLE)
            broker.plays(REGISTER, failing, failing, accept(REGISTER))
            master.assigns(broker.partition())
            await broker.heard(REGISTER)
            began = loop.time()
            await consumer.close()
            assert loop.time() - began == 2.0
            assert [one.opType for one in broker.asked(REGISTER)] == [31, 31, 31, 32]

    run_fast(scenario())


def test_who_leaves_while_a_registration_hangs_takes_it_back() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with consuming(master, broker, close_wait=2.0) as consumer:
            broker.plays(REGISTER, HANG, accept(REGISTER))
            master.assigns(broker.partition())
            await broker.heard(REGISTER)
            await consumer.close()
            assert [one.opType for one in broker.asked(REGISTER)] == [31, 32]

    run_fast(scenario())


def test_a_closed_consumer_does_nothing_any_more() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(1, 1)
        async with holding(master, broker) as consumer:
            await consumer.close()
            heard = len(master.requests), len(broker.requests)
            await asyncio.sleep(300)
            assert (len(master.requests), len(broker.requests)) == heard
            assert consumer.current_offsets() == {}
            with pytest.raises(ClientError):
                await consumer.start()

    run_fast(scenario())


def test_a_consumer_that_never_started_can_be_closed() -> None:
    async def scenario() -> None:
        consumer = TubeConsumer("127.0.0.1:1", GROUP, ["orders"])
        assert (consumer.client_id, consumer.current_offsets()) == ("", {})
        await consumer.close()
        await consumer.close()

    run_fast(scenario())


class _Complaints:
    """The complaints of a loop: exceptions that were never retrieved."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.all.append(context))


async def at_step(number: int, act: Any) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
    await act()


# From the answer to the heartbeat that has the partitions on; the work has fewer steps.
STEPS = range(0, 120)


@pytest.mark.parametrize("part", range(4))
def test_at_whatever_moment_one_leaves_nothing_stays_behind(part: int) -> None:
    async def scenario(step: int) -> int:
        complaints = _Complaints()
        master, broker = Master(), stocked(2, 3)
        given: list[int] = []
        async with opened(master, broker):
            master.orders((1, (broker.partition(0), broker.partition(1))))
            consumer = TubeConsumer(master.address, GROUP, ["orders"])
            await consumer.start()

            async def read() -> None:
                async for one in consumer:
                    given.append(one.message_id)

            reading = asyncio.ensure_future(read())
            await master.heard(BEAT)
            await at_step(step, consumer.close)
            await reading
            assert not broker.owners
            assert len(master.asked(CLOSE)) == 1
            for number in range(2):
                packs = sum(one // 1000 == number for one in given) // 2
                assert broker.committed_of(broker.partition(number)) <= packs
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left
        gc.collect()
        assert not complaints.all
        return len(given)

    with settled():
        counts = {run_fast(scenario(step)) for step in STEPS[part::4]}
    # from a loss before the first message to one after the last
    assert 0 in counts and 12 in counts


@pytest.mark.parametrize("part", range(4))
def test_at_whatever_moment_a_connection_is_lost_no_message_is(part: int) -> None:
    async def scenario(step: int) -> None:
        complaints = _Complaints()
        master, broker = Master(), stocked(2, 3)
        given: list[int] = []
        async with opened(master, broker):
            master.orders((1, (broker.partition(0), broker.partition(1))))
            async with TubeConsumer(master.address, GROUP, ["orders"]) as consumer:
                await master.heard(BEAT)

                async def hang_up() -> None:
                    broker.hang_up()

                losing = asyncio.ensure_future(at_step(step, hang_up))
                async for one in consumer:
                    given.append(one.message_id)
                    if set(given) == set(everything(2, 3)):
                        break
                await losing
            # what was under way may come twice, and nothing else
            assert len(given) <= len(everything(2, 3)) + 4
            assert sum(broker.committed.values()) >= 5
        gc.collect()
        assert not complaints.all

    with settled():
        for step in STEPS[part::4]:
            run_fast(scenario(step))


@pytest.mark.parametrize("part", range(4))
def test_whoever_gives_up_a_call_at_whatever_moment_loses_nothing(part: int) -> None:
    async def scenario(step: int) -> None:
        complaints = _Complaints()
        master, broker = Master(), stocked(2, 3)
        given: list[int] = []
        async with holding(master, broker, 0, 1) as consumer:

            async def read() -> None:
                while True:
                    batch = await consumer.get_message()
                    given.extend(one.message_id for one in batch.messages)
                    await consumer.confirm(batch)

            reading = asyncio.ensure_future(read())

            async def cancel() -> None:
                reading.cancel()

            await at_step(step, cancel)
            with pytest.raises(asyncio.CancelledError):
                await reading
            while set(given) != set(everything(2, 3)):
                try:
                    batch = await consumer.get_message()
                except TubeError as error:
                    assert error.retriable
                    continue
                given.extend(one.message_id for one in batch.messages)
                await consumer.confirm(batch)
            assert len(given) <= len(everything(2, 3)) + 2
        gc.collect()
        assert not complaints.all

    with settled():
        for step in range(part, 40, 4):
            run_fast(scenario(step))


def test_a_master_that_stands_still_ends_neither_reading_nor_leaving() -> None:
    async def scenario() -> None:
        master, broker = Master(), stocked(1, 3)
        async with holding(master, broker) as consumer:
            master.is_deaf = True
            seen: list[int] = []
            async for one in consumer:
                seen.append(one.message_id)
                if one.message_id % 2:
                    await asyncio.sleep(40)
                if len(seen) == 6:
                    break
        assert seen == everything(1, 3)
        assert not broker.owners

    run_fast(scenario())


def test_everything_goes_through_tls() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_test_certificate(server)

    async def scenario() -> None:
        master, broker = Master(), stocked(1, 2)
        async with opened(master, broker, ssl=server):
            master.orders((EventType.CONNECT, (broker.partition(),)))
            seen: list[int] = []
            tls = client_context()
            async with TubeConsumer(master.address, GROUP, ["orders"], tls=tls) as consumer:
                async for one in consumer:
                    seen.append(one.message_id)
                    if len(seen) == 4:
                        break
            assert seen == everything(1, 2)

    run_fast(scenario())
