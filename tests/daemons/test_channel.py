"""How the replies to one peer leave."""

import asyncio

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.protocol.command import Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.frame import encode
from tests.daemons.broker.native_pair import Written

REQUESTS = 32


class Counted(Written):
    """Counts the writes, too, each of which is a system call."""

    writes = 0

    def write(self, data: bytes | memoryview) -> None:
        super().write(data)
        self.writes += 1


def test_replies_that_were_waited_for_together_leave_together_and_in_order() -> None:
    async def main() -> tuple[Counted, Counted]:
        stored = asyncio.Event()

        async def when_stored(command: Command, channel: Channel) -> Command:
            await stored.wait()
            return command.reply()

        listener = Listener(Dispatcher({1: when_stored}), "127.0.0.1", 0)
        found = []
        for is_closed in (False, True):
            channel, transport = Channel(listener, listener.dispatcher), Counted()
            found.append(transport)
            channel.connection_made(transport)  # type: ignore[arg-type]  # as much as is needed
            stored.clear()
            for opaque in range(REQUESTS):
                channel.data_received(encode(Command(1, opaque=opaque)))
            await asyncio.sleep(0)  # they wait
            stored.set()
            await asyncio.sleep(0)  # they go on
            if is_closed:  # nothing that was sent is lost
                channel.close()
            await asyncio.sleep(0)
            channel.connection_lost(None)
        return found[0], found[1]

    for transport in asyncio.run(main()):
        replies = CommandReader().receive(transport.data)
        assert [reply.opaque for reply in replies] == list(range(REQUESTS))
        assert transport.writes == 1
