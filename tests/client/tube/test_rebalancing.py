"""Requests of masters: partitions assigned and revoked, in any order."""

import asyncio
from typing import Any

import pytest

from mq.client.tube.consumer import TubeConsumer
from mq.client.tube.errors import ConfirmTimeout
from mq.client.tube.message import TubeBatch
from mq.client.tube.options import ConsumeFrom
from mq.protocol.tube.codes import Code, EventType, Method, OpType
from tests.client.tube.consumers import GROUP, consuming, holding
from tests.client.tube.scripted import (
    BROKEN,
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

BEAT = Method.CONSUMER_HEARTBEAT_C2M
REGISTER = Method.CONSUMER_REGISTER_C2B
GET = Method.GET_MESSAGES_C2B


def registrations(broker: Broker) -> list[tuple[int, int]]:
    """Operation and partition of each, in order."""
    return [(one.opType, one.partitionId) for one in broker.asked(REGISTER)]


async def settled(consumer: TubeConsumer, *numbers: int) -> None:
    """Wait until exactly these partitions of broker 1 are held."""
    wanted = {f"1:orders:{number}" for number in numbers}
    while set(consumer.current_offsets()) != wanted:
        await consumer._table.changed()


async def told(master: Master, kind: int) -> Any:
    """The heartbeat that says that an event of this kind was done."""
    while master.asked(BEAT)[-1].event.opType != kind:
        await master.heard(BEAT, len(master.asked(BEAT)) + 1)
    return master.asked(BEAT)[-1]


@pytest.mark.parametrize("kind", [EventType.CONNECT, EventType.ONLY_CONNECT])
def test_partitions_are_taken_once_and_those_held_are_left_as_they_are(kind: EventType) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with consuming(master, broker) as consumer:
            master.orders(
                (kind, (broker.partition(0),)),
                (kind, (broker.partition(0), broker.partition(1), broker.partition(1))),
            )
            await settled(consumer, 0, 1)
            await master.heard(BEAT, 4)
            assert registrations(broker) == [(31, 0), (31, 1)]

    run_fast(scenario())


@pytest.mark.parametrize("kind", [EventType.DISCONNECT, EventType.ONLY_DISCONNECT])
def test_partitions_are_given_back_and_others_stay(kind: EventType) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker, 0, 1) as consumer:
            master.orders((kind, (broker.partition(1), broker.partition(7))))
            await settled(consumer, 0)
            await broker.heard(REGISTER, 3)
            assert registrations(broker) == [(31, 0), (31, 1), (32, 1)]
            result = await told(master, kind)
            assert (result.event.opType, result.event.status) == (kind, 2)
            assert len(result.event.subscribeInfo) == 2  # as it came
            assert len(result.subscribeInfo) == 1

    run_fast(scenario())


@pytest.mark.parametrize(
    "kind", [EventType.REPORT, EventType.REFRESH, EventType.STOPREBALANCE, 0, 99]
)
def test_an_event_that_asks_for_nothing_has_no_result(kind: int) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with consuming(master, broker) as consumer:
            master.orders((kind, (broker.partition(),)), (1, (broker.partition(1),)))
            await settled(consumer, 1)
            assert not (await master.heard(BEAT, 2)).HasField("event")
            assert (await master.heard(BEAT, 3)).event.opType == 1

    run_fast(scenario())


def test_an_event_without_a_number_is_none() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with opened(master, broker):
            event: Any = master.event(EventType.CONNECT, "c", GROUP, broker.partition())
            event.event.rebalanceId = 0
            master.plays(BEAT, event, accept(BEAT))
            async with TubeConsumer(master.address, GROUP, ["orders"]) as consumer:
                await master.heard(BEAT, 3)
                assert consumer.current_offsets() == {}

    run_fast(scenario())


def test_partitions_that_cannot_be_read_are_left_out() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with opened(master, broker):
            event: Any = master.event(EventType.CONNECT, "c", GROUP, broker.partition())
            event.event.subscribeInfo.insert(0, "c@reports#1:127.0.0.1#orders:0")
            event.event.subscribeInfo.append("nonsense")
            master.plays(BEAT, event, accept(BEAT))
            async with TubeConsumer(master.address, GROUP, ["orders"]) as consumer:
                await settled(consumer, 0)
                assert len((await master.heard(BEAT, 2)).event.subscribeInfo) == 3

    run_fast(scenario())


@pytest.mark.parametrize(
    ("position", "statuses"),
    [
        (ConsumeFrom.FIRST, [0, 0]),
        (ConsumeFrom.LATEST, [1, 0]),
        (ConsumeFrom.LATEST_ALWAYS, [2, 0]),
    ],
)
def test_where_to_begin_is_said_the_first_time_only(
    position: ConsumeFrom, statuses: list[int]
) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker, consume_from=position) as consumer:
            master.orders((2, (broker.partition(),)), (1, (broker.partition(),)))
            await settled(consumer)
            await settled(consumer, 0)
            found = [one for one in broker.asked(REGISTER) if one.opType == OpType.REGISTER]
            assert [one.readStatus for one in found] == statuses

    run_fast(scenario())


@pytest.mark.parametrize(
    "step",
    [refuse(REGISTER, Code.SERVICE_UNAVAILABLE), refuse(REGISTER, 403), HANG_UP, BROKEN],
    ids=str,
)
def test_a_registration_that_failed_is_tried_five_times_a_second_apart(step: Step) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.plays(REGISTER, step)
        async with consuming(master, broker) as consumer:
            master.assigns(broker.partition())
            await broker.heard(REGISTER, 5)
            times = broker.asked_at(REGISTER)
            assert [time - times[0] for time in times] == [0, 1, 2, 3, 4]
            beat = await master.heard(BEAT, 2)
            assert beat.event.status == 2 and not beat.subscribeInfo
            assert consumer.current_offsets() == {}
            broker.plays(REGISTER)
            await asyncio.sleep(30)
            assert len(broker.asked(REGISTER)) == 5
            master.assigns(broker.partition())
            await settled(consumer, 0)

    run_fast(scenario())


def test_a_registration_may_succeed_at_a_later_try() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        failing = refuse(REGISTER, Code.SERVICE_UNAVAILABLE)
        broker.plays(REGISTER, failing, failing, accept(REGISTER, currOffset=28, maxOffset=56))
        async with consuming(master, broker) as consumer:
            master.assigns(broker.partition())
            await settled(consumer, 0)
            assert consumer.current_offsets() == {"1:orders:0": (28, 56)}
            assert len(broker.asked(REGISTER)) == 3

    run_fast(scenario())


@pytest.mark.parametrize("code", [Code.PARTITION_OCCUPIED, Code.CERTIFICATE_FAILURE])
def test_a_partition_that_is_occupied_or_denied_is_not_asked_for_again(code: Code) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with consuming(master, broker) as consumer:

            def answer(request: Any) -> Any:
                if request.partitionId == 0:
                    return refuse(REGISTER, code)
                return accept(REGISTER)

            broker.plays(REGISTER, answer)
            master.assigns(broker.partition(0), broker.partition(1))
            await settled(consumer, 1)
            assert (await master.heard(BEAT, 2)).event.status == 2
            await asyncio.sleep(20)
            assert registrations(broker) == [(31, 0), (31, 1)]
        assert registrations(broker)[2:] == [(32, 1)]  # it gives back what it has

    run_fast(scenario())


def test_a_silent_broker_does_not_keep_another_from_being_registered_at() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        master, silent, broker = Master(), Broker(2), Broker(1)
        silent.is_deaf = True
        async with consuming(master, silent, broker) as consumer:
            parts = [silent.partition(number) for number in range(3)]
            master.assigns(*parts, broker.partition(0))
            await settled(consumer, 0)
            assert loop.time() == 5.0  # the first heartbeat's time
            await asyncio.sleep(200)
            # the first partition only, five times: the others of its broker would not fare better
            assert registrations(silent) == [(31, 0)] * 5

    run_fast(scenario())


def test_of_events_that_came_meanwhile_the_first_is_taken() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with consuming(master, broker, heartbeat_interval=1.0) as consumer:
            failing = refuse(REGISTER, Code.SERVICE_UNAVAILABLE)
            broker.plays(REGISTER, failing, failing, failing, failing, accept(REGISTER))
            master.orders(*((1, (broker.partition(number),)) for number in range(4)))
            await settled(consumer, 0)
            await settled(consumer, 0, 1)
            await asyncio.sleep(20)
            assert set(consumer.current_offsets()) == {"1:orders:0", "1:orders:1"}

    run_fast(scenario())


def test_a_partition_whose_messages_are_confirmed_in_time_leaves_with_them_consumed() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)], [message(2)])
        async with holding(master, broker) as consumer:
            batch = await consumer.get_message()
            master.orders((2, (broker.partition(),)))
            await master.heard(BEAT, 2)
            asked = loop.time()
            await asyncio.sleep(2)
            assert len(consumer.current_offsets()) == 1
            await consumer.confirm(batch)
            await broker.heard(REGISTER, 2)
            assert loop.time() - asked == 2.0
            assert broker.asked(REGISTER)[1].readStatus == 0
            assert broker.committed_of(broker.partition()) == 1
            assert len(broker.asked(GET)) == 1  # it has no turn any more

    run_fast(scenario())


@pytest.mark.parametrize(("rollback", "committed"), [(True, 0), (False, 1)])
def test_what_is_not_confirmed_when_a_partition_leaves_is_as_the_options_say(
    rollback: bool, committed: int
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker, rollback_unconfirmed=rollback) as consumer:
            batch = await consumer.get_message()
            master.orders((2, (broker.partition(),)))
            await master.heard(BEAT, 2)
            asked = loop.time()
            await broker.heard(REGISTER, 2)
            assert loop.time() - asked == 3.0
            assert broker.committed_of(broker.partition()) == committed
            with pytest.raises(ConfirmTimeout):
                await consumer.confirm(batch)

    run_fast(scenario())


@pytest.mark.parametrize("rollback", [True, False])
def test_prefetched_messages_are_never_counted_as_consumed(rollback: bool) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        master, broker = Master(), Broker()
        for number in range(2):
            broker.stores(broker.partition(number), [message(number)])
        async with holding(master, broker, 0, 1, rollback_unconfirmed=rollback) as consumer:
            first = await consumer.get_message()
            await broker.heard(GET, 2)
            ahead = 1 - first.messages[0].message_id
            master.orders((2, (broker.partition(ahead),)))
            await master.heard(BEAT, 2)
            asked = loop.time()
            await broker.heard(REGISTER, 3)
            assert loop.time() == asked  # no message of the partition is in use
            assert broker.committed_of(broker.partition(ahead)) == 0
            await consumer.confirm(first)

    run_fast(scenario())


@pytest.mark.parametrize("locally", [True, False])
def test_only_prefetched_messages_are_redelivered_after_a_confirmation(locally: bool) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        for number in range(2):
            packs = [[message(number * 10 + pack)] for pack in range(3)]
            broker.stores(broker.partition(number), *packs)
        async with holding(master, broker, 0, 1, confirm_locally=locally) as consumer:
            # two that were given: of one of them the next one is got while the other is worked on
            first, second = await consumer.get_message(), await consumer.get_message()
            await consumer.confirm(second)
            await broker.heard(GET, 3)
            await asyncio.sleep(1)
            ahead = int(second.partition_key.rpartition(":")[2])
            assert broker.pending[f"orders:{ahead}"] == 1
            master.orders((2, (broker.partition(ahead),)))
            await broker.heard(REGISTER, 3)
            assert broker.committed_of(broker.partition(ahead)) == 1
            await consumer.confirm(first)

    run_fast(scenario())


def test_a_partition_whose_broker_has_moved_is_read_where_it_is_now() -> None:
    async def scenario() -> None:
        master, old, new = Master(), Broker(), Broker()
        async with consuming(master, old, new) as consumer:
            new.stores(new.partition(), [message(7)])
            master.orders((1, (old.partition(),)), (1, (new.partition(),)))
            await new.heard(REGISTER)
            batch = await consumer.get_message()
            assert batch.messages[0].message_id == 7
            await consumer.confirm(batch)
            assert not old.asked(GET)

    run_fast(scenario())


def test_a_partition_that_comes_back_is_another_one_to_old_contexts() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker, rebalance_wait=0) as consumer:
            old = await consumer.get_message()
            master.orders((2, (broker.partition(),)), (1, (broker.partition(),)))
            await settled(consumer)
            await settled(consumer, 0)
            again = await consumer.get_message()
            with pytest.raises(ConfirmTimeout):
                await consumer.confirm(old)
            await consumer.confirm(again)
            assert broker.committed_of(broker.partition()) == 1

    run_fast(scenario())


@pytest.mark.parametrize("step", [HANG, HANG_UP, refuse(REGISTER, 411)], ids=str)
def test_a_broker_that_does_not_take_a_partition_back_does_not_stop_the_event(step: Step) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker, 0, 1) as consumer:
            broker.plays(REGISTER, step)
            master.orders((2, (broker.partition(0), broker.partition(1))))
            await settled(consumer)
            assert (await told(master, 2)).event.status == 2

    run_fast(scenario())


def test_two_consumers_hand_a_partition_over_without_losing_or_repeating_a_message() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), *([message(number)] for number in range(20)))
        seen: list[int] = []

        async def read(consumer: TubeConsumer, count: int) -> TubeBatch | None:
            for _ in range(count):
                batch = await consumer.get_message()
                seen.append(batch.messages[0].message_id)
                await consumer.confirm(batch)
            return None

        async with holding(master, broker) as first:
            await read(first, 8)
            master.orders((2, (broker.partition(),)))
            await settled(first)
            master.plays(BEAT)
            second_master = Master()
            async with holding_again(second_master, broker) as second:
                await read(second, 12)
        assert seen == list(range(20))

    run_fast(scenario())


def holding_again(master: Master, broker: Broker) -> Any:
    """A second consumer, by a master of its own, of a broker that is open already."""
    return _Second(master, broker)


class _Second:
    def __init__(self, master: Master, broker: Broker) -> None:
        self._master = master
        self._broker = broker

    async def __aenter__(self) -> TubeConsumer:
        await self._master.open()
        self._master.assigns(self._broker.partition())
        self._consumer = TubeConsumer(self._master.address, GROUP, ["orders"])
        await self._consumer.start()
        await settled(self._consumer, 0)
        return self._consumer

    async def __aexit__(self, *exc: object) -> None:
        await self._consumer.close()
        await self._master.close()
