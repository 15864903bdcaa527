"""Heartbeats to brokers."""

import asyncio
from typing import Any

import pytest

from mq.protocol.tube.codes import Code, Method
from tests.client.tube.consumers import consuming, holding
from tests.client.tube.scripted import (
    BROKEN,
    GARBAGE,
    HANG,
    HANG_UP,
    Broker,
    Master,
    Step,
    accept,
    message,
    refuse,
)
from tests.client.tube.virtual_time import run_fast

BEAT = Method.CONSUMER_HEARTBEAT_C2B
MASTER_BEAT = Method.CONSUMER_HEARTBEAT_C2M


def test_a_broker_hears_of_its_partitions_in_the_interval() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker, 0, 1):
            registered = broker.asked_at(Method.CONSUMER_REGISTER_C2B)[0]
            await broker.heard(BEAT, 3)
            assert [time - registered for time in broker.asked_at(BEAT)] == [5, 15, 25]
            beat = broker.asked(BEAT)[0]
            assert sorted(beat.partitionInfo) == sorted(
                str(broker.partition(number)) for number in (0, 1)
            )
            assert (beat.readStatus, beat.qryPriorityId) == (0, -2)
            assert beat.authInfo.visitAuthorizedToken == -2

    run_fast(scenario())


def test_partitions_that_the_broker_has_given_away_leave_and_the_master_hears_it() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker, 0, 1, 2) as consumer:
            infos = [f"411:{broker.partition(0)}", "nonsense", f"412:{broker.partition(2)}"]
            infos.append(f"411:{broker.partition(7)}")
            broker.plays(BEAT, accept(BEAT, hasPartFailure=True, failureInfo=infos), accept(BEAT))
            await broker.heard(BEAT)
            beats = len(master.asked(MASTER_BEAT))
            report = await master.heard(MASTER_BEAT, beats + 1)
            assert list(consumer.current_offsets()) == ["1:orders:1"]
            assert report.reportSubscribeInfo and len(report.subscribeInfo) == 1
            assert list((await broker.heard(BEAT, 2)).partitionInfo) == [str(broker.partition(1))]

    run_fast(scenario())


def test_a_late_failure_says_nothing_of_a_partition_that_has_come_back() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker, heartbeat_interval=1.0) as consumer:
            late: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            broker.plays(BEAT, late)
            await broker.heard(BEAT)
            master.orders((2, (broker.partition(),)), (1, (broker.partition(),)))
            await broker.heard(Method.CONSUMER_REGISTER_C2B, 3)
            await asyncio.sleep(0.1)
            broker.plays(BEAT)
            infos = [f"411:{broker.partition()}"]
            late.set_result(accept(BEAT, hasPartFailure=True, failureInfo=infos))
            await broker.heard(BEAT, 2)
            assert list(consumer.current_offsets()) == ["1:orders:0"]

    run_fast(scenario())


def test_without_the_flag_what_is_listed_as_failed_is_not() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker) as consumer:
            broker.plays(BEAT, accept(BEAT, failureInfo=[f"411:{broker.partition(0)}"]))
            await broker.heard(BEAT, 2)
            assert list(consumer.current_offsets()) == ["1:orders:0"]

    run_fast(scenario())


def test_a_broker_that_does_not_take_our_tokens_has_nothing_of_ours() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker, 0, 1) as consumer:
            broker.plays(BEAT, refuse(BEAT, Code.CERTIFICATE_FAILURE))
            await broker.heard(BEAT)
            await asyncio.sleep(30)
            assert consumer.current_offsets() == {}
            assert len(broker.asked(BEAT)) == 1
            # and when it has given us something again, it hears of it
            broker.plays(BEAT)
            master.assigns(broker.partition(1))
            await broker.heard(BEAT, 2)

    run_fast(scenario())


@pytest.mark.parametrize(
    "step",
    [refuse(BEAT, Code.SERVICE_UNAVAILABLE), HANG, HANG_UP, BROKEN, GARBAGE],
    ids=str,
)
def test_behind_a_heartbeat_in_vain_the_partitions_stay_and_the_next_one_comes(step: Step) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker) as consumer:
            broker.plays(BEAT, step)
            await broker.heard(BEAT, 4)
            broker.plays(BEAT)
            await broker.heard(BEAT, 5)
            batch = await consumer.get_message()
            assert batch.messages[0].message_id == 1
            await consumer.confirm(batch)

    run_fast(scenario())


def test_each_broker_has_its_own_heartbeats() -> None:
    async def scenario() -> None:
        master, silent, broker = Master(), Broker(2), Broker(1)
        async with consuming(master, silent, broker) as consumer:
            master.assigns(silent.partition(), broker.partition())
            while len(consumer.current_offsets()) < 2:
                await consumer._table.changed()
            silent.is_deaf = True
            await broker.heard(BEAT, 4)
            times = broker.asked_at(BEAT)
            assert [time - times[0] for time in times] == [0, 10, 20, 30]
            # 15 s of timeout, and the interval after it
            times = silent.asked_at(BEAT)
            assert [time - times[0] for time in times] == [0, 25]

    run_fast(scenario())
