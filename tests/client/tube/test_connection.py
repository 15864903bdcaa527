import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from mq.client.errors import BadAnswer, ConnectError, RequestTimeout
from mq.client.transport import in_flight
from mq.client.tube import connection as module
from mq.client.tube.connection import NotConnected, TubeConnection
from mq.protocol.tube.codes import Method
from mq.protocol.tube.errors import RemoteFailure
from mq.protocol.tube.frame import FrameDecoder, encode_frame
from mq.protocol.tube.rpc import ERROR, Request, decode_request, encode_failure, encode_response
from tests.daemons.tube.rpc_peers import run, serving

GET = Method.GET_MESSAGES_C2B
Script = Callable[[Request], bytes | None]


@contextlib.asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[tuple[str, list[Request]]]:
    """A server that answers each request with the bytes that a script gives; b"" closes."""
    seen: list[Request] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        decoder = FrameDecoder()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                for serial, payload in decoder.feed(data):
                    request = decode_request(serial, payload)
                    seen.append(request)
                    answer = script(request)
                    if answer == b"":
                        writer.close()
                        return
                    if answer is not None:
                        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"127.0.0.1:{port}", seen
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def echo(request: Request) -> bytes:
    return encode_response(request.serial, request.method, request.body)


def with_connection(
    script: Script, test: Callable[[TubeConnection, list[Request]], Awaitable[None]]
) -> None:
    async def opened() -> None:
        async with scripted(script) as (address, seen):
            connection = TubeConnection(address)
            try:
                await test(connection, seen)
            finally:
                connection.close()
                await connection.ended

    run(opened())


def test_many_requests_are_in_flight_side_by_side() -> None:
    async def test(connection: TubeConnection, seen: list[Request]) -> None:
        futures = [connection.request(GET, b"%d" % n, 20) for n in range(1000)]
        assert connection.waiting == 1000
        assert await asyncio.gather(*futures) == [b"%d" % n for n in range(1000)]
        assert [request.serial for request in seen] == list(range(1, 1001))
        assert connection.waiting == 0

    with_connection(echo, test)


def test_a_request_says_what_a_server_has_to_know() -> None:
    async def test(connection: TubeConnection, seen: list[Request]) -> None:
        await connection.call(GET, b"x", 10)
        await connection.call(Method.SEND_MESSAGE_P2B, b"y", 0.8)
        assert seen == [Request(1, 2, 3, 17, 9500, b"x"), Request(2, 3, 3, 13, 400, b"y")]

    with_connection(echo, test)


def test_answers_in_another_order_find_their_requests() -> None:
    held: list[Request] = []

    def backwards(request: Request) -> bytes | None:
        held.append(request)
        return b"".join(map(echo, reversed(held))) if len(held) == 3 else None

    async def test(connection: TubeConnection, _: list[Request]) -> None:
        futures = [connection.request(GET, body, 20) for body in (b"a", b"b", b"c")]
        assert await asyncio.gather(*futures) == [b"a", b"b", b"c"]

    with_connection(backwards, test)


def test_large_answers_come_whole() -> None:
    async def test(connection: TubeConnection, _: list[Request]) -> None:
        body = bytes(range(256)) * 8000
        assert await connection.call(GET, body, 20) == body

    with_connection(echo, test)


def test_an_exception_is_raised_as_it_came() -> None:
    async def test(connection: TubeConnection, _: list[Request]) -> None:
        with pytest.raises(RemoteFailure, match=r"StandbyException#10.0.0.1:8715") as failure:
            await connection.call(GET, b"", 20)
        assert failure.value.standby
        assert connection.stands

    with_connection(
        lambda r: encode_failure(r.serial, ERROR, "StandbyException", "10.0.0.1:8715"), test
    )


@pytest.mark.parametrize(
    "answer",
    [
        lambda r: encode_frame(r.serial, b"junk"),
        lambda r: encode_response(r.serial, r.method + 1, b""),
    ],
)
def test_an_answer_that_cannot_be_read_fails_its_request_only(answer: Script) -> None:
    async def test(connection: TubeConnection, _: list[Request]) -> None:
        with pytest.raises(BadAnswer):
            await connection.call(GET, b"", 20)
        assert connection.stands

    with_connection(answer, test)


def test_what_is_no_frame_ends_the_connection_and_all_that_waits() -> None:
    async def test(connection: TubeConnection, _: list[Request]) -> None:
        futures = [connection.request(GET, b"", 20) for _ in range(3)]
        for future in futures:
            with pytest.raises(BadAnswer, match="a frame begins with 0x48545450"):
                await future
        assert connection.has_ended
        with pytest.raises(BadAnswer):
            connection.request(GET, b"", 20)

    with_connection(lambda _: b"HTTP/1.1 400 Bad Request\r\n", test)


def test_a_connection_that_is_closed_fails_what_waits() -> None:
    async def test(connection: TubeConnection, _: list[Request]) -> None:
        with pytest.raises(ConnectError, match="the server closed the connection"):
            await connection.call(GET, b"", 20)
        assert connection.has_ended

    with_connection(lambda _: b"", test)


def test_a_server_that_is_not_there_fails_what_waits() -> None:
    async def test() -> None:
        async with scripted(echo) as (address, _):
            pass
        connection = TubeConnection(address)
        with pytest.raises(ConnectError, match="refused"):
            await connection.call(GET, b"", 20)
        await connection.ended

    run(test())


def test_a_request_without_an_answer_fails_in_time_and_a_late_one_is_dropped() -> None:
    held: list[Request] = []

    def second(request: Request) -> bytes | None:
        held.append(request)
        return b"".join(map(echo, held)) if len(held) == 2 else None

    async def test(connection: TubeConnection, _: list[Request]) -> None:
        with pytest.raises(RequestTimeout):
            await connection.call(GET, b"", 0.05)
        assert await connection.call(GET, b"x", 20) == b"x"
        assert connection.unexpected == 1

    with_connection(second, test)


def test_a_connection_on_which_nothing_comes_ends_with_a_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "SILENCE_SECONDS", 0.01)

    async def test(connection: TubeConnection, _: list[Request]) -> None:
        with pytest.raises(RequestTimeout):
            await connection.call(GET, b"", 0.1)
        assert connection.has_ended

    with_connection(lambda _: None, test)


def test_a_server_that_takes_nothing_gets_no_more_than_may_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_UNSENT", 100_000)

    async def test(connection: TubeConnection, _: list[Request]) -> None:
        first = connection.request(GET, bytes(200_000), 20)
        with pytest.raises(ConnectError, match="server too slow"):
            connection.request(GET, b"", 20)
        await first
        assert await connection.call(GET, b"x", 20) == b"x"

    with_connection(echo, test)


def test_what_waits_fails_when_the_client_is_closed() -> None:
    async def test(connection: TubeConnection, _: list[Request]) -> None:
        future = connection.request(GET, b"", 20)
        connection.close()
        connection.close()
        with pytest.raises(ConnectError, match="the client was closed"):
            await future

    with_connection(lambda _: None, test)


def test_a_caller_that_gives_up_leaves_the_others_alone() -> None:
    async def test(connection: TubeConnection, _: list[Request]) -> None:
        given_up = asyncio.ensure_future(connection.call(GET, b"a", 20))
        other = asyncio.ensure_future(connection.call(GET, b"b", 20))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await other == b"b"
        with pytest.raises(asyncio.CancelledError):
            await given_up

    with_connection(echo, test)


def test_what_may_have_been_sent_does_not_fail_as_what_was_not() -> None:
    class GivenUp(TubeConnection):
        """Cancelled after it was established, before asyncio has notified its waiter."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._connecting.cancel()

    async def scenario() -> None:
        async with scripted(echo) as (address, _):
            connection = GivenUp(address)
            sent = connection.request(GET, b"once", 20)
            with pytest.raises(ConnectError) as caught:
                await sent
            assert not isinstance(caught.value, NotConnected)
            connection.close()

    run(scenario())


@pytest.mark.parametrize("host", ["a..b", "a\0b"])
def test_what_is_no_name_of_a_host_fails_at_once(host: str) -> None:
    async def test() -> None:
        connection = TubeConnection(f"{host}:8715", connect_timeout=3600)
        with pytest.raises(NotConnected, match="not a valid host name"):
            await connection.call(GET, b"", 3600)

    run(test())


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_is_cancelled_while_it_is_made_fails_what_waits(turns: int) -> None:
    async def test() -> None:
        async with serving(lambda call: None) as listener:
            connection = TubeConnection(f"127.0.0.1:{listener.port}")
            answer = connection.request(GET, b"", 3600)
            for _ in range(turns):
                await asyncio.sleep(0)
            connection._connecting.cancel()
            await asyncio.wait([connection._connecting])
            if not connection.stands:
                with pytest.raises(ConnectError, match="the client was closed"):
                    await answer
            connection.close()
            with pytest.raises(ConnectError, match="the client was closed"):
                await answer

    run(test())
