"""Sizes of socket buffers, as the system reports them; Linux doubles the requested size."""

import asyncio
import socket

import pytest

from mq.client.transport.buffers import SocketBuffers
from mq.client.transport.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.protocol.command import Command

SIZES = SocketBuffers(send=40_000, receive=50_000)


def sizes(sock: socket.socket) -> tuple[int, int]:
    options = socket.SO_SNDBUF, socket.SO_RCVBUF
    send, receive = (sock.getsockopt(socket.SOL_SOCKET, option) for option in options)
    return send, receive


@pytest.mark.parametrize("buffers", [SIZES, SocketBuffers()])
def test_both_ends_have_the_buffers_that_are_set(buffers: SocketBuffers) -> None:
    async def main() -> tuple[tuple[int, int], tuple[int, int]]:
        found: list[tuple[int, int]] = []

        def look(command: Command, channel: Channel) -> Command:
            assert channel._transport is not None
            found.append(sizes(channel._transport.get_extra_info("socket")))
            return command.reply()

        async with Listener(Dispatcher({1: look}), "127.0.0.1", 0, buffers=buffers) as listener:
            address = f"127.0.0.1:{listener.port}"
            async with Session(address, buffers=buffers) as session:
                await session.invoke(address, Command(1))
                peer = session._peers[address]
                assert peer._transport is not None
                return found[0], sizes(peer._transport.get_extra_info("socket"))

    accepted, made = asyncio.run(main())
    if any(buffers):
        assert accepted == made == (80_000, 100_000)
    else:
        assert (80_000, 100_000) not in (accepted, made)


NAMES = [f"{side}Socket{way}BufSize" for side in ("server", "client") for way in ("Snd", "Rcv")]


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_buffers_are_checked_and_reach_the_sockets(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=-1: must be at least 0"):
        BrokerSettings.load(None, {name: "-1"})
    loaded = BrokerSettings.load(None, {name: "4096"})
    both = (loaded.server.buffers(), loaded.client.buffers())
    assert sorted(size for buffers in both for size in buffers) == [0, 0, 0, 4096]
