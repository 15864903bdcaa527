"""Queues that a member gives up, or that another member has locked."""

import asyncio

from mq.client.offsets.offset_store import OffsetStore
from mq.client.pull.process_queue import ProcessQueue
from mq.client.reader.queue_locks import QueueLocks
from mq.client.reader.revoked_queues import RevokedQueues
from mq.client.reader.settings import ReaderSettings
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.client.scripted import name_server, scripted

FIRST, LOST = (MessageQueue("T", "b", number) for number in range(2))


def test_an_offset_is_not_committed_any_more_once_another_member_has_the_lock() -> None:
    committed: list[str] = []
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def update(request: Command, channel: Channel) -> Command:
        committed.append(request.fields["queueId"])
        asked.set()
        await may_answer.wait()
        return request.reply(0)

    async def place(held: ProcessQueue) -> int | None:
        raise AssertionError("nothing of it is ours to commit")

    async def scenario() -> None:
        async with (
            scripted({RequestCode.UPDATE_CONSUMER_OFFSET: update}) as b,
            scripted(name_server({"b": b})) as namesrv,
            Session(namesrv) as session,
        ):
            offsets = OffsetStore(session, "g")
            revoked = RevokedQueues(
                *("g", ReaderSettings(ordered=True), offsets),
                *(QueueLocks(session, "g"), session.keep_task),
                place=place,
            )
            held = {queue: ProcessQueue(queue, 7) for queue in (FIRST, LOST)}
            for queue in held:
                offsets.update(queue, 7)
            commit = asyncio.create_task(offsets.commit(list(held)))
            await asked.wait()
            held[LOST].begin_consuming()  # the listener still has a message of it
            revoked.forget(held[LOST])
            may_answer.set()
            assert len(await commit) == 1
            assert LOST in revoked
            held[LOST].end_consuming(turn=True)
            await revoked.settle()

    asyncio.run(scenario())
    assert committed == ["0"]
