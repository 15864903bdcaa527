"""Copies between RocketMQ and TubeMQ: what they leave out, and what they do twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mq.client.operations.messages.rate import Rate
from mq.client.operations.messages.tube_copying import TubeCopier, TubeTargets
from mq.client.tube.balance_consumer import TubeBalanceConsumer
from mq.client.tube.errors import TubeError
from mq.client.tube.options import ConsumeFrom
from mq.client.tube.producer import TubeProducer
from mq.protocol.message import Message
from mq.protocol.tube.codes import Code, Method
from mq.protocol.tube.messages import SendMessageRequestP2B, SendMessageResponseB2P
from tests.client.tube.producers import QUICK, Cluster, cluster, refused, stored
from tests.client.tube.scripted import HANG_UP, Broker, Master, accept, message, opened, refuse
from tests.client.tube.virtual_time import run_fast
from tests.daemons.tube.rpc_peers import run

GET = Method.GET_MESSAGES_C2B
TAKE = Method.CONSUMER_REGISTER_C2B
COMMIT = Method.CONSUMER_COMMIT_C2B
META = Method.CONSUMER_GET_PART_META_C2M
KEYS = ["1:orders:0", "1:orders:1"]


HANGING: set[int] = set()  # messages that are not stored now


class Queues:
    """Queues of RocketMQ that keep what they get."""

    def __init__(self) -> None:
        self.bodies: dict[int, list[int]] = {0: [], 1: []}

    def of(self, _: str, queue_id: int) -> "_Queue":
        return _Queue(f"broker-a:{queue_id}", self.bodies[queue_id])


class _Queue:
    def __init__(self, name: str, bodies: list[int]) -> None:
        self.name = name
        self.sent = 0
        self._bodies = bodies

    async def send(self, messages: Sequence[Message]) -> None:
        for one in messages:
            number = int(bytes(one.body))
            if number in HANGING:
                await asyncio.Event().wait()
            self._bodies.append(number)
            self.sent += 1


def pack(*numbers: int) -> list[Any]:
    return [message(number, b"%d" % number) for number in numbers]


@asynccontextmanager
async def copying(broker: Broker, done: Any = None) -> AsyncIterator[tuple[TubeCopier, Queues]]:
    master, queues = Master(), Queues()
    async with opened(master, broker):
        lists = {
            "brokerConfigId": 5,
            "brokerConfigList": [f"1:127.0.0.1:{broker.port}"],
            "topicMetaInfoId": 9,
            "topicMetaInfoList": ["orders#1:1:2:1"],
        }
        master.plays(META, accept(META, **lists))
        async with TubeBalanceConsumer(
            master.address, "copies", ["orders"], consume_from=ConsumeFrom.FIRST, ready_wait=1.0
        ) as consumer:
            copier = TubeCopier(consumer, queues, "Copies", rate=Rate(None))  # type: ignore[arg-type]
            copier._done = done or {}
            yield copier, queues


def stocked() -> Broker:
    broker = Broker()
    broker.stores(broker.partition(0), pack(1))
    broker.stores(broker.partition(1), pack(11), pack(12), pack(13))
    return broker


def usual(broker: Broker) -> Any:
    return lambda request: broker.usually(GET, request)


def test_a_partition_whose_broker_is_slow_is_not_taken_for_one_that_was_read() -> None:
    async def scenario() -> None:
        broker = stocked()
        # The first partition shares its index with others: it ends after its last message.
        broker.plays(TAKE, lambda request: longer(broker, request))

        def slow(request: Any) -> Any:
            answer = broker.usually(GET, request)
            if request.partitionId == 0:
                return answer
            later = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(5, later.set_result, answer)
            return later

        broker.plays(GET, slow)
        async with copying(broker) as (copier, queues):
            failures = await copier.run()
            assert queues.bodies == {0: [1], 1: [11, 12, 13]}
            assert failures == [
                "1:orders:0: it was read to 28 of 56 only: " + NOTHING % broker.port
            ]

    run_fast(scenario())


NOTHING = "127.0.0.1:%d: NOT_FOUND: no"


def longer(broker: Broker, request: Any) -> Any:
    answer = broker.usually(TAKE, request)
    assert not isinstance(answer, str)
    if request.partitionId == 0:
        answer.maxOffset += 28  # type: ignore[union-attr]
    return answer


def test_what_a_broker_has_looked_through_without_a_message_of_ours_was_read() -> None:
    async def scenario() -> None:
        broker = stocked()
        broker.plays(TAKE, lambda request: longer(broker, request))

        def looked_on(request: Any) -> Any:
            key = f"orders:{request.partitionId}"
            answer = broker.usually(GET, request)
            if not answer.success and request.partitionId == 0:  # type: ignore[union-attr]
                broker.committed[key] = 2
            return answer

        broker.plays(GET, looked_on)
        async with copying(broker) as (copier, queues):
            assert await copier.run() == [] == copier.gaps
            assert queues.bodies == {0: [1], 1: [11, 12, 13]}
            assert copier._next == {KEYS[0]: 56, KEYS[1]: 84}

    run_fast(scenario())


@pytest.mark.parametrize(
    "step",
    [refuse(GET, Code.SERVICE_UNAVAILABLE), refuse(GET, Code.SERVER_CONSUME_SPEED_LIMIT), HANG_UP],
    ids=str,
)
def test_a_get_in_vain_does_not_end_a_copy(step: Any) -> None:
    async def scenario() -> None:
        broker = stocked()
        broker.plays(GET, step, step, usual(broker))
        async with copying(broker) as (copier, queues):
            assert await copier.run() == []
            assert queues.bodies == {0: [1], 1: [11, 12, 13]}

    run_fast(scenario())


def test_a_partition_that_a_broker_has_forgotten_is_registered_again() -> None:
    async def scenario() -> None:
        broker = stocked()

        def forgets(request: Any) -> Any:
            if request.partitionId == 1 and broker.committed["orders:1"] == 1:
                broker.owners.pop("orders:1")
                broker.plays(GET, usual(broker))
            return broker.usually(GET, request)

        broker.plays(GET, forgets)
        async with copying(broker) as (copier, queues):
            assert await copier.run() == []
            assert queues.bodies == {0: [1], 1: [11, 12, 13]}

    run_fast(scenario())


def test_a_copy_goes_on_only_in_what_it_was_cut_in() -> None:
    async def scenario() -> None:
        broker = stocked()
        done = {
            KEYS[0]: {"next": 280, "to": "broker-a:0"},
            KEYS[1]: {"next": 28, "to": "broker-a:1"},
        }

        def cleaned(request: Any) -> Any:  # what there was before 56 is gone
            if request.partitionId == 1 and request.HasField("currOffset"):
                request.currOffset = max(request.currOffset, 56)
            return broker.usually(TAKE, request)

        broker.plays(TAKE, cleaned)
        async with copying(broker, done) as (copier, queues):
            text = "1:orders:0: it ends at 28, and the copy was cut at 280: it was recreated"
            assert await copier.run() == [text]
            assert copier.gaps == ["1:orders:1: what was from 28 to 56 is not kept any more"]
            assert queues.bodies == {0: [], 1: [13]}

    run_fast(scenario())


def test_a_gap_noted_by_an_interrupted_copy_is_reported_once() -> None:
    """The second copy is interrupted, too, before it makes progress."""

    async def scenario() -> None:
        broker = stocked()

        def cleaned(request: Any) -> Any:
            if request.partitionId == 1 and request.HasField("currOffset"):
                request.currOffset = max(request.currOffset, 56)
            return broker.usually(TAKE, request)

        broker.plays(TAKE, cleaned)
        text = "1:orders:1: what was from 28 to 56 is not kept any more"
        async with copying(broker, {KEYS[1]: {"next": 28, "to": "broker-a:1"}}) as (copier, _):
            copier.gaps.append(text)
            assert await copier.run() == []
            assert copier.gaps == [text]

    run_fast(scenario())


@pytest.mark.parametrize("where", ["sent", "confirmed", "refused"])
def test_what_a_cut_copy_has_stored_is_not_stored_again(where: str, tmp_path: Path) -> None:
    """A reply's messages that were stored, of which the broker had not said where they end."""
    path = tmp_path / "state"

    async def cut() -> list[int]:
        broker = Broker()
        broker.stores(broker.partition(0), pack(1))
        broker.stores(broker.partition(1), pack(11, 12), pack(13))
        if where == "refused":
            broker.plays(COMMIT, refuse(COMMIT, Code.SERVICE_UNAVAILABLE))
        elif where == "confirmed":
            broker.plays(COMMIT, asyncio.get_running_loop().create_future())
        async with copying(broker) as (copier, queues):
            running = asyncio.create_task(copier.run_from(path, {}))
            await asyncio.wait([running], timeout=5.0)
            running.cancel()
            with suppress(asyncio.CancelledError):
                assert await running != []
            return queues.bodies[0] + queues.bodies[1]

    async def resumed() -> list[int]:
        broker = Broker()
        broker.stores(broker.partition(0), pack(1))
        broker.stores(broker.partition(1), pack(11), pack(12, 13))
        async with copying(broker) as (copier, queues):
            assert await copier.run_from(path, {}) == []
            assert not path.exists()
            return queues.bodies[0] + queues.bodies[1]

    HANGING.update([12] if where == "sent" else [])
    first = run_fast(cut())
    HANGING.clear()
    second = run_fast(resumed())
    assert sorted([*first, *second]) == [1, 11, 12, 13]


def test_messages_that_are_others_than_those_that_were_stored_are_copied(tmp_path: Path) -> None:
    path = tmp_path / "state"
    done = {KEYS[1]: {"next": 0, "to": "broker-a:1", "stored": [11, 99]}}
    path.write_text(json.dumps({"asked": {}, "queues": done}))

    async def scenario() -> None:
        broker = Broker()
        broker.stores(broker.partition(1), pack(11, 12), pack(13))
        async with copying(broker) as (copier, queues):
            assert await copier.run_from(path, {}) == []
            assert queues.bodies[1] == [11, 12, 13]

    run_fast(scenario())


def test_a_partition_whose_end_is_not_known_is_not_taken_for_an_empty_one() -> None:
    async def scenario() -> None:
        broker = stocked()

        def silent(request: Any) -> Any:
            answer = broker.usually(TAKE, request)
            answer.ClearField("maxOffset")  # type: ignore[union-attr]
            return answer

        broker.plays(TAKE, silent)
        async with copying(broker) as (copier, _):
            failures = await copier.run()
            assert failures == [f"{key}: its broker does not say where it ends" for key in KEYS]

    run_fast(scenario())


def sending(made: Cluster, answer: Any) -> list[bytes]:
    """Return the stored bodies of the sent messages, in order."""
    kept: list[bytes] = []

    def answered(request: SendMessageRequestP2B) -> SendMessageResponseB2P:
        given: SendMessageResponseB2P = answer(request)
        if given.success:
            kept.append(request.data)
        return given

    made.answer = answered
    return kept


def copies(count: int) -> list[Message]:
    return [Message("test", b"%d" % number) for number in range(count)]


def test_a_copy_that_was_refused_is_sent_again_with_all_behind_it() -> None:
    async def test() -> None:
        async with cluster() as made:
            made.topics = {"test": "1:1:1"}
            refusals = [Code.SERVER_RECEIVE_OVERFLOW, Code.FORBIDDEN]

            def answer(request: SendMessageRequestP2B) -> SendMessageResponseB2P:
                if request.data == b"3" and refusals:
                    return refused(refusals.pop())
                return stored(request)

            kept = sending(made, answer)
            async with TubeProducer(made.address, ["test"], QUICK) as producer:
                target = TubeTargets(producer, "test").of("a", 0)
                await target.send(copies(6))
                assert kept == [b"0", b"1", b"2", *[b"4", b"5"] * 2, b"3", b"4", b"5"]
                assert target.sent == 6

    run(test())


def test_a_copy_that_is_refused_for_good_raises_that() -> None:
    async def test() -> None:
        async with cluster() as made:
            made.topics = {"test": "1:1:1"}
            kept = sending(made, lambda request: refused(Code.BAD_REQUEST))
            async with TubeProducer(made.address, ["test"], QUICK) as producer:
                target = TubeTargets(producer, "test").of("a", 0)
                with pytest.raises(TubeError, match="BAD_REQUEST"):
                    await target.send(copies(2))
                assert (kept, target.sent, len(made.sent)) == ([], 0, 2)

    run(test())


def test_a_broker_that_takes_no_more_for_now_gets_the_rest_later() -> None:
    async def test() -> None:
        async with cluster() as made:
            made.topics = {"test": "1:1:1"}
            kept = sending(made, stored)
            async with TubeProducer(made.address, ["test"], QUICK, pending=3) as producer:
                target = TubeTargets(producer, "test").of("a", 0)
                await target.send(copies(8))
                assert kept == [b"%d" % number for number in range(8)]

    run(test())
