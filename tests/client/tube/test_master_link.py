"""Registering at masters, heartbeats to them, and which master is asked."""

import asyncio
import itertools
from typing import Any

import pytest
from google.protobuf.message import Message

from mq.client.tube.consumer import TubeConsumer
from mq.client.tube.credentials import TubeCredentials
from mq.client.tube.options import SessionBinding
from mq.client.tube.service import TubeService
from mq.protocol.tube import signature
from mq.protocol.tube.codes import UNDEFINED, Code, EventType, Method
from mq.protocol.tube.strings import SubscribeInfo
from tests.client.tube.consumers import GROUP, consuming, holding
from tests.client.tube.scripted import (
    BROKEN,
    HANG,
    HANG_UP,
    STANDBY,
    Broker,
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


def test_heartbeats_come_in_their_interval_the_first_after_half_of_it() -> None:
    async def scenario() -> None:
        master = Master()
        async with consuming(master):
            await master.heard(BEAT, 3)
            times = [*master.asked_at(REGISTER), *master.asked_at(BEAT)]
            gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert gaps == pytest.approx([5, 10, 10])

    run_fast(scenario())


def test_what_is_held_is_reported_each_seventh_heartbeat() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker) as consumer:
            beats = [await master.heard(BEAT, number) for number in range(1, 17)]
            reports = [number for number, beat in enumerate(beats, 1) if beat.reportSubscribeInfo]
            # the second has the result of the event in the answer to the first
            assert reports == [2, 9, 16]
            held = str(SubscribeInfo(consumer.client_id, GROUP, broker.partition()))
            assert all(list(beats[number - 1].subscribeInfo) == [held] for number in reports)
            assert not beats[3].subscribeInfo

    run_fast(scenario())


def test_an_event_that_was_done_is_told_of_until_a_master_has_heard_of_it() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with opened(master, broker):

            def give(request: Any) -> Any:
                return master.event(
                    EventType.CONNECT, request.clientId, GROUP, broker.partition(), number=77
                )

            refusal = refuse(BEAT, Code.INTERNAL_SERVER_ERROR)
            master.plays(BEAT, give, HANG, refusal, accept(BEAT))
            async with TubeConsumer(master.address, GROUP, ["orders"]) as consumer:
                beats = [await master.heard(BEAT, number) for number in range(1, 6)]
                assert not beats[0].HasField("event")
                for beat in beats[1:4]:
                    event = beat.event
                    assert (event.rebalanceId, event.opType, event.status) == (77, 1, 2)
                    assert len(event.subscribeInfo) == 1
                    assert beat.reportSubscribeInfo and len(beat.subscribeInfo) == 1
                assert not beats[4].HasField("event")
                assert list(consumer.current_offsets()) == ["1:orders:0"]

    run_fast(scenario())


def test_a_master_that_has_heard_what_is_held_is_told_of_no_event_of_another() -> None:
    async def scenario() -> None:
        first, second, broker = Master(), Master(), Broker()
        async with opened(broker):
            first.plays(
                BEAT,
                lambda request: first.gives(request.clientId, GROUP, broker.partition()),
                STANDBY,
            )
            async with consuming([first, second]):
                request = await second.heard(BEAT)
                assert first.asked(BEAT)[1].event.rebalanceId > 0
                assert len(second.asked(REGISTER)[0].subscribeInfo) == 1
                assert not request.HasField("event")

    run_fast(scenario())


def test_what_was_being_taken_when_another_master_took_over_is_reported_at_once() -> None:
    async def scenario() -> None:
        first, second, broker = Master(), Master(), Broker()
        async with opened(broker):
            taken: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            broker.plays(Method.CONSUMER_REGISTER_C2B, taken)
            first.plays(
                BEAT,
                lambda request: first.gives(request.clientId, GROUP, broker.partition()),
                STANDBY,
            )
            async with consuming([first, second], close_wait=0.1):
                await second.heard(REGISTER)
                taken.set_result(accept(Method.CONSUMER_REGISTER_C2B))
                request = await second.heard(BEAT)
                assert not request.HasField("event")
                assert request.reportSubscribeInfo and len(request.subscribeInfo) == 1

    run_fast(scenario())


def test_a_report_that_was_not_heard_is_made_again() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker):
            await master.heard(BEAT, 8)
            master.plays(BEAT, refuse(BEAT, Code.INTERNAL_SERVER_ERROR), HANG_UP, accept(BEAT))
            beats = [await master.heard(BEAT, number) for number in range(8, 14)]
            reports = [beat.reportSubscribeInfo for beat in beats]
            assert reports == [False, True, True, True, False, False]

    run_fast(scenario())


def test_a_master_that_has_forgotten_us_is_registered_at_again_with_what_is_held() -> None:
    async def scenario() -> None:
        masters, broker = [Master(), Master()], Broker()
        async with opened(*masters, broker):
            masters[0].orders((EventType.CONNECT, (broker.partition(),)))
            addresses = [one.address for one in masters]
            async with TubeConsumer(addresses, GROUP, ["orders"]) as consumer:
                await masters[0].heard(BEAT, 2)
                masters[0].plays(BEAT, refuse(BEAT, Code.HB_NO_NODE), accept(BEAT))
                request = await masters[0].heard(REGISTER, 2)
                assert len(request.subscribeInfo) == 1
                # at once, and at the same master
                gap = masters[0].asked_at(REGISTER)[1] - masters[0].asked_at(BEAT)[2]
                assert gap < 0.5 and not masters[1].requests
                await masters[0].heard(BEAT, 4)
                assert list(consumer.current_offsets()) == ["1:orders:0"]
                assert len(broker.asked(Method.CONSUMER_REGISTER_C2B)) == 1

    run_fast(scenario())


def test_behind_a_standby_the_next_master_is_registered_at() -> None:
    async def scenario() -> None:
        masters = [Master(), Master()]
        async with consuming(masters):
            await masters[0].heard(BEAT)
            masters[0].plays(BEAT, STANDBY)
            await masters[1].heard(REGISTER)
            await masters[1].heard(BEAT)
            assert len(masters[0].asked(REGISTER)) == 1
            assert masters[1].asked_at(REGISTER)[0] - masters[0].asked_at(BEAT)[1] < 0.5

    run_fast(scenario())


@pytest.mark.parametrize("step", [HANG_UP, HANG], ids=str)
def test_behind_a_master_that_does_not_answer_the_next_one_is_asked(step: Step) -> None:
    async def scenario() -> None:
        masters = [Master(), Master()]
        masters[1].plays(BEAT, refuse(BEAT, Code.HB_NO_NODE), accept(BEAT))  # it does not know us
        async with consuming(masters):
            await masters[0].heard(BEAT)
            masters[0].plays(BEAT, step)
            await masters[1].heard(REGISTER)
            await masters[1].heard(BEAT, 2)
            assert len(masters[0].asked(BEAT)) == 2

    run_fast(scenario())


@pytest.mark.parametrize(
    "step", [refuse(BEAT, Code.INTERNAL_SERVER_ERROR), refuse(BEAT, 415), BROKEN, HANG_UP], ids=str
)
def test_after_five_failures_the_interval_is_the_long_one_until_one_succeeds(step: Step) -> None:
    async def scenario() -> None:
        master = Master()
        async with consuming(master):
            await master.heard(BEAT)
            master.plays(BEAT, step, step, step, step, step, step, accept(BEAT))
            await master.heard(BEAT, 10)
            times = master.asked_at(BEAT)
            gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert gaps == pytest.approx([10, 10, 10, 10, 10, 60, 60, 10, 10])
            assert len(master.asked(REGISTER)) == 1

    run_fast(scenario())


def test_as_long_as_no_master_takes_us_registering_is_tried_instead_of_heartbeats() -> None:
    async def scenario() -> None:
        master = Master()
        async with consuming(master):
            await master.heard(BEAT)
            master.plays(REGISTER, *[STANDBY] * 6, accept(REGISTER))
            master.plays(BEAT, refuse(BEAT, Code.HB_NO_NODE), accept(BEAT))
            await master.heard(REGISTER, 8)
            times = master.asked_at(REGISTER)[1:]
            gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
            # the heartbeat that began it counts
            assert gaps == pytest.approx([10, 10, 10, 60, 60, 60])
            await master.heard(BEAT, 3)
            assert len(master.asked(REGISTER)) == 8

    run_fast(scenario())


def test_a_master_that_was_forbidden_us_meanwhile_is_asked_again_later() -> None:
    async def scenario() -> None:
        master = Master()
        async with consuming(master):
            await master.heard(BEAT)
            forbidden = refuse(REGISTER, Code.CONSUME_GROUP_FORBIDDEN)
            master.plays(REGISTER, forbidden, accept(REGISTER))
            master.plays(BEAT, refuse(BEAT, Code.HB_NO_NODE), accept(BEAT))
            await master.heard(BEAT, 3)
            assert len(master.asked(REGISTER)) == 3

    run_fast(scenario())


def test_names_are_looked_up_and_a_master_that_moves_is_followed() -> None:
    async def scenario() -> None:
        old, new = Master(), Master()
        meaning = {"tube-master": "127.0.0.1"}

        async def resolve(name: str) -> str | None:
            return meaning.get(name)

        async with opened(old):
            service = TubeService(resolve=resolve)
            async with (
                service,
                TubeConsumer(f"tube-master:{old.port}", GROUP, ["orders"], service=service),
            ):
                await old.heard(BEAT)
                await new.open(host="127.0.0.2", port=old.port)
                try:
                    new.plays(BEAT, refuse(BEAT, Code.HB_NO_NODE), accept(BEAT))
                    meaning["tube-master"] = "127.0.0.2"
                    await new.heard(REGISTER)
                    await new.heard(BEAT, 2)
                    heard = len(old.asked(BEAT))
                    meaning.clear()  # nothing is found: what was found before holds
                    await asyncio.sleep(100)
                    assert len(old.asked(BEAT)) == heard
                finally:
                    await new.close()

    run_fast(scenario())


def test_user_and_password_go_to_masters_and_brokers_with_the_tokens_that_were_given() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        given: Any = accept(REGISTER)
        given.authorizedInfo.visitAuthorizedToken = 4711
        given.authorizedInfo.authAuthorizedToken = "token"
        master.plays(REGISTER, given)
        credentials = TubeCredentials("user", "pwd")
        async with holding(master, broker, credentials=credentials):
            for request in (master.asked(REGISTER)[0], master.asked(BEAT)[0]):
                info = request.authInfo.authInfo
                assert info.userName == "user" and info.othParams == ""
                assert signature.verify("user", "pwd", info.timestamp, info.nonce, info.signature)
            assert not master.asked(REGISTER)[0].authInfo.authorizedToken
            assert master.asked(BEAT)[0].authInfo.authorizedToken == "token"
            info = broker.asked(Method.CONSUMER_REGISTER_C2B)[0].authInfo
            assert info.visitAuthorizedToken == 4711
            token = signature.BrokerToken.parse(info.authAuthorizedToken)
            assert signature.verify("user", "pwd", token.timestamp_ms, token.nonce, token.signature)
        assert master.asked(CLOSE)[0].authInfo.authInfo.userName == "user"

    run_fast(scenario())


def test_without_a_user_brokers_get_the_visit_token_alone() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with holding(master, broker):
            info = broker.asked(Method.CONSUMER_REGISTER_C2B)[0].authInfo
            assert info.visitAuthorizedToken == UNDEFINED
            assert not info.HasField("authAuthorizedToken")

    run_fast(scenario())


def test_a_bound_consumer_says_its_session_and_begins_at_its_offsets_once() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        bound = SessionBinding(
            session_key="s1", source_count=2, offsets={"1:orders:0": 56, "1:orders:1": 0}
        )
        async with holding(master, broker, 0, 1, 2, bound=bound):
            request = master.asked(REGISTER)[0]
            assert request.requireBound and request.selectBig and request.notAllocated
            assert (request.sessionKey, request.totalCount) == ("s1", 2)
            assert request.requiredPartition == "1:orders:0=56,1:orders:1=0"
            begun = {
                one.partitionId: one.currOffset if one.HasField("currOffset") else None
                for one in broker.asked(Method.CONSUMER_REGISTER_C2B)
            }
            assert begun == {0: 56, 1: 0, 2: None}
            # another time the group's own offsets hold
            master.orders(
                (EventType.DISCONNECT, (broker.partition(0),)),
                (EventType.CONNECT, (broker.partition(0),)),
            )
            last = await broker.heard(Method.CONSUMER_REGISTER_C2B, 5)
            assert last.partitionId == 0 and not last.HasField("currOffset")

    run_fast(scenario())


@pytest.mark.parametrize("by", [REGISTER, BEAT])
def test_where_others_of_a_bound_group_have_begun_offsets_are_not_given(by: Method) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        bound = SessionBinding(session_key="s1", source_count=1, offsets={"1:orders:0": 56})
        async with opened(master, broker):
            if by == REGISTER:
                master.plays(REGISTER, accept(REGISTER, notAllocated=False))

            def give(request: Any) -> Any:
                event: Any = master.event(EventType.CONNECT, "c", GROUP, broker.partition())
                event.notAllocated = by == REGISTER
                return event

            master.plays(BEAT, give, accept(BEAT))
            async with TubeConsumer(master.address, GROUP, ["orders"], bound=bound):
                request = await broker.heard(Method.CONSUMER_REGISTER_C2B)
                assert not request.HasField("currOffset")

    run_fast(scenario())


def test_rules_and_priority_are_taken_by_their_numbers_and_told_back() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        low = '[{"type":3,"rule":[{"normFreqInMs":100}]}]'
        first = accept(REGISTER, defFlowCheckId=5, defFlowControlInfo=low, qryPriorityId=301)
        master.plays(REGISTER, first)
        async with holding(master, broker):
            beat = master.asked(BEAT)[0]
            # those of the group stay: the answer had no number of theirs
            assert (beat.defFlowCheckId, beat.groupFlowCheckId, beat.qryPriorityId) == (5, -2, 301)
            assert broker.asked(Method.CONSUMER_REGISTER_C2B)[0].qryPriorityId == 301
            off = accept(BEAT, defFlowCheckId=-2, defFlowControlInfo=" ", groupFlowCheckId=6)
            master.plays(BEAT, off, accept(BEAT))
            heard = len(master.asked(BEAT))
            beat = await master.heard(BEAT, heard + 2)
            assert (beat.defFlowCheckId, beat.groupFlowCheckId, beat.qryPriorityId) == (-2, 6, 301)

    run_fast(scenario())
