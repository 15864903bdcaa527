"""Connections of a session: requests that cannot be sent, and connections without answers."""

import asyncio

import pytest

from mq.client.errors import ClientError, ConnectError, RequestTimeout
from mq.client.transport import in_flight
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.client.gate import gate
from tests.client.scripted import HANDLERS, SILENT, accept_heartbeats, scripted
from tests.client.tube.virtual_time import run_fast


def test_a_request_that_cannot_be_sent_is_not_pending() -> None:
    async def scenario() -> None:
        async with scripted(accept_heartbeats()) as broker, Session(broker) as session:
            with pytest.raises(Exception, match="is over the limit"):
                session.request(broker, Command(RequestCode.HEART_BEAT, None, bytes(17 << 20)))
            assert not session._peers[broker]._pending

    asyncio.run(scenario())


def test_a_silent_connection_is_closed_after_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "SILENCE_SECONDS", 1.5)

    async def scenario() -> None:
        async with scripted(accept_heartbeats()) as broker, gate(broker) as way:
            async with Session(way.address) as session:
                beat = RequestCode.HEART_BEAT
                await session.invoke(way.address, Command(beat))
                way.blocked = True
                pull = session.request(way.address, Command(beat), timeout=30)
                with pytest.raises(RequestTimeout):
                    await session.invoke(way.address, Command(beat), timeout=0.8)
                assert session.is_connected(way.address)  # the peer may only be slow
                with pytest.raises(RequestTimeout):
                    await session.invoke(way.address, Command(beat), timeout=0.8)
                with pytest.raises(ConnectError, match="nothing was heard"):
                    await pull
                way.blocked = False  # for new connections; the old one stays blocked
                assert (await session.invoke(way.address, Command(beat), timeout=5)).code == 0
                assert way.connections == 2

    run_fast(scenario())


def test_a_slow_answer_does_not_close_a_connection_with_other_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "SILENCE_SECONDS", 1.5)

    def silent(request: Command, channel: Channel) -> None:
        return None

    async def scenario() -> None:
        async with scripted({**accept_heartbeats(), 901: silent}) as broker:
            async with Session(broker) as session:
                slow = session.request(broker, Command(901), timeout=2.5)
                while not slow.done():
                    await session.invoke(broker, Command(RequestCode.HEART_BEAT))
                    await asyncio.sleep(0.02)
                assert isinstance(slow.exception(), RequestTimeout)
                assert session.is_connected(broker)

    run_fast(scenario())


@pytest.mark.parametrize("host", ["a..b", "a" * 70, "a\0b"])
def test_an_invalid_host_name_fails_at_once(host: str) -> None:
    async def scenario() -> None:
        async with Session("127.0.0.1:1", timeout=60) as session, asyncio.timeout(30):
            with pytest.raises(ClientError, match="is empty or too long"):
                await session.invoke(f"{host}:9876", Command(RequestCode.HEART_BEAT))

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", range(6))
def test_cancelling_a_connection_attempt_fails_its_pending_requests(turns: int) -> None:
    async def scenario() -> None:
        async with scripted(HANDLERS) as address, Session(address) as session, asyncio.timeout(30):
            answer = session.request(address, Command(SILENT), timeout=3600)
            peer = session._peers[address]
            for _ in range(turns):
                await asyncio.sleep(0)
            peer._connecting.cancel()
            await asyncio.wait([peer._connecting])
            if not peer.stands:
                with pytest.raises(ConnectError, match="the session was closed"):
                    await answer
            peer.close()
            with pytest.raises(ConnectError, match="the session was closed"):
                await answer

    asyncio.run(scenario())
