"""The offsets that a member commits."""

import asyncio
from collections.abc import Iterable

from mq.client.errors import MQError
from mq.client.machine import clock
from mq.client.pull.process_queue import ProcessQueue
from mq.client.reader.commits import COMMIT_AFTER, Commits
from mq.client.reader.queue_locks import QueueLocks
from mq.client.reader.settings import ReaderSettings
from mq.client.snode.pushes import Pushes
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue
from tests.client.scenarios import in_a_loop


class RecordingStore:
    """A store that records its calls."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.queues: list[int] = []

    async def committed(self, queue: MessageQueue) -> int | None:
        return None

    def update(self, queue: MessageQueue, offset: int) -> None:
        self.offsets[queue.queue_id] = offset

    def forget(self, queue: MessageQueue) -> None: ...

    async def commit(self, queues: Iterable[MessageQueue], *, again: bool = False) -> list[MQError]:
        self.queues += [queue.queue_id for queue in queues]
        return []


async def _is_same(held: ProcessQueue) -> bool:
    raise AssertionError("the queue was pulled recently")


@in_a_loop
async def test_a_topic_that_returns_during_a_commit_is_reported_as_uncommitted() -> None:
    held = {queue: ProcessQueue(queue, 1) for queue in (MessageQueue("T", "b", n) for n in (0, 1))}
    late = held[MessageQueue("T", "b", 0)]
    late.absent_pause = 3.0

    class Slow(RecordingStore):
        async def commit(
            self, queues: Iterable[MessageQueue], *, again: bool = False
        ) -> list[MQError]:
            errors = await super().commit(queues, again=again)
            late.absent_pause = 0.0
            return errors

    async with Session("127.0.0.1:1") as session:  # no request is sent
        store = Slow()
        keep = asyncio.get_running_loop().create_task
        locks = QueueLocks(session, "g")
        commits = Commits("g", ReaderSettings(), store, locks, keep, held=held, is_same=_is_same)
        errors = await commits.commit(again=True)
        assert store.queues == [1]
        assert [str(error) for error in errors] == [
            f"{late.queue}: its broker has no such topic now"
        ]


@in_a_loop
async def test_many_finished_messages_are_not_committed_while_the_lock_has_lapsed() -> None:
    loop = asyncio.get_running_loop()
    async with Session("127.0.0.1:1") as session:  # no request is sent
        held: dict[MessageQueue, ProcessQueue] = {}
        ends = [loop.create_future() for _ in range(2)]
        for number, end in enumerate(ends):
            queue = MessageQueue("T", "b", number)
            held[queue] = ProcessQueue(queue, COMMIT_AFTER)
            held[queue].pushes = Pushes()
            held[queue].note_lock(clock.monotonic(), end)
        ends[0].set_result(None)  # the connection over which the queue was locked ends
        store = RecordingStore()
        settings = ReaderSettings(ordered=True, pushed=True)
        tasks: list[asyncio.Task[None]] = []
        commits = Commits(
            *("g", settings, store, QueueLocks(session, "g")),
            lambda task: tasks.append(loop.create_task(task)) or tasks[-1],  # type: ignore[func-returns-value]
            held=held,
            is_same=_is_same,
        )
        commits._commit_much()
        await asyncio.gather(*tasks)
        assert (store.queues, store.offsets) == ([1], {1: COMMIT_AFTER})
        ends[0] = loop.create_future()
        next(iter(held.values())).note_lock(clock.monotonic(), ends[0])  # renewed
        commits._commit_much()
        await asyncio.gather(*tasks)
        assert store.queues == [1, 0]
