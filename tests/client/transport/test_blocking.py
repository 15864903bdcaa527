"""Sessions without an event loop, with scripted peers."""

import asyncio

import pytest

from mq.client.errors import (
    ClientError,
    ConnectError,
    RequestTimeout,
    SystemBusy,
)
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.caller import Caller
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.protocol.command import Command
from tests.client.scripted import ECHO, HANDLERS, HANG_UP, REFUSE, SILENT, closed_port, scripted
from tests.waiting import until


async def ask_in_every_way(session: Caller, address: str) -> list[str]:
    seen = [(await session.invoke(address, Command(ECHO, {"n": "one"}))).fields["n"]]
    several = [session.invoke(address, Command(ECHO, {"n": str(n)})) for n in range(3)]
    seen += [response.fields["n"] for response in await session.all(several)]
    await session.invoke_oneway(address, Command(SILENT))
    with pytest.raises(SystemBusy):
        await session.call(address, Command(REFUSE))
    with pytest.raises(RequestTimeout):
        await session.invoke(address, Command(SILENT), timeout=0.05)
    with pytest.raises(ConnectError):
        await session.invoke(address, Command(HANG_UP))
    with pytest.raises(ConnectError):
        await session.invoke(closed_port(), Command(ECHO))
    seen.append((await session.invoke(address, Command(ECHO, {"n": "again"}))).fields["n"])
    return seen


def test_a_session_without_an_event_loop_behaves_like_one_with_a_loop() -> None:
    expected = ["one", "0", "1", "2", "again"]

    async def scenario() -> None:
        async with scripted(HANDLERS) as address:
            async with Session(address) as session:
                assert await ask_in_every_way(session, address) == expected
            with BlockingSession(address) as blocking:
                work = ask_in_every_way(blocking, address)
                assert await asyncio.to_thread(run, work) == expected

    asyncio.run(scenario())


def test_a_session_without_an_event_loop_reconnects_after_the_peer_has_closed() -> None:
    async def scenario() -> None:
        channels: list[Channel] = []

        def remember(request: Command, channel: Channel) -> Command:
            channels.append(channel)
            return request.reply()

        async with scripted({ECHO: remember}) as address:
            with BlockingSession(address) as session:
                await asyncio.to_thread(run, session.invoke(address, Command(ECHO)))
                channels[0].close()
                await until(lambda: channels[0].closed)
                await asyncio.to_thread(run, session.invoke(address, Command(ECHO)))
        assert channels[1] is not channels[0]

    asyncio.run(scenario())


def test_waiting_for_an_event_loop_without_one_is_a_clear_error() -> None:
    async def wait() -> None:
        await asyncio.sleep(0)

    with pytest.raises(ClientError, match="needs an event loop"):
        run(wait())


def test_the_first_error_of_several_closes_the_other_coroutines() -> None:
    async def fail() -> int:
        raise ClientError("first")

    async def never() -> int:
        raise AssertionError("started after an error")

    with BlockingSession("127.0.0.1:9876") as session, pytest.raises(ClientError, match="first"):
        run(session.all([fail(), never()]))
