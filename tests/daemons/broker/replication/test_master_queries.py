"""How a slave interprets its master's answers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons.broker.replication.master_queries import MasterQueries
from mq.daemons.broker.store.replica.replica import NotReplicated
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.client.scripted import scripted
from tests.daemons.broker.replication.pair import master, send, settings_of
from tests.daemons.peer import Peer

QUEUES = [("Orders", 0), ("Orders", 1), ("Bills", 0)]


def asked(root: Path, work: Callable[[MasterQueries], Awaitable[None]]) -> None:
    """Send queries to a master that has three messages in one queue."""

    async def main() -> None:
        async with master(root) as first, Peer(first.port) as peer:
            for _ in range(3):
                await send(peer, b"a chair")
            async with MasterQueries(first.address, settings_of(root / "slave")) as questions:
                await work(questions)

    asyncio.run(main())


def test_first_offsets_of_existing_and_missing_queues_are_returned(tmp_path: Path) -> None:
    async def ask(questions: MasterQueries) -> None:
        firsts = await questions.first_offsets(QUEUES)
        assert firsts == {QUEUES[0]: 0, QUEUES[1]: None, QUEUES[2]: None}

    asked(tmp_path, ask)


def test_the_offset_of_a_message_and_the_end_of_its_queue_are_returned(tmp_path: Path) -> None:
    async def ask(questions: MasterQueries) -> None:
        assert await questions.shown("Orders", 0, 0) == (0, 3)
        assert await questions.shown("Orders", 0, 7) == (None, 3)
        assert await questions.shown("Orders", 1, 7) == (None, 0)

    asked(tmp_path, ask)


def test_existing_records_are_returned(tmp_path: Path) -> None:
    async def ask(questions: MasterQueries) -> None:
        assert await questions.record_at(0)
        assert await questions.record_at(1 << 40) is None

    asked(tmp_path, ask)


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy"),
        (ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException"),
    ],
)
def test_an_overloaded_master_does_not_count_as_empty(
    code: ResponseCode, remark: str, tmp_path: Path
) -> None:
    """The slave would drop its queue."""

    def fail(request: Command, channel: Channel) -> Command:
        return request.reply(code, remark=remark)

    def zero(request: Command, channel: Channel) -> Command:
        return request.reply(fields={"offset": "0"})

    async def main() -> None:
        handlers: dict[int, Handler] = {
            RequestCode.VIEW_MESSAGE_BY_ID: fail,
            RequestCode.GET_MIN_OFFSET: zero,
            RequestCode.QUERY_CONSUME_QUEUE: fail,
        }
        settings = settings_of(tmp_path)
        async with scripted(handlers) as address, MasterQueries(address, settings) as questions:
            with pytest.raises(NotReplicated, match="does not report what its log has at 0"):
                await questions.record_at(0)
            with pytest.raises(NotReplicated, match="does not report what queue 0 of Orders has"):
                await questions.first_offsets(QUEUES[:1])

    asyncio.run(main())


def test_a_master_of_5x_is_asked_about_physical_queues_only(
    tmp_path: Path,
) -> None:
    """It is not the leader of a queue without a mapping, and replication would end there
    permanently.
    """

    def own(request: Command, channel: Channel) -> Command:
        if request.fields.get("lo") != "false":
            return request.reply(ResponseCode.NOT_LEADER_FOR_QUEUE, remark="not here")
        return request.reply(fields={"offset": "5"})

    async def main() -> None:
        handlers: dict[int, Handler] = {RequestCode.GET_MIN_OFFSET: own}
        settings = settings_of(tmp_path)
        async with scripted(handlers) as address, MasterQueries(address, settings) as questions:
            assert await questions.first_offsets(QUEUES[:1]) == {QUEUES[0]: 0}

    asyncio.run(main())
