"""Early refusal of requests that cannot be served in time."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest
import uvloop

from mq.daemons.channel import Channel
from mq.daemons.dispatch import DirectHandler, Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.overload import backlog
from mq.daemons.overload.busy_reply import BusyReply, refuse_sends
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import decode, encode
from tests.daemons.own_time import settled, thread_time
from tests.daemons.peer import PATIENCE, Peer

BUSY = BusyReply("busy (aSetting)")


def frame(header: bytes, body: bytes = b"") -> bytes:
    length = 4 + len(header) + len(body)
    return length.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


JAVA_SEND = frame(
    b'{"code":310,"extFields":{"a":"g","b":"T"},"flag":0,"language":"JAVA","opaque":17,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}',
    b"body",
)
OTHER_ORDER = frame(b'{"opaque":18,"flag":0,"code":310,"version":409,"extFields":{}}', b"x")
FIRST_VERSION = frame(b'{"code":10,"flag":0,"opaque":19,"extFields":{}}')
BATCH = frame(b'{"code":320,"flag":0,"opaque":-20,"extFields":{}}', b"xx")
ONE_WAY_SEND = frame(b'{"code":310,"extFields":{},"flag":2,"language":"JAVA","opaque":21,"v":1}')
# The body of this one, and one of its properties, look like the header of a send.
PULL = frame(b'{"code":11,"flag":0,"opaque":22,"extFields":{"p":"{\\"code\\":310,"}}', JAVA_SEND)
BINARY = encode(Command(310, {"b": "T"}, b"x", opaque=23, serialization=1))
REPLY = frame(b'{"code":310,"flag":1,"opaque":24,"extFields":{}}')
HUGE_NUMBER = frame(b'{"code":310,"flag":0,"opaque":%d,"extFields":{}}' % 10**30)
BROKEN = frame(b'{"code":310,')


def test_the_reply_is_a_frame_of_the_protocol() -> None:
    reply = decode(BUSY.frame(b"-5")[4:])
    assert (reply.code, reply.opaque, reply.flag) == (ResponseCode.SYSTEM_BUSY, -5, 1)
    assert reply.remark == "busy (aSetting)"


def test_every_form_of_a_send_is_refused_and_other_requests_are_not() -> None:
    sends = (JAVA_SEND, OTHER_ORDER, FIRST_VERSION, BATCH, ONE_WAY_SEND)
    others = (PULL, BINARY, REPLY, BROKEN, HUGE_NUMBER)
    mixed = [part for pair in zip(sends, others, strict=True) for part in pair]
    data = b"".join(mixed)
    replies, refused, rest = refuse_sends(data, BUSY)
    assert [reply.opaque for reply in CommandReader().receive(replies)] == [17, 18, 19, -20]
    assert refused == 5
    assert rest == b"".join(others)


def test_an_incomplete_frame_is_not_refused() -> None:
    replies, refused, rest = refuse_sends(JAVA_SEND * 3 + JAVA_SEND[:-1], BUSY)
    assert (len(list(CommandReader().receive(replies))), refused) == (3, 3)
    assert rest == JAVA_SEND[:-1]


def test_reading_stops_at_an_invalid_length() -> None:
    with pytest.raises(RemoteProtocolError, match="a frame of"):
        refuse_sends(b"\x7f\xff\xff\xff" + JAVA_SEND, BUSY)


def numbered(first: int, count: int) -> bytes:
    """Sends of 1 KiB."""
    return b"".join(
        frame(b'{"code":310,"flag":0,"opaque":%d,"extFields":{}}' % number, b"x" * 1024)
        for number in range(first, first + count)
    )


def serve_slowly(sends: int, wait: float, seconds: float) -> tuple[list[int], list[Command]]:
    """Send many requests at once to a slow handler; returns what it got, and all replies."""
    served: list[int] = []

    def send(header: dict[str, object], body: bytes, channel: Channel) -> None:
        time.sleep(seconds)
        served.append(int(str(header["opaque"])))
        channel.send(Command(0, opaque=served[-1], flag=1))

    direct: dict[int, DirectHandler] = {RequestCode.SEND_MESSAGE_V2: send}

    async def main() -> list[Command]:
        listener = Listener(Dispatcher({}, direct), "127.0.0.1", 0, longest_wait=lambda: wait)
        async with listener, Peer(listener.port) as peer:
            peer.writer.write(numbered(0, sends))
            replies = [await peer.receive() for _ in range(sends)]
            refused = sum(reply.code == ResponseCode.SYSTEM_BUSY for reply in replies)
            cause = (RequestCode.SEND_MESSAGE_V2, "waitTimeMillsInSendQueue")
            assert listener.dispatcher.refusals[cause] == refused
            assert listener.backlog.size == 0
            peer.writer.write(numbered(90000, 1))  # the connection continues
            assert (await peer.receive()).code == ResponseCode.SUCCESS
            return replies

    # It reads more per iteration than asyncio's own loop, and the daemons use it.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return served, runner.run(main())


def test_sends_that_wait_too_long_get_busy_and_others_are_served() -> None:
    served, replies = serve_slowly(4000, wait=0.01, seconds=0.0001)
    busy = [reply for reply in replies if reply.code == ResponseCode.SYSTEM_BUSY]
    assert 0 < len(busy) < 4000
    assert all("waitTimeMillsInSendQueue" in (reply.remark or "") for reply in busy)
    assert sorted([reply.opaque for reply in busy] + served[:-1]) == list(range(4000))


def test_an_overload_stays_with_its_sender_and_is_rarely_refused() -> None:
    """20 MB arrive at once, and take four times as long as a send may wait.

    Time is CPU time of this thread, so that other processes on a busy machine do not count.
    """
    now = thread_time
    served: list[object] = []
    waited: list[float] = []

    def send(header: dict[str, object], body: bytes, channel: Channel) -> None:
        until = now() + 0.00004
        while now() < until:
            pass
        served.append(header["opaque"])
        channel.send(Command(0, opaque=int(str(header["opaque"])), flag=1))

    direct: dict[int, DirectHandler] = {RequestCode.SEND_MESSAGE_V2: send}

    async def ask_meanwhile(port: int) -> None:
        async with Peer(port) as other:
            while True:
                began = now()
                await other.ask(99999)
                waited.append(now() - began)

    async def main() -> None:
        listener = Listener(Dispatcher({}, direct), "127.0.0.1", 0, longest_wait=lambda: 0.2)
        listener.backlog._clock = now
        async with listener, Peer(listener.port) as peer:
            asking = asyncio.create_task(ask_meanwhile(listener.port))
            peer.writer.write(numbered(0, 20_000))
            replies = [await peer.receive() for _ in range(20_000)]
            asking.cancel()
            assert sorted(reply.opaque for reply in replies) == list(range(20_000))
            assert not any(listener.backlog._bytes.values()) and listener.backlog.size == 0

    with settled(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert len(served) > 19_000
    assert sorted(waited)[len(waited) // 2] < 0.1  # others are read meanwhile


def test_many_large_senders_are_read_in_turn_and_rarely_refused() -> None:
    """Each sends what is read at once; all together five times what can be served in time."""
    now = thread_time
    connections, sends = 100, 300

    def send(header: dict[str, object], body: bytes, channel: Channel) -> None:
        until = now() + 0.00004
        while now() < until:
            pass
        channel.send(Command(0, opaque=int(str(header["opaque"])), flag=1))

    direct: dict[int, DirectHandler] = {RequestCode.SEND_MESSAGE_V2: send}

    def send_and_wait(port: int) -> int:
        """Run in its own thread, so that the thread of the listener has its time to itself."""
        refused = 0
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as peer:
            for count in (20, sends):
                writing = threading.Thread(target=peer.sendall, args=(numbered(0, count),))
                writing.start()
                reader, replies = CommandReader(), 0
                while replies < count:
                    for reply in reader.receive(peer.recv(1 << 16)):
                        replies += 1
                        refused += reply.code == ResponseCode.SYSTEM_BUSY
                writing.join()
        return refused

    async def main() -> int:
        listener = Listener(Dispatcher({}, direct), "127.0.0.1", 0, longest_wait=lambda: 0.2)
        listener.backlog._clock = now
        loop = asyncio.get_running_loop()
        async with listener:
            with ThreadPoolExecutor(connections) as threads:
                asking = [
                    loop.run_in_executor(threads, send_and_wait, listener.port)
                    for _ in range(connections)
                ]
                refused = sum(await asyncio.gather(*asking))
            assert listener.backlog.size == 0
        return refused

    with settled(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        refused = runner.run(main())
    assert refused < connections * sends // 10


def test_without_a_limit_everything_is_served_in_order() -> None:
    served, replies = serve_slowly(4000, wait=0.0, seconds=0.0)
    assert served[:-1] == list(range(4000)) == [reply.opaque for reply in replies]


def test_waiting_requests_of_a_closed_connection_are_served() -> None:
    served = []

    def send(header: dict[str, object], body: bytes, channel: Channel) -> None:
        served.append(header["opaque"])

    direct: dict[int, DirectHandler] = {RequestCode.SEND_MESSAGE_V2: send}

    async def main() -> None:
        async with Listener(Dispatcher({}, direct), "127.0.0.1", 0) as listener:
            async with Peer(listener.port) as peer:
                peer.writer.write(numbered(0, 4000))
                await peer.writer.drain()
            async with asyncio.timeout(PATIENCE), Peer(listener.port) as other:
                while len(served) < 4000:
                    await other.ask(99999)  # one iteration of the loop

    asyncio.run(main())
    assert served == list(range(4000))


def test_nothing_is_served_after_an_invalid_frame() -> None:
    served = []

    def send(header: dict[str, object], body: bytes, channel: Channel) -> None:
        served.append(header["opaque"])

    direct: dict[int, DirectHandler] = {RequestCode.SEND_MESSAGE_V2: send}

    async def main() -> None:
        async with Listener(Dispatcher({}, direct), "127.0.0.1", 0) as listener:
            async with Peer(listener.port) as peer:
                peer.writer.write(numbered(0, 1000) + b"\xff" * 8 + numbered(1000, 1000))
                await peer.closed_by_daemon()
            assert (listener.dispatcher.bad_requests, listener.backlog.size) == (1, 0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert served == list(range(1000))


def test_a_backlog_that_is_too_large_is_left_to_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MOST_WAITING", 200_000)
    monkeypatch.setattr(backlog, "TURN_BYTES", 50_000)
    served, replies = serve_slowly(4000, wait=0.0, seconds=0.0)
    assert served[:-1] == list(range(4000)) == [reply.opaque for reply in replies]


def test_a_connection_over_the_limit_gets_an_error() -> None:
    async def main() -> None:
        listener = Listener(Dispatcher({}), "127.0.0.1", 0, max_connections=lambda: 1)
        async with listener, Peer(listener.port) as peer:
            await peer.ask(99999)
            async with Peer(listener.port) as second:
                reply = await second.ask(RequestCode.SEND_MESSAGE_V2, {}, b"x")
                assert reply.code == ResponseCode.SYSTEM_BUSY
                assert "maxConnections" in (reply.remark or "")
                await second.closed_by_daemon()
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            async with asyncio.timeout(PATIENCE):  # a silent connection is closed too
                assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
            assert listener.turned_away == 2
            assert (await peer.ask(99999)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    asyncio.run(main())


def test_garbage_over_the_limit_of_connections_is_closed() -> None:
    async def main() -> None:
        async with Listener(Dispatcher({}), "127.0.0.1", 0, max_connections=lambda: 1) as listener:
            async with Peer(listener.port) as peer:
                await peer.ask(99999)
                for garbage in (b"\xff" * 9000, b'12345678{"opaque":x', orjson.dumps([1] * 3000)):
                    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                    writer.write(garbage)
                    async with asyncio.timeout(PATIENCE):
                        assert await reader.read() == b""
                    writer.close()

    asyncio.run(main())
