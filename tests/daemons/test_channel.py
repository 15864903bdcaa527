"""How the replies to one peer are written."""

import asyncio
from itertools import pairwise

import pytest

from mq.daemons.channel import LARGE_REST, Channel
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.overload import backlog
from mq.daemons.overload.busy_reply import BusyReply
from mq.protocol.command import Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.frame import encode
from tests.daemons.written import Written, connected

REQUESTS = 32


class Counted(Written):
    """Counts the writes, each of which is a system call."""

    writes = 0

    def write(self, data: bytes | memoryview) -> None:
        super().write(data)
        self.writes += 1


def test_replies_of_one_iteration_are_written_together_and_in_order() -> None:
    async def main() -> tuple[Counted, Counted]:
        stored = asyncio.Event()

        async def when_stored(command: Command, channel: Channel) -> Command:
            await stored.wait()
            return command.reply()

        listener = Listener(Dispatcher({1: when_stored}), "127.0.0.1", 0)
        found = []
        for is_closed in (False, True):
            channel, transport = connected(listener, Counted())
            found.append(transport)
            stored.clear()
            for opaque in range(REQUESTS):
                channel.data_received(encode(Command(1, opaque=opaque)))
            await asyncio.sleep(0)  # they wait
            stored.set()
            await asyncio.sleep(0)  # they continue
            if is_closed:  # nothing that was sent is lost
                channel.close()
            await asyncio.sleep(0)
            channel.connection_lost(None)
        return found[0], found[1]

    for transport in asyncio.run(main()):
        replies = CommandReader().receive(transport.data)
        assert [reply.opaque for reply in replies] == list(range(REQUESTS))
        assert transport.writes == 1


class Read(Written):
    """Records whether reading is paused."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def test_further_data_of_an_evicted_connection_delays_no_other() -> None:
    async def main() -> None:
        listener = Listener(Dispatcher({}), "127.0.0.1", 0)
        (evicted, its), (other, others) = connected(listener, Read()), connected(listener, Read())
        begun = encode(Command(310, {"b": "T"}, bytes(1 << 20), opaque=7))[: 2 * backlog.LARGE]
        evicted.data_received(begun)
        evicted.evict(BusyReply("too much"))
        for _ in range(64):
            evicted.data_received(bytes(backlog.TURN_BYTES))
        assert listener.backlog.size == 0
        other.data_received(begun)
        assert others.is_read and not other.waits
        other.throttle(True)
        evicted.throttle(True)  # the backlog of the listener is full
        assert its.is_read and not others.is_read  # closed with unread data it would be reset

    asyncio.run(main())


def test_a_connection_that_closes_has_no_turn_in_the_backlog() -> None:
    async def main() -> None:
        listener = Listener(Dispatcher({}), "127.0.0.1", 0)
        gone = [connected(listener, Read())[0] for _ in range(100)]
        there, transport = connected(listener, Read())
        for channel in (*gone, there):  # as for a connection that sends too much
            listener.backlog._pause(channel)
        for channel in gone:
            channel.connection_lost(None)
        listener.backlog._turn()
        assert transport.is_read

    asyncio.run(main())


@pytest.mark.parametrize("cut", [1, 3, 4, 7, 8, 30, 600])
@pytest.mark.parametrize("is_stalled", [False, True])
def test_data_after_a_frame_in_pieces_is_served_after_it(cut: int, is_stalled: bool) -> None:
    """The rest is large, and so not joined to the frame."""
    count = 100
    stream = b"".join(encode(Command(1, body=bytes(700), opaque=n)) for n in range(count))
    assert len(stream) > 4 * LARGE_REST

    async def main() -> Read:
        def answer(command: Command, channel: Channel) -> Command:
            if is_stalled and command.opaque in (0, 50):
                channel.pause_writing()
            return command.reply()

        listener = Listener(Dispatcher({1: answer}), "127.0.0.1", 0)
        channel, transport = connected(listener, Read())
        for start, end in pairwise((0, cut, 2 * LARGE_REST, 2 * LARGE_REST + 5, len(stream))):
            channel.data_received(stream[start:end])
        for _ in range(4):
            channel.resume_writing()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert channel.memory == 0
        return transport

    replies = CommandReader().receive(asyncio.run(main()).data)
    assert [reply.opaque for reply in replies] == list(range(count))


def test_parts_of_a_request_do_not_start_polling() -> None:
    """A peer that sends a byte now and then must not keep a loop from sleeping."""

    async def main() -> None:
        listener = Listener(Dispatcher({1: lambda command, channel: command.reply()}), "", 0)
        served: list[int] = []
        listener.polling.served = lambda: served.append(arrived)  # type: ignore[method-assign]
        channel, _ = connected(listener, Written())
        frames = encode(Command(1)) + encode(Command(1))
        for arrived in range(1, len(frames) + 1):
            channel.data_received(frames[arrived - 1 : arrived])
        channel.connection_lost(None)
        assert served == [len(frames) // 2, len(frames)]

    asyncio.run(main())
