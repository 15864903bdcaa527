"""Closing a port of a daemon."""

import asyncio
import struct

import pytest

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.protocol.command import Command
from mq.protocol.frame import encode


def test_a_peer_that_does_not_read_its_replies_delays_no_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Listener, "LAST_WORDS", 0.2)

    def large(command: Command, channel: Channel) -> Command:
        return command.reply(body=bytes(1 << 20))

    async def main() -> None:
        listener = Listener(Dispatcher({1: large}), "127.0.0.1", 0)
        await listener.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1)
        for opaque in range(30):
            writer.write(encode(Command(1, opaque=opaque)))
        (length,) = struct.unpack(">i", await reader.readexactly(4))  # it replies
        assert length > 1 << 20
        async with asyncio.timeout(30):
            await listener.close()
        assert not listener.channels
        writer.close()

    asyncio.run(main())
