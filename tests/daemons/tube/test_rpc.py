import asyncio
import inspect
import ssl
from collections.abc import Coroutine

import pytest
import trustme

from mq.client.tube.connection import TubeConnection
from mq.daemons.tube import rpc
from mq.daemons.tube.rpc import Call, Route, RpcListener, ServiceFailure
from mq.protocol.tube.codes import Method, Service
from mq.protocol.tube.errors import IllegalName
from mq.protocol.tube.frame import encode_frame
from mq.protocol.tube.messages import (
    CloseRequestC2M,
    CloseResponseM2C,
    parse,
)
from mq.protocol.tube.rpc import (
    ERROR,
    FATAL,
    encode_request,
    encode_response,
)
from tests.daemons.own_records import own_records
from tests.daemons.tube.rpc_peers import (
    ANSWER,
    CLOSE,
    REQUEST,
    SECONDS,
    client,
    request,
    run,
    serving,
)
from tests.waiting import until


def test_a_handler_answers_with_what_it_returns() -> None:
    seen: list[tuple[str, str, str]] = []

    def handle(call: Call) -> CloseResponseM2C:
        seen.append((call.message.clientId, call.message.groupName, call.host))
        assert not call.tls and call.peer.startswith("127.0.0.1:")
        return ANSWER

    async def test() -> None:
        async with serving(handle) as listener, client(listener) as peer:
            peer.send(request(7))
            assert await peer.frame() == (
                7,
                b"\x02\x08\x01\x04\x08\x00\x18\x03\x0e\x08\x06\x12\x0a"
                + ANSWER.SerializeToString(),
            )
            assert listener.counters["requests"] == listener.requests[CLOSE] == 1
        assert seen == [("c", "g", "127.0.0.1")]

    run(test())


@pytest.mark.parametrize("way", ["bytes", "frame", "coroutine", "later"])
def test_a_handler_may_answer_in_other_ways_and_later(way: str) -> None:
    data = ANSWER.SerializeToString()

    def handle(call: Call) -> rpc.Answer | Coroutine[None, None, rpc.Answer] | None:
        if way == "bytes":
            return data
        if way == "frame":
            call.answer_frame(encode_response(call.request.serial, call.request.method, data))
            return None
        if way == "later":
            asyncio.get_running_loop().call_soon(call.answer, ANSWER)
            return None

        async def answer() -> rpc.Answer:
            await asyncio.sleep(0)
            return ANSWER

        return answer()

    async def test() -> None:
        async with serving(handle) as listener, client(listener) as peer:
            peer.send(request(1), request(2))
            assert [await peer.answer(), await peer.answer()] == [data, data]

    run(test())


def test_requests_are_answered_in_any_order() -> None:
    calls: list[Call] = []

    async def test() -> None:
        async with serving(calls.append) as listener, client(listener) as peer:
            peer.send(request(1), request(2), request(3))
            await until(lambda: len(calls) >= 3)
            for call in (calls[1], calls[2], calls[0]):
                call.answer(ANSWER)
            calls[0].answer(ANSWER)  # again: dropped
            frames = [await peer.frame() for _ in range(3)]
            assert [frame[0] for frame in frames if frame is not None] == [2, 3, 1]

    run(test())


@pytest.mark.parametrize(
    ("error", "exception", "text"),
    [
        (
            ServiceFailure("StandbyException", "10.0.0.1:8715 c"),
            "org.apache.inlong.tubemq.corerpc.exception.StandbyException",
            "10.0.0.1:8715 c",
        ),
        (IllegalName("clientId is blank"), "java.lang.Exception", "clientId is blank"),
        (
            KeyError("secret"),
            "java.lang.Exception",
            "KeyError: internal error; for details see the server's log",
        ),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_a_handler_that_raises_is_an_exception_to_the_client(
    error: Exception, exception: str, text: str, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(call: Call) -> Coroutine[None, None, rpc.Answer]:
        async def fail() -> rpc.Answer:
            raise error

        if later:
            return fail()
        raise error

    async def test() -> None:
        async with serving(handle) as listener, client(listener) as peer:
            peer.send(request())
            failure = await peer.failure()
            assert (failure.exception, failure.text) == (exception, text)
            assert failure.status == ERROR
            bug = isinstance(error, KeyError)
            assert listener.counters["handler_failures"] == int(bug)
            assert bool(own_records(caplog, rpc.log.name)) == bug

    run(test())


def test_sends_are_taken_by_the_service_for_reads_too_as_the_go_client_has_it() -> None:
    async def test() -> None:
        routes = {Method.SEND_MESSAGE_P2B: Route(lambda call: call.request.body)}
        async with RpcListener(routes, "127.0.0.1", 0) as listener, client(listener) as peer:
            for service in (Service.BROKER_READ, Service.BROKER_WRITE):
                frame = encode_request(7, Method.SEND_MESSAGE_P2B, b"sent", 5000, service=service)
                peer.send(frame)
                assert await peer.answer() == b"sent"

    run(test())


def test_an_answer_that_lacks_a_field_is_a_failure_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with serving(lambda call: CloseResponseM2C(success=True)) as listener:
            async with client(listener) as peer:
                peer.send(request())
                assert (await peer.failure()).text.startswith("EncodeError")

    run(test())


@pytest.mark.parametrize(
    ("frame", "status", "exception", "text"),
    [
        (
            request(method=11),
            FATAL,
            "java.lang.Exception",
            "IPC server handle request error :Unsupported method ID :11",
        ),
        (request(method=99999), FATAL, "java.lang.Exception", "Unsupported method ID :99999"),
        (
            request(service=2),
            ERROR,
            "java.lang.Exception",
            "Unsupported method 6in service type 2!",
        ),
        (request(service=4), ERROR, "java.lang.Exception", "Service Type is invalid!"),
        (request(method=5), ERROR, "java.lang.Exception", "No service 1 found on the server"),
        (
            encode_request(1, CLOSE, b"\x0a\x01c", 5000),
            FATAL,
            "com.google.protobuf.InvalidProtocolBufferException",
            "IPC server handle request error :a CloseRequestC2M without all",
        ),
        (
            encode_frame(1, b"junk"),
            FATAL,
            "com.google.protobuf.InvalidProtocolBufferException",
            "IPC server unable to read call parameters:",
        ),
        (
            encode_request(1, CLOSE, REQUEST + b"\x52\x80\x80\x80\x02" + bytes(4 << 20), 5000),
            FATAL,
            "com.google.protobuf.InvalidProtocolBufferException",
            "4194315 bytes: 4194304 are allowed",
        ),
    ],
)
def test_what_cannot_be_handled_is_answered_with_an_exception_and_the_connection_goes_on(
    frame: bytes, status: int, exception: str, text: str
) -> None:
    async def test() -> None:
        async with serving(lambda call: ANSWER) as listener, client(listener) as peer:
            peer.send(frame)
            failure = await peer.failure()
            assert (failure.status, failure.exception) == (status, exception)
            assert text in failure.text
            counted = listener.counters["unknown_methods"] + listener.counters["malformed_requests"]
            assert counted == 1
            peer.send(request())
            assert await peer.answer() == ANSWER.SerializeToString()

    run(test())


def test_a_handler_that_reads_its_requests_itself_may_find_them_malformed() -> None:
    def handle(call: Call) -> rpc.Answer:
        return parse(CloseRequestC2M, call.request.body[:3]).SerializeToString()

    async def test() -> None:
        async with serving(handle, None) as listener, client(listener) as peer:
            peer.send(request())
            failure = await peer.failure()
            assert (failure.status, failure.name) == (FATAL, "InvalidProtocolBufferException")
            assert listener.counters["malformed_requests"] == 1

    run(test())


def test_another_table_takes_the_place_of_the_first() -> None:
    async def test() -> None:
        async with serving(lambda call: ANSWER) as listener, client(listener) as peer:
            listener.routes = {Method.CONSUMER_HEARTBEAT_C2M: Route(lambda call: b"beaten")}
            peer.send(request(1), request(2, method=5))
            assert (await peer.failure()).text == "No service 1 found on the server"
            assert await peer.answer() == b"beaten"
            assert listener.requests[CLOSE] == listener.requests[5] == 1

    run(test())


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (1, "com.tencent.tubemq.corerpc.exception.StandbyException"),
        (2, "com.apache.tubemq.corerpc.exception.StandbyException"),
        (3, "org.apache.inlong.tubemq.corerpc.exception.StandbyException"),
    ],
)
def test_exceptions_are_named_as_the_version_of_the_request_wants(version: int, name: str) -> None:
    def handle(call: Call) -> None:
        raise ServiceFailure("StandbyException", "")

    async def test() -> None:
        async with serving(handle) as listener, client(listener) as peer:
            peer.send(request(version=version))
            assert (await peer.failure()).exception == name

    run(test())


def test_a_server_that_stops_says_so_and_ends_what_runs() -> None:
    started = asyncio.Event()

    def handle(call: Call) -> Coroutine[None, None, rpc.Answer]:
        async def never() -> rpc.Answer:
            started.set()
            await asyncio.Event().wait()
            return ANSWER

        return never()

    async def test() -> None:
        async with serving(handle) as listener, client(listener) as peer:
            peer.send(request(1))
            await started.wait()
            listener.stopping = True
            peer.send(request(2))
            assert (await peer.failure()).name == "ServiceStoppingException"
            await listener.close()
            assert (await peer.failure()).name == "ServiceStoppingException"
            assert await peer.frame() is None

    run(test())


def test_who_is_to_be_answered_later_by_a_server_that_stops_at_once_is_told_so() -> None:
    made: list[Coroutine[None, None, rpc.Answer]] = []

    async def answer() -> rpc.Answer:
        return ANSWER

    async def test() -> None:
        closing: list[asyncio.Task[None]] = []

        def handle(call: Call) -> Coroutine[None, None, rpc.Answer]:
            closing.append(asyncio.ensure_future(listener.close()))  # before the task's first step
            made.append(answer())
            return made[0]

        async with serving(handle) as listener, client(listener) as peer:
            peer.send(request(1))
            assert (await peer.failure()).name == "ServiceStoppingException"
            await closing[0]
        assert inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED

    run(test())


def test_a_port_that_is_taken_is_named() -> None:
    async def test() -> None:
        async with serving(lambda call: ANSWER) as listener:
            with pytest.raises(OSError, match=f"127.0.0.1:{listener.port}: another process"):
                await RpcListener({}, "127.0.0.1", listener.port).start()

    run(test())


def test_connections_are_encrypted_where_there_is_a_certificate() -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    seen: list[bool] = []

    def handle(call: Call) -> rpc.Answer:
        seen.append(call.tls)
        return bytes(100_000)

    async def test() -> None:
        async with serving(handle, tls=server) as listener:
            connection = TubeConnection(f"localhost:{listener.port}", tls=trusting)
            assert await connection.call(CLOSE, REQUEST, SECONDS) == bytes(100_000)
            assert seen == [True]
            connection.close()

    run(test())
