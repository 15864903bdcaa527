"""Consumers that choose their partitions themselves."""

import asyncio
from typing import Any

import pytest
from google.protobuf.message import Message

from mq.client.errors import BadAnswer, ClientError, ConnectError, MQError
from mq.client.tube.balance_consumer import TubeBalanceConsumer
from mq.client.tube.errors import (
    GroupDiffers,
    NotAuthenticated,
    NothingToRead,
    StandbyMaster,
    TubeError,
)
from mq.client.tube.options import SessionBinding
from mq.protocol.tube.codes import Code, Method
from tests.client.tube.choosing import KEYS, META, TAKE, choosing, metadata
from tests.client.tube.consumers import GROUP
from tests.client.tube.scripted import (
    HANG_UP,
    STANDBY,
    Broker,
    Master,
    Step,
    accept,
    message,
    opened,
    refuse,
)
from tests.client.tube.virtual_time import run_fast

REGISTER = Method.CONSUMER_REGISTER_V2_C2M
BEAT = Method.CONSUMER_HEARTBEAT_V2_C2M
CLOSE = Method.CONSUMER_CLOSE_C2M


def test_registering_says_which_member_this_is() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with choosing(master, broker, node=(3, 2)) as consumer:
            request = master.asked(REGISTER)[0]
            assert (request.sourceCount, request.nodeId) == (3, 2)
            assert list(request.topicList) == ["orders"]
            assert request.clientId == consumer.client_id and "-Balance-" in consumer.client_id
            report = request.subRepInfo
            assert (report.brokerConfigId, report.topicMetaInfoId) == (-2, -2)
            assert not report.reportSubInfo
        async with choosing(Master(), Broker()) as consumer:
            assert consumer.client_id
        assert len(master.asked(CLOSE)) == 1

    run_fast(scenario())


@pytest.mark.parametrize("node", [(3, 3), (3, -1), (0, 0)])
def test_a_member_that_cannot_be_is_refused(node: tuple[int, int]) -> None:
    with pytest.raises(ClientError):
        TubeBalanceConsumer("10.0.0.1", GROUP, ["orders"], node=node)


def test_it_is_not_bound() -> None:
    with pytest.raises(ClientError, match="not bound"):
        TubeBalanceConsumer(
            "10.0.0.1", GROUP, ["orders"], bound=SessionBinding(session_key="s", source_count=1)
        )


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (STANDBY, StandbyMaster),
        (HANG_UP, ConnectError),
        (refuse(REGISTER, Code.CLIENT_DUPLICATE_INDEXID), GroupDiffers),
        (refuse(REGISTER, Code.CERTIFICATE_FAILURE), NotAuthenticated),
        (accept(REGISTER, brokerConfigId=1, brokerConfigList=["nonsense"]), BadAnswer),
    ],
    ids=str,
)
def test_if_no_master_takes_it_the_reason_is_raised(step: Step, kind: type[MQError]) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        master.plays(REGISTER, step)
        with pytest.raises(kind):
            async with choosing(master, broker):
                pass

    run_fast(scenario())


def test_the_partitions_are_those_of_brokers_that_are_known() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with choosing(master, broker) as consumer:
            assert await consumer.partitions() == dict.fromkeys(KEYS, True)

    run_fast(scenario())


def test_the_master_is_asked_for_them_each_ten_seconds_at_most() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with choosing(master, broker) as consumer:
            await asyncio.gather(*(consumer.partitions() for _ in range(5)))
            await asyncio.sleep(9)
            await consumer.partitions()
            assert len(master.asked(META)) == 1
            await asyncio.sleep(1)
            # nothing has changed: the lists are not sent again
            master.plays(META, accept(META, brokerConfigId=5, topicMetaInfoId=9))
            assert list(await consumer.partitions()) == KEYS
            request = master.asked(META)[1]
            assert (request.brokerConfigId, request.topicMetaInfoId) == (5, 9)

    run_fast(scenario())


def test_lists_that_come_with_heartbeats_are_taken_too() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            master.plays(BEAT, accept(BEAT, **metadata(broker, status=0, number=10)))
            await master.heard(BEAT, 2)
            await asyncio.sleep(9)
            assert not any((await consumer.partitions()).values())
            assert len(master.asked(META)) == 1  # they are not as old as that
            assert (await master.heard(BEAT, 3)).subRepInfo.topicMetaInfoId == 10

    run_fast(scenario())


def test_a_question_in_vain_says_why_and_may_be_asked_again() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        master.plays(META, refuse(META, Code.NOT_READY), STANDBY)
        async with choosing(master, broker) as consumer:
            with pytest.raises(TubeError) as caught:
                await consumer.partitions()
            assert caught.value.code == Code.NOT_READY
            with pytest.raises(StandbyMaster):
                await consumer.partitions()
            master.plays(META, accept(META, **metadata(broker)))
            assert len(await consumer.partitions()) == 4

    run_fast(scenario())


def test_partitions_are_read_from_the_offset_given_or_where_the_group_was() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        for number in (0, 1):
            broker.stores(broker.partition(number), *([message(n)] for n in range(3)))
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            await asyncio.gather(consumer.connect("1:orders:0", 56), consumer.connect("1:orders:0"))
            await consumer.connect("1:orders:1")
            await consumer.connect("1:orders:1", 0)
            found = [
                (one.partitionId, one.currOffset if one.HasField("currOffset") else None)
                for one in broker.asked(TAKE)
            ]
            assert found == [(0, 56), (1, None)]
            seen = []
            async for one in consumer:
                seen.append(one.message_id)
                if len(seen) == 4:
                    break
            assert sorted(seen) == [0, 1, 2, 2]
        assert not broker.owners
        assert dict(broker.committed) == {"orders:0": 3, "orders:1": 3}

    run_fast(scenario())


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("1:orders:7", Code.NOT_FOUND),
        ("7:orders:0", Code.NOT_FOUND),
        ("orders", Code.BAD_REQUEST),
        ("1:orders:x", Code.BAD_REQUEST),
    ],
)
def test_a_partition_that_is_not_there_cannot_be_chosen(key: str, code: Code) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            with pytest.raises(TubeError) as caught:
                await consumer.connect(key)
            assert caught.value.code == code and not broker.requests

    run_fast(scenario())


def test_partitions_are_unknown_before_one_has_asked_for_them() -> None:
    async def scenario() -> None:
        async with choosing(Master(), Broker()) as consumer:
            with pytest.raises(NothingToRead):
                await consumer.connect("1:orders:0")

    run_fast(scenario())


@pytest.mark.parametrize("code", [Code.PARTITION_OCCUPIED, Code.CERTIFICATE_FAILURE])
def test_what_was_refused_is_asked_for_again_after_five_seconds_at_the_soonest(code: Code) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.plays(TAKE, refuse(TAKE, code), accept(TAKE))
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            with pytest.raises(TubeError) as caught:
                await consumer.connect("1:orders:0")
            assert caught.value.code == code
            await asyncio.sleep(4.9)
            with pytest.raises(TubeError) as caught:
                await consumer.connect("1:orders:0")
            assert caught.value.code == Code.CLIENT_HIGH_FREQUENCY_REQUEST
            assert len(broker.asked(TAKE)) == 1
            await asyncio.sleep(0.1)
            await consumer.connect("1:orders:0")

    run_fast(scenario())


@pytest.mark.parametrize("step", [HANG_UP, refuse(TAKE, Code.SERVICE_UNAVAILABLE)], ids=str)
def test_a_broker_is_asked_twice_a_second_apart(step: Step) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.plays(TAKE, step)
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            with pytest.raises(MQError):
                await consumer.connect("1:orders:0")
            times = broker.asked_at(TAKE)
            assert times[1] - times[0] == 1.0 and len(times) == 2
            broker.plays(TAKE)
            await consumer.connect("1:orders:0")

    run_fast(scenario())


def test_disconnecting_waits_for_the_messages_that_are_worked_on() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        master, broker = Master(), Broker()
        broker.stores(broker.partition(), [message(1)])
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            await consumer.disconnect("1:orders:0")  # nothing: it is not read
            assert not broker.requests
            await consumer.connect("1:orders:0")
            await consumer.get_message()
            began = loop.time()
            await consumer.disconnect("1:orders:0")
            assert loop.time() - began == 3.0
            assert broker.asked(TAKE)[1].readStatus == 1
            assert consumer.current_offsets() == {}
            await consumer.connect("1:orders:0")

    run_fast(scenario())


def test_a_partition_that_may_not_be_read_any_more_is_given_back() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            await consumer.connect("1:orders:0")
            await asyncio.sleep(10)
            master.plays(META, accept(META, **metadata(broker, status=0, number=10)))
            assert await consumer.partitions() == dict.fromkeys(KEYS, False)
            assert consumer.current_offsets() == {} and not broker.owners
            with pytest.raises(TubeError) as caught:
                await consumer.connect("1:orders:0")
            assert caught.value.code == Code.PARTITION_UNSUBSCRIBABLE

    run_fast(scenario())


def test_what_is_held_is_reported_when_it_has_changed() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            first = await master.heard(BEAT)
            for key in ("1:orders:1", "1:orders:10000"):
                await consumer.connect(key)
            master.plays(BEAT, HANG_UP, accept(BEAT))
            failed, second = await master.heard(BEAT, 2), await master.heard(BEAT, 3)
            third = await master.heard(BEAT, 4)
            await consumer.disconnect("1:orders:1")
            fourth = await master.heard(BEAT, 5)
            assert [
                one.subRepInfo.reportSubInfo for one in (first, failed, second, third, fourth)
            ] == [
                *(False, True, True, False, True),
            ]
            assert list(second.subRepInfo.partSubInfo) == ["orders#1:1,1:10000"]
            assert list(fourth.subRepInfo.partSubInfo) == ["orders#1:10000"]

    run_fast(scenario())


def test_a_master_that_has_forgotten_it_hears_what_it_holds() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            await consumer.connect("1:orders:0")
            await master.heard(BEAT)
            master.plays(BEAT, refuse(BEAT, Code.HB_NO_NODE), accept(BEAT))
            again = await master.heard(REGISTER, 2)
            # another master may not have received the report
            assert list(again.subRepInfo.partSubInfo) == ["orders#1:0"]
            assert again.subRepInfo.brokerConfigId == 5
            await master.heard(BEAT, 3)
            assert list(consumer.current_offsets()) == ["1:orders:0"]

    run_fast(scenario())


def test_rules_come_with_the_answers_and_are_told_back() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        answer: Any = accept(REGISTER)
        low = '[{"type":3,"rule":[{"normFreqInMs":100}]}]'
        answer.opsTaskInfo.groupFlowCheckId = 4
        answer.opsTaskInfo.groupFlowControlInfo = low
        answer.opsTaskInfo.qryPriorityId = 303
        master.plays(REGISTER, answer)
        async with choosing(master, broker):
            rules = (await master.heard(BEAT)).opsTaskInfo
            assert (rules.groupFlowCheckId, rules.qryPriorityId) == (4, 303)
            assert not rules.HasField("defFlowCheckId")

    run_fast(scenario())


def test_connecting_while_the_consumer_is_closed_ends() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.plays(TAKE, refuse(TAKE, Code.SERVICE_UNAVAILABLE), accept(TAKE))
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            connecting = asyncio.ensure_future(consumer.connect("1:orders:0"))
            await broker.heard(TAKE)
            await consumer.close()
            with pytest.raises(TubeError) as caught:
                await connecting
            assert caught.value.code == Code.CLIENT_STOPPED
            assert len(broker.asked(TAKE)) == 1

    run_fast(scenario())


def test_what_is_taken_while_one_leaves_is_given_back_and_not_kept_alive() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with opened(master, broker):
            master.plays(META, accept(META, **metadata(broker)))
            consumer = TubeBalanceConsumer(master.address, GROUP, ["orders"])
            await consumer.start()
            await consumer.partitions()
            answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            broker.plays(TAKE, answer, accept(TAKE))
            connecting = asyncio.create_task(consumer.connect(KEYS[0]))
            await broker.heard(TAKE)
            closing = asyncio.create_task(consumer.close())
            await broker.heard(TAKE, 2)  # it is given back before it is there
            answer.set_result(accept(TAKE, currOffset=0, maxOffset=0))
            await closing
            with pytest.raises(TubeError) as caught:
                await connecting
            assert caught.value.code == Code.CLIENT_STOPPED
            assert consumer.current_offsets() == {}
            assert [one.opType for one in broker.asked(TAKE)] == [31, 32]
            assert not [task for task in asyncio.all_tasks() if "BrokerHeartbeats" in str(task)]

    run_fast(scenario())


def test_who_connects_while_a_partition_leaves_has_it_behind_that() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(0), [message(1)])
        async with choosing(master, broker) as consumer:
            await consumer.partitions()
            await consumer.connect(KEYS[0])
            await consumer.get_message()
            leaving = asyncio.create_task(consumer.disconnect(KEYS[0]))
            await asyncio.sleep(1)  # it waits for the message to be confirmed
            await consumer.connect(KEYS[0])
            assert leaving.done() and list(consumer.current_offsets()) == [KEYS[0]]
            assert list(broker.owners) == ["orders:0"]

    run_fast(scenario())
