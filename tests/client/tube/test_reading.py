"""Getting and confirming messages, and what each code does to a partition."""

import asyncio
from typing import Any

import pytest

from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout
from mq.client.tube.errors import NothingToRead, TubeError
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

GET = Method.GET_MESSAGES_C2B
COMMIT = Method.CONSUMER_COMMIT_C2B


def refusal(code: int, **fields: Any) -> Any:
    answer: Any = refuse(GET, code)
    for name, value in fields.items():
        setattr(answer, name, value)
    return answer


@pytest.mark.parametrize(
    ("step", "delay"),
    [
        (refusal(Code.NOT_FOUND), 0.4),
        (refusal(Code.FORBIDDEN), 2.0),
        (refusal(Code.SERVICE_UNAVAILABLE), 0.3),
        (refusal(Code.MOVED), 0.2),
        (refusal(Code.INTERNAL_SERVER_ERROR), 0.3),
        (refusal(Code.UNAUTHORIZED), 0.3),
        (refusal(777), 0.3),
        (refusal(Code.SERVER_CONSUME_SPEED_LIMIT, minLimitTime=1500), 1.5),
        (refusal(Code.SERVER_CONSUME_SPEED_LIMIT), 0.4),
        (HANG_UP, 0.3),
        (GARBAGE, 0.3),
        (BROKEN, 0.3),
        (HANG, 0.3),
    ],
    ids=str,
)
def test_a_partition_is_left_alone_as_long_as_its_code_asks_for(step: Step, delay: float) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker) as consumer:
            broker.plays(GET, step, refusal(Code.NOT_FOUND))
            with pytest.raises(MQError):
                await consumer.get_message()
            failed = asyncio.get_running_loop().time()
            with pytest.raises(NothingToRead):
                await consumer.get_message()
            waited = broker.asked_at(GET)[1] - failed
            assert waited == pytest.approx(delay)
            assert not broker.asked(GET)[1].lastPackConsumed
            assert "1:orders:0" in consumer.current_offsets()

    run_fast(scenario())


@pytest.mark.parametrize(
    ("step", "kind", "code"),
    [
        (refusal(Code.NOT_FOUND), NothingToRead, Code.NOT_FOUND),
        (refusal(Code.FORBIDDEN), TubeError, Code.FORBIDDEN),
        (refusal(777), TubeError, 777),
        (HANG_UP, ConnectError, None),
        (GARBAGE, BadAnswer, None),
        (BROKEN, BadAnswer, None),
        (HANG, RequestTimeout, None),
    ],
    ids=str,
)
def test_a_get_in_vain_says_why(step: Step, kind: type[MQError], code: int | None) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker) as consumer:
            broker.plays(GET, step)
            with pytest.raises(kind) as caught:
                await consumer.get_message()
            if isinstance(caught.value, TubeError):
                assert (caught.value.code, caught.value.text) == (code, "no")
                assert caught.value.address == broker.address

    run_fast(scenario())


@pytest.mark.parametrize(
    "code", [Code.HB_NO_NODE, Code.DUPLICATE_PARTITION, Code.CERTIFICATE_FAILURE]
)
def test_a_partition_that_the_broker_has_given_away_leaves_and_the_master_hears_it(
    code: Code,
) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker) as consumer:
            heard = len(master.asked(Method.CONSUMER_HEARTBEAT_C2M))
            broker.plays(GET, refusal(code))
            with pytest.raises(TubeError) as caught:
                await consumer.get_message()
            assert caught.value.code == code
            assert consumer.current_offsets() == {}
            # the one with the event's result, whatever was held then
            await master.heard(Method.CONSUMER_HEARTBEAT_C2M, heard + 1)
            report = await master.heard(Method.CONSUMER_HEARTBEAT_C2M, heard + 1)
            assert report.reportSubscribeInfo and not report.subscribeInfo

    run_fast(scenario())


def test_without_a_partition_one_waits_for_it_as_long_as_the_options_say() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with consuming(Master(), ready_wait=25.0) as consumer:
            began = loop.time()
            with pytest.raises(NothingToRead) as caught:
                await consumer.get_message()
            assert caught.value.code == Code.NO_PARTITION_ASSIGNED
            assert loop.time() - began == 25.0
        async with consuming(Master(), ready_wait=0) as consumer:
            with pytest.raises(NothingToRead):
                await consumer.get_message()

    run_fast(scenario())


def test_the_code_says_why_no_partition_has_its_turn() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker, ready_wait=0) as consumer:
            broker.plays(GET, refusal(Code.FORBIDDEN))
            with pytest.raises(TubeError):
                await consumer.get_message()
            with pytest.raises(NothingToRead) as caught:
                await consumer.get_message()
            assert caught.value.code == Code.ALL_PARTITION_WAITING
            broker.plays(GET, accept(GET, messages=[message(1)]))
            await asyncio.sleep(2.1)
            batch = await consumer.get_message()
            with pytest.raises(NothingToRead) as caught:
                await consumer.get_message()
            assert caught.value.code == Code.ALL_PARTITION_INUSE
            await consumer.confirm(batch)

    run_fast(scenario())


def test_who_waits_is_given_the_messages_of_a_partition_that_comes() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with consuming(master, broker) as consumer:
            broker.stores(broker.partition(), [message(1), message(2)])
            waiting = asyncio.ensure_future(consumer.get_message())
            await master.heard(Method.CONSUMER_HEARTBEAT_C2M)
            master.assigns(broker.partition())
            batch = await waiting
            assert [one.message_id for one in batch.messages] == [1, 2]
            assert (batch.topic, batch.partition_key, batch.offset) == ("orders", "1:orders:0", 0)

    run_fast(scenario())


def test_messages_of_a_cancelled_get_are_given_to_the_next_one() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker) as consumer:
            task = asyncio.ensure_future(consumer.get_message())
            await broker.heard(GET)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            batch = await consumer.get_message()
            assert batch.messages[0].message_id == 1
            assert len(broker.asked(GET)) == 1

    run_fast(scenario())


def test_each_of_several_that_wait_is_given_another_pack() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        for number in range(3):
            broker.stores(broker.partition(number), [message(number)])
        async with holding(master, broker, 0, 1, 2) as consumer:
            batches = await asyncio.gather(*(consumer.get_message() for _ in range(3)))
            assert sorted(batch.messages[0].message_id for batch in batches) == [0, 1, 2]
            await asyncio.gather(*map(consumer.confirm, batches))

    run_fast(scenario())


def test_partitions_have_their_turn_one_after_the_other() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        for number in range(3):
            packs = [[message(number)] for _ in range(3)]
            broker.stores(broker.partition(number), *packs)
        async with holding(master, broker, 0, 1, 2, prefetch=0) as consumer:
            turns = []
            for _ in range(9):
                batch = await consumer.get_message()
                turns.append(batch.messages[0].message_id)
                await consumer.confirm(batch)
            assert turns == turns[:3] * 3 and sorted(turns[:3]) == [0, 1, 2]

    run_fast(scenario())


def test_replies_are_got_ahead_while_messages_are_worked_on_and_not_before() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        for number in range(4):
            broker.stores(broker.partition(number), [message(number)], [message(number)])
        async with holding(master, broker, 0, 1, 2, 3, prefetch=2) as consumer:
            await asyncio.sleep(20)
            assert not broker.asked(GET)
            first = await consumer.get_message()
            await broker.heard(GET, 3)
            await asyncio.sleep(20)
            assert len(broker.asked(GET)) == 3
            assert sum(broker.committed.values()) == 0
            await consumer.confirm(first)
            await asyncio.sleep(20)
            assert len(broker.asked(GET)) == 3  # the application has nothing to work on
        # messages that were not delivered are not committed
        assert sum(broker.committed.values()) == 1

    run_fast(scenario())


def test_a_silent_broker_holds_up_its_own_partitions_only() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        master, silent, broker = Master(), Broker(1), Broker(2)
        async with consuming(master, silent, broker, prefetch=0) as consumer:
            broker.stores(broker.partition(), *([message(n)] for n in range(3)))
            master.assigns(silent.partition(), broker.partition())
            while len(consumer.current_offsets()) < 2:
                await consumer._table.changed()
            silent.plays(GET, HANG)
            began = loop.time()
            for number in range(3):
                batch = await consumer.get_message()
                assert batch.messages[0].message_id == number
                await consumer.confirm(batch)
            assert loop.time() - began < 5  # the time-out is 15

    run_fast(scenario())


def test_a_reply_without_wanted_messages_is_skipped() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(
            broker.partition(),
            [message(1, kind="open"), message(2, kind="paid", damaged=True)],
            [message(3, kind="paid"), message(4)],
        )
        async with holding(master, broker, topics={"orders": ["paid"]}) as consumer:
            assert list(broker.asked(Method.CONSUMER_REGISTER_C2B)[0].filterCondStr) == ["paid"]
            with pytest.raises(NothingToRead):
                await consumer.get_message()
            batch = await consumer.get_message()
            assert [one.message_id for one in batch.messages] == [3]
            assert consumer.counts == {"given": 1, "damaged": 1, "unwanted": 2}
            assert broker.committed_of(broker.partition()) == 1

    run_fast(scenario())


def test_a_reply_without_messages_reports_the_lag_of_the_group() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1, kind="open")], [message(2, kind="paid")])
        async with holding(master, broker, topics={"orders": ["paid"]}) as consumer:
            with pytest.raises(NothingToRead):
                await consumer.get_message()
            assert await consumer.ask_offset("1:orders:0") == (28, 56)
            assert consumer.current_offsets()["1:orders:0"] == (28, 56)
            batch = await consumer.get_message()
            assert [one.message_id for one in batch.messages] == [2]

    run_fast(scenario())


def test_what_is_asked_of_an_offset_commits_nothing_that_is_not_confirmed() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker) as consumer:
            with pytest.raises(NothingToRead, match="is not held"):
                await consumer.ask_offset("1:orders:7")
            batch = await consumer.get_message()
            with pytest.raises(NothingToRead, match="are in use"):
                await consumer.ask_offset("1:orders:0")
            await consumer.confirm(batch, consumed=False)
            assert (await consumer.ask_offset("1:orders:0")).offset == 0
            assert broker.committed_of(broker.partition()) == 0
            # A get that is asked for meanwhile waits: its messages would be committed with it.
            broker.plays(COMMIT, HANG)
            asking = asyncio.create_task(consumer.ask_offset("1:orders:0"))
            await broker.heard(COMMIT, len(broker.asked(COMMIT)) + 1)
            waiting = asyncio.create_task(consumer.get_message())
            gets = len(broker.asked(GET))
            await asyncio.sleep(1)
            assert len(broker.asked(GET)) == gets
            with pytest.raises(RequestTimeout):
                await asking
            assert (await waiting).messages == batch.messages

    run_fast(scenario())


def test_a_reply_to_a_partition_that_has_left_meanwhile_is_dropped() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker, ready_wait=1.0) as consumer:
            broker.plays(GET, HANG)
            waiting = asyncio.ensure_future(consumer.get_message())
            await broker.heard(GET)
            broker.plays(
                Method.CONSUMER_HEARTBEAT_C2B,
                accept(
                    Method.CONSUMER_HEARTBEAT_C2B,
                    hasPartFailure=True,
                    failureInfo=[f"411:{broker.partition()}"],
                ),
            )
            with pytest.raises(RequestTimeout):
                await waiting
            assert consumer.current_offsets() == {}
            with pytest.raises(NothingToRead) as caught:
                await consumer.get_message()
            assert caught.value.code == Code.NO_PARTITION_ASSIGNED

    run_fast(scenario())


def test_a_late_answer_says_nothing_of_a_partition_that_has_come_back() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with holding(master, broker, heartbeat_interval=1.0) as consumer:
            late: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            broker.plays(GET, late)
            waiting = asyncio.ensure_future(consumer.get_message())
            await broker.heard(GET)
            broker.plays(GET)
            master.orders((2, (broker.partition(),)), (1, (broker.partition(),)))
            await broker.heard(Method.CONSUMER_REGISTER_C2B, 3)
            batch = await waiting  # of the second time
            late.set_result(refusal(Code.HB_NO_NODE))
            await asyncio.sleep(1)
            assert list(consumer.current_offsets()) == ["1:orders:0"]
            await consumer.confirm(batch)

    run_fast(scenario())


def test_what_the_work_on_messages_took_counts_as_waited() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), *([message(number)] for number in range(3)))
        broker.answer_fields = {"currDataDlt": 5}  # without this field rules are not evaluated
        register = Method.CONSUMER_REGISTER_C2M
        rules = '[{"type":3,"rule":[{"normFreqInMs":1000}]}]'
        master.plays(register, accept(register, defFlowCheckId=3, defFlowControlInfo=rules))
        async with holding(master, broker) as consumer:
            batch = await consumer.get_message()
            began = loop.time()
            await asyncio.sleep(0.75)
            await consumer.confirm(batch)
            batch = await consumer.get_message()
            assert loop.time() - began == 1.0
            await asyncio.sleep(5)
            await consumer.confirm(batch)
            batch = await consumer.get_message()
            assert loop.time() - began == 6.0
            await consumer.confirm(batch)

    run_fast(scenario())


def test_gets_say_whether_the_group_is_limited_by_its_rules() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        rule = '{"start":"00:00","end":"24:00","dltInM":21,"limitInM":1,"freqInMs":200}'
        rules = f'[{{"type":0,"rule":[{rule}]}}]'
        register = Method.CONSUMER_REGISTER_C2M
        master.plays(register, accept(register, groupFlowCheckId=3, groupFlowControlInfo=rules))
        async with holding(master, broker) as consumer:
            with pytest.raises(NothingToRead):
                await consumer.get_message()
            assert broker.asked(GET)[0].escFlowCtrl
            assert master.asked(Method.CONSUMER_HEARTBEAT_C2M)[0].groupFlowCheckId == 3

    run_fast(scenario())


def test_waiting_gets_are_notified_when_the_consumer_is_closed() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker) as consumer:
            broker.plays(GET, HANG)
            waiting = asyncio.ensure_future(consumer.get_message())
            await broker.heard(GET)
            await consumer.close()
            with pytest.raises(TubeError) as caught:
                await waiting
            assert caught.value.code == Code.CLIENT_STOPPED and not caught.value.retriable
            for call in (consumer.get_message(), consumer.confirm("1:orders:0@1")):
                with pytest.raises(TubeError):
                    await call

    run_fast(scenario())
