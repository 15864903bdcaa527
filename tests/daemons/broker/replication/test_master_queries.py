"""What a slave makes of its master's answers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons.broker.replication.master_queries import MasterQueries
from mq.daemons.broker.store.replica import NotReplicated
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.client.scripted import scripted
from tests.daemons.broker.replication.pair import master, send, settings_of
from tests.daemons.peer import Peer

QUEUES = [("Orders", 0), ("Orders", 1), ("Bills", 0)]


def asked(root: Path, work: Callable[[MasterQueries], Awaitable[None]]) -> None:
    """Let questions be asked of a master that has three messages in one queue."""

    async def main() -> None:
        async with master(root) as first, Peer(first.port) as peer:
            for _ in range(3):
                await send(peer, b"a chair")
            async with MasterQueries(first.address, settings_of(root / "slave")) as questions:
                await work(questions)

    asyncio.run(main())


def test_it_is_told_where_queues_begin_and_of_which_there_are_none(tmp_path: Path) -> None:
    async def ask(questions: MasterQueries) -> None:
        firsts = await questions.first_offsets(QUEUES)
        assert firsts == {QUEUES[0]: 0, QUEUES[1]: None, QUEUES[2]: None}

    asked(tmp_path, ask)


def test_it_is_told_where_a_message_of_a_queue_is_and_where_that_ends(tmp_path: Path) -> None:
    async def ask(questions: MasterQueries) -> None:
        assert await questions.shown("Orders", 0, 0) == (0, 3)
        assert await questions.shown("Orders", 0, 7) == (None, 3)
        assert await questions.shown("Orders", 1, 7) == (None, 0)

    asked(tmp_path, ask)


def test_it_is_told_which_records_there_are(tmp_path: Path) -> None:
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
def test_a_master_that_is_busy_has_not_said_that_it_has_nothing(
    code: ResponseCode, remark: str, tmp_path: Path
) -> None:
    """What a slave has would be dropped for it."""

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


def test_a_master_of_5x_is_asked_about_its_own_queues_and_not_about_those_of_static_topics(
    tmp_path: Path,
) -> None:
    """It does not lead what it has no mapping for, and replication would end there for good."""

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
