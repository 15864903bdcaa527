import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.errors import (
    BadAnswer,
    ClientError,
    ConnectError,
    RequestTimeout,
    RouteNotFound,
    SystemBusy,
)
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.client.scripted import (
    ECHO,
    HANDLERS,
    HANG_UP,
    REFUSE,
    SILENT,
    closed_port,
    name_server,
    routes,
    scripted,
)
from tests.waiting import until


def test_answers_in_any_order_reach_their_requests() -> None:
    kept: list[tuple[Command, Channel]] = []

    def answer_backwards(request: Command, channel: Channel) -> None:
        kept.append((request, channel))
        if len(kept) == 100:
            for earlier, its_channel in reversed(kept):
                its_channel.reply(earlier, 0, earlier.fields)

    async def scenario() -> None:
        async with scripted({ECHO: answer_backwards}) as address, Session(address) as session:
            responses = await asyncio.gather(
                *(session.invoke(address, Command(ECHO, {"n": str(n)})) for n in range(100))
            )
            assert [response.fields["n"] for response in responses] == [str(n) for n in range(100)]

    asyncio.run(scenario())


def test_an_error_code_becomes_the_error_of_that_code() -> None:
    async def scenario() -> None:
        async with scripted(HANDLERS) as address, Session(address) as session:
            with pytest.raises(SystemBusy, match="SYSTEM_BUSY: too much") as caught:
                await session.call(address, Command(REFUSE))
            assert caught.value.address == address
            assert caught.value.retriable
            response = await session.call(address, Command(REFUSE), accept={0, 2})
            assert response.code == ResponseCode.SYSTEM_BUSY

    asyncio.run(scenario())


def test_each_request_times_out_at_its_own_deadline() -> None:
    async def scenario() -> None:
        async with scripted(HANDLERS) as address, Session(address) as session:
            slow = session.request(address, Command(SILENT), timeout=30)
            with pytest.raises(RequestTimeout, match=r"no answer to request 902 within 0.05 s"):
                await session.invoke(address, Command(SILENT), timeout=0.05)
            with pytest.raises(RequestTimeout):
                await session.invoke(address, Command(SILENT), timeout=0.05)
            assert not slow.done()
            assert (await session.invoke(address, Command(ECHO))).code == 0
            slow.cancel()

    asyncio.run(scenario())


def test_a_broken_connection_fails_pending_requests_and_the_next_one_reconnects() -> None:
    async def scenario() -> None:
        async with scripted(HANDLERS) as address, Session(address) as session:
            waiting = session.request(address, Command(SILENT), timeout=30)
            with pytest.raises(ConnectError, match="closed the connection"):
                await session.invoke(address, Command(HANG_UP))
            with pytest.raises(ConnectError):
                await waiting
            assert (await session.invoke(address, Command(ECHO))).code == 0

    asyncio.run(scenario())


def test_a_closed_port_is_a_connect_error_that_names_the_address() -> None:
    address = closed_port()

    async def scenario() -> None:
        async with Session(address) as session:
            with pytest.raises(ConnectError, match=f"^{address}: Connection refused"):
                await session.invoke(address, Command(ECHO))
            with pytest.raises(ConnectError):
                await session.invoke_oneway(address, Command(ECHO))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "junk", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x08\x00\x00\x00\x04nope"]
)
def test_a_peer_with_another_protocol_is_a_bad_answer(junk: bytes) -> None:
    async def scenario() -> None:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(junk)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, Session(address) as session:
            with pytest.raises(BadAnswer, match=address):
                await session.invoke(address, Command(SILENT))
            with BlockingSession(address) as blocking, pytest.raises(BadAnswer, match=address):
                await asyncio.to_thread(run, blocking.invoke(address, Command(SILENT)))

    asyncio.run(scenario())


def test_closing_the_session_fails_pending_requests() -> None:
    async def scenario() -> None:
        async with scripted(HANDLERS) as address:
            session = Session(address)
            async with session:
                waiting = session.request(address, Command(SILENT))
                await session.invoke(address, Command(ECHO))
            with pytest.raises(ConnectError, match="the session was closed"):
                await waiting
            with pytest.raises(ClientError, match="not open"):
                await session.invoke(address, Command(ECHO))
            await session.close()  # again

    asyncio.run(scenario())


def test_the_next_name_server_is_queried_when_one_is_down() -> None:
    async def scenario() -> None:
        async with scripted(name_server({"b": "1.2.3.4:5"})) as address:
            async with Session(f"{closed_port()};{address}") as session:
                assert (await session.route("topic")).broker_datas[0].broker_name == "b"

    asyncio.run(scenario())


def test_a_known_route_stays_valid_while_no_name_server_answers() -> None:
    async def scenario() -> None:
        async with scripted(name_server({"b": "1.2.3.4:5"})) as address:
            session = Session(address)
            await session.open()
            route = await session.route("topic")
        session.outdate_route("topic")
        assert await session.route("topic") is route
        with pytest.raises(ConnectError):
            await session.route("another")
        await session.close()

    asyncio.run(scenario())


def test_an_outdated_route_is_fetched_again_and_survives_a_lost_topic() -> None:
    async def scenario() -> None:
        brokers = {"b": "1.2.3.4:5"}
        answer = routes(brokers)

        def name_server(request: Command, channel: Channel) -> Command:
            if not brokers:
                return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark="no route")
            return answer(request, channel)  # type: ignore[return-value]

        async with scripted({RequestCode.GET_ROUTEINFO_BY_TOPIC: name_server}) as address:
            async with Session(address) as session:
                first = await session.route("topic")
                assert await session.route("topic") is first
                session.outdate_route("topic")
                assert await session.route("topic") is first  # at once, while it is refreshed
                await until(lambda: session.known_route("topic") is not first)
                brokers.clear()
                with pytest.raises(RouteNotFound, match="topic topic: no name server knows it"):
                    await Admin(session).topic_route("topic")
                # A restarted name server is still learning its topics: the known route stays valid.
                assert (await session.route("topic")).broker_datas
                assert session.known_brokers() == {"1.2.3.4:5"}
                brokers["b"] = "1.2.3.4:6"
                session.outdate_route("topic")
                await session.fresh_route("topic")
                assert session.known_brokers() == {"1.2.3.4:6"}

    asyncio.run(scenario())


class _HeldRoutes:
    """A name server that sends each answer when the test calls `give`, with its brokers at that
    time.
    """

    def __init__(self, brokers: dict[str, str]) -> None:
        self.held: list[tuple[Command, Channel]] = []
        self._answer = routes(brokers)

    def hold(self, request: Command, channel: Channel) -> None:
        self.held.append((request, channel))

    def give(self, number: int) -> None:
        request, channel = self.held[number]
        reply = self._answer(request, channel)
        assert isinstance(reply, Command)
        channel.send(reply)


def test_a_route_requested_before_the_call_is_not_fresh() -> None:
    async def scenario() -> None:
        brokers = {"b": "1.2.3.4:5"}
        way = _HeldRoutes(brokers)
        async with scripted({RequestCode.GET_ROUTEINFO_BY_TOPIC: way.hold}) as address:
            async with Session(address) as session:
                first = asyncio.create_task(session.route("topic"))
                await until(lambda: len(way.held) == 1)
                fresh = [asyncio.create_task(session.fresh_route("topic")) for _ in range(9)]
                known = asyncio.create_task(session.route("topic"))
                await asyncio.sleep(0)
                way.give(0)
                brokers["b"] = "1.2.3.4:6"
                assert await known is await first
                await until(lambda: len(way.held) == 2)
                way.give(1)
                for route in await asyncio.gather(*fresh):
                    assert route.broker_datas[0].broker_addrs == {0: "1.2.3.4:6"}
                assert len(way.held) == 2

    asyncio.run(scenario())


def test_an_outdated_route_is_requested_again_after_the_request_in_flight() -> None:
    async def scenario() -> None:
        brokers = {"b": "1.2.3.4:5"}
        way = _HeldRoutes(brokers)
        async with scripted({RequestCode.GET_ROUTEINFO_BY_TOPIC: way.hold}) as address:
            async with Session(address) as session:
                first = asyncio.create_task(session.route("topic"))
                await until(lambda: len(way.held) == 1)
                way.give(0)
                await first
                refresh = asyncio.create_task(session.fresh_route("topic"))
                await until(lambda: len(way.held) == 2)
                session.outdate_route("topic")
                way.give(1)
                await refresh
                await until(lambda: len(way.held) == 3)

    asyncio.run(scenario())


def test_a_request_of_a_peer_is_answered_by_the_handler_for_its_code() -> None:
    channels: list[Channel] = []

    def remember(request: Command, channel: Channel) -> Command:
        channels.append(channel)
        return request.reply()

    async def later(request: Command, address: str) -> Command:
        await asyncio.sleep(0)
        return request.reply(0, {"from": "later"})

    def fail(request: Command, address: str) -> Command:
        raise ValueError("cannot")

    async def scenario() -> None:
        async with scripted({ECHO: remember}) as address, Session(address) as session:
            session.on_request(1, lambda request, _: request.reply(0, {"from": "now"}))
            session.on_request(2, later)
            session.on_request(3, fail)
            await session.invoke(address, Command(ECHO))
            answers = [await channels[0].request(Command(code), 5) for code in (1, 2, 3, 4)]
            assert [answer.fields.get("from") for answer in answers[:2]] == ["now", "later"]
            assert (answers[2].code, answers[2].remark) == (ResponseCode.SYSTEM_ERROR, "cannot")
            assert answers[3].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    asyncio.run(scenario())


def test_a_oneway_request_arrives_and_waits_for_nothing() -> None:
    arrived: list[Command] = []

    async def scenario() -> None:
        def take(request: Command, channel: Channel) -> None:
            arrived.append(request)

        async with scripted({SILENT: take}) as address, Session(address) as session:
            await session.invoke_oneway(address, Command(SILENT, {"n": "1"}))
            await until(lambda: bool(arrived))
        assert arrived[0].is_one_way

    asyncio.run(scenario())


def test_a_body_larger_than_a_socket_buffer_arrives_whole() -> None:
    body = bytes(range(256)) * 40_000  # 10 MB

    async def scenario() -> None:
        async with scripted(HANDLERS) as address, Session(address, timeout=20) as session:
            responses = await session.all(
                [session.invoke(address, Command(ECHO, None, body)) for _ in range(2)]
            )
            assert [response.body == body for response in responses] == [True, True]

    asyncio.run(scenario())


def test_a_converter_that_raises_anything_fails_its_request_and_no_other() -> None:
    def convert(command: Command) -> int:
        raise ZeroDivisionError("by me")

    async def scenario() -> None:
        async with scripted(HANDLERS) as address, Session(address) as session:
            with pytest.raises(BadAnswer, match="ZeroDivisionError: by me") as raised:
                await session.request(address, Command(ECHO), 5, convert)
            assert isinstance(raised.value.__cause__, ZeroDivisionError)
            assert (await session.invoke(address, Command(ECHO))).code == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("later", [False, True])
def test_a_handler_that_raises_anything_answers_with_a_system_error(later: bool) -> None:
    answers: list[Command] = []

    async def push(request: Command, channel: Channel) -> Command:
        answers.append(await channel.request(Command(77), 5))
        return request.reply()

    def fail(request: Command, address: str) -> Command:
        raise ZeroDivisionError("by me")

    async def fail_later(request: Command, address: str) -> Command:
        raise ZeroDivisionError("by me")

    async def scenario() -> None:
        async with scripted({ECHO: push}) as address, Session(address) as session:
            session.on_request(77, fail_later if later else fail)
            assert (await session.invoke(address, Command(ECHO))).code == 0

    asyncio.run(scenario())
    assert answers[0].code == ResponseCode.SYSTEM_ERROR
    assert answers[0].remark == "ZeroDivisionError: by me"


def test_a_handler_that_has_not_started_is_closed_with_the_session() -> None:
    made: list[Coroutine[Any, Any, Command]] = []

    async def push(request: Command, channel: Channel) -> None:
        channel.notify(Command(77))

    async def answer(request: Command) -> Command:
        return request.reply()

    async def scenario() -> None:
        async with scripted({ECHO: push}) as address:
            session = await Session(address).__aenter__()
            closing: list[asyncio.Task[None]] = []

            def later(request: Command, address: str) -> Coroutine[Any, Any, Command]:
                closing.append(asyncio.ensure_future(session.__aexit__()))
                made.append(answer(request))
                return made[0]

            session.on_request(77, later)
            await session.invoke_oneway(address, Command(ECHO))
            await until(lambda: bool(closing))
            await closing[0]

    asyncio.run(scenario())
    assert inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED
