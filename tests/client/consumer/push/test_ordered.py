"""Order and locks across many rebalances, against our own daemons."""

import asyncio
import random
import threading
from collections import defaultdict

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.reader import reader, revoked_queues
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import GROUP, TOPIC, cluster
from tests.waiting import until

QUEUES = 4


class Witness:
    """Sees each message consumed, and that no queue is consumed by two at once."""

    def __init__(self) -> None:
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.inside: dict[int, str] = {}
        self.overlaps: list[str] = []

    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    def listener(self, name: str) -> object:
        async def listen(message: StoredMessage) -> None:
            queue = message.queue_id
            if queue in self.inside:
                self.overlaps.append(f"{name} and {self.inside[queue]} in {queue}")
            self.inside[queue] = name
            await asyncio.sleep(random.random() / 200)
            del self.inside[queue]
            self.seen[queue].append(message.queue_offset)

        return listen


def firsts(offsets: list[int]) -> list[int]:
    """The offsets in the order in which they came first."""
    return list(dict.fromkeys(offsets))


def test_two_members_keep_order_while_one_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "REBALANCE_AGAIN_SECONDS", 0.02)
    witness = Witness()
    per_queue = 0

    async def scenario() -> None:
        nonlocal per_queue
        async with cluster(queues=QUEUES) as there:

            def enough_was_consumed() -> bool:
                return per_queue * QUEUES - witness.count() < 80

            async def feed() -> None:
                """However fast a member comes and goes, there is more to consume meanwhile."""
                nonlocal per_queue
                while changes < 4:
                    for queue in range(QUEUES):
                        place = MessageQueue(TOPIC, "broker-a", queue)
                        await there.producer.send(Message(TOPIC, b"x"), place)
                    per_queue += 1
                    await until(enough_was_consumed, 40)

            def member(name: str) -> Consumer:
                return there.consumer(
                    listener=witness.listener(name), ordered=True, instance=name, pull_batch=8
                )

            def done() -> bool:
                return all(len(firsts(witness.seen[q])) == per_queue for q in range(QUEUES))

            async with member("first") as first:
                changes = 0
                feeding = asyncio.create_task(feed())
                while changes < 4:
                    async with member("second") as second:
                        await until(lambda member=second: len(member.assigned) >= 2, 40)  # type: ignore[misc]
                        wanted = witness.count() + 12
                        await until(lambda wanted=wanted: witness.count() >= wanted, 40)  # type: ignore[misc]
                    changes += 1
                    await until(lambda: len(first.assigned) >= QUEUES, 40)
                await feeding
                await until(done, 40)
            assert await there.lag() == 0

    asyncio.run(scenario())
    assert not witness.overlaps
    for queue in range(QUEUES):
        assert firsts(witness.seen[queue]) == list(range(per_queue))
        # A queue is handed over between two messages, so none is consumed twice either.
        assert witness.seen[queue] == list(range(per_queue))


def test_a_queue_that_is_given_up_stays_locked_until_the_listener_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(revoked_queues, "HAND_OVER_SECONDS", 0.05)
    monkeypatch.setattr(reader, "REBALANCE_AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(reader, "RENEW_SECONDS", 0.05)
    release = threading.Event()
    inside = threading.Event()

    def listen(message: StoredMessage) -> None:
        inside.set()
        assert release.wait(20)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            queue = MessageQueue(TOPIC, "broker-a", 0)
            broker = there.pair.broker.address
            await there.send(b"1", b"2")
            async with there.consumer(listener=listen, ordered=True) as consumer:
                await until(inside.is_set)
                await consumer.reader.assign([])  # as a rebalance does that takes the queue away
                assert consumer.assigned == []
                assert await there.admin.lock_queues(broker, GROUP, "another", [queue]) == set()
                assert not await consumer.reader._take(queue)  # not even we begin again
                release.set()
                async with asyncio.timeout(15):
                    while queue not in await there.admin.lock_queues(  # noqa: ASYNC110
                        broker, GROUP, "another", [queue]
                    ):
                        await asyncio.sleep(0.01)
                committed = await consumer.reader.offsets.committed(queue)
                assert committed == 1  # the message that was being consumed counts

    asyncio.run(scenario())


def test_a_queue_is_handed_on_by_a_member_that_closes_while_consuming() -> None:
    began, release = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def scenario() -> None:
        async def slow(message: StoredMessage) -> None:
            began.set()
            await release.wait()
            order.append(f"first {message.body.decode()}")

        async def listen(message: StoredMessage) -> None:
            order.append(f"second {message.body.decode()}")

        async with cluster(queues=1) as there:
            await there.send(b"1", b"2")
            first = there.consumer(listener=slow, ordered=True, instance="a")
            async with first:
                await began.wait()
                async with there.consumer(listener=listen, ordered=True, instance="b"):
                    closing = asyncio.create_task(first.close())
                    await until(lambda: first._consumption._closing)
                    release.set()
                    await closing
                    await until(lambda: len(order) == 2)

    asyncio.run(scenario())
    assert order == ["first 1", "second 2"]


@pytest.mark.parametrize(
    ("ends", "again"), [("returns", False), ("raises", True), ("a coroutine", True)]
)
def test_a_line_goes_on_when_the_thread_of_a_cancelled_worker_is_done(
    ends: str, again: bool
) -> None:
    """The end is after a message whose listener has returned, and at the message if it has not."""
    got: list[bytes] = []
    inside, may_end = threading.Event(), threading.Event()

    async def later() -> None:
        inside.set()
        await asyncio.to_thread(may_end.wait)

    def listen(message: StoredMessage) -> object:
        got.append(message.body)
        if len(got) > 1:
            return None
        if ends == "a coroutine":
            return later()
        inside.set()
        may_end.wait()
        if ends == "raises":
            raise ValueError("not consumed")
        return None

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"0", b"1")
            async with there.consumer(listener=listen, ordered=True, concurrency=1) as consumer:
                await asyncio.to_thread(inside.wait)
                (worker,) = consumer._workers._tasks
                worker.cancel()
                await asyncio.wait([worker])
                (held,) = [h for q, h in consumer.reader.held.items() if q.topic == TOPIC]
                assert got == [b"0"]
                may_end.set()
                await until(lambda: not held.count)

    asyncio.run(scenario())
    assert got == [b"0", *([b"0"] if again else []), b"1"]


def test_of_a_batch_each_message_becomes_a_dead_letter_once() -> None:
    calls: list[list[bytes]] = []

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"first")
            third, may_fail = asyncio.Event(), asyncio.Event()

            async def fail(messages: list[StoredMessage]) -> None:
                calls.append([message.body for message in messages])
                if len(calls) == 3:
                    third.set()
                    await may_fail.wait()
                raise ValueError("not now")

            async with there.consumer(
                batch_listener=fail, batch=8, ordered=True, suspension=0.01, max_reconsume_times=3
            ) as consumer:
                await third.wait()
                await there.send(b"second")
                held = next(h for q, h in consumer.reader.held.items() if q.topic == TOPIC)
                await until(lambda: held.count == 2)
                may_fail.set()
                await until(lambda: not held.count)
            store = there.pair.broker.stores.messages
            assert store.max_offset(f"%DLQ%{GROUP}", 0) == 2

    asyncio.run(scenario())
    assert calls[:3] == [[b"first"]] * 3
    assert calls[3] == [b"first", b"second"]
    assert calls[4:] == [[b"second"]] * 3
