"""The administration port: its answers, and its limits for clients."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, strategies

from mq.client.machine import clock
from mq.daemons.tube import web
from mq.daemons.tube.failed_logins import MOST_FAILURES, PERIOD, FailedLogins
from mq.daemons.tube.web import WebServer
from mq.daemons.tube.web_methods import Methods, Redirected, RequestRefused, WebRequest
from tests.waiting import until


def echo(request: WebRequest) -> Mapping[str, Any]:
    return {"result": True, "errCode": 0, "given": dict(request.parameters)}


def typed(request: WebRequest) -> Mapping[str, Any]:
    return {
        "number": request.number("count", default=3),
        "flag": request.flag("flag", default=False),
        "items": request.items("names"),
        "needed": request.need("topicName", "topic"),
    }


async def later(request: WebRequest) -> str:
    await asyncio.sleep(0)
    return '{"text":true}'


def fail(request: WebRequest) -> Mapping[str, Any]:
    raise OSError("the disk")


def elsewhere(request: WebRequest) -> Mapping[str, Any]:
    raise Redirected("http://active:8080" + request.target)


def refuse(request: WebRequest) -> Mapping[str, Any]:
    raise RequestRefused("no such group", 401)


def half(request: WebRequest) -> Mapping[str, Any]:
    """What JSON may have, and UTF-8 may not."""
    raise RequestRefused("no such group: \ud800")


def large(request: WebRequest) -> str:
    return json.dumps("x" * request.number("size", default=1_000_000))


METHODS = Methods(
    {
        "echo": echo,
        "typed": typed,
        "later": later,
        "fail": fail,
        "elsewhere": elsewhere,
        "refuse": refuse,
        "half": half,
        "large": large,
        "change": echo,
    },
    changing=frozenset({"change"}),
    token="own",
    long=frozenset({"large"}),
)


async def exchange(port: int, *requests: bytes) -> bytes:
    """Return all answers to data that is sent at once, until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(requests))
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return answer


async def answer_or_end(port: int, request: bytes) -> bytes:
    """Return the same, and nothing if the server resets the connection."""
    try:
        return await exchange(port, request)
    except ConnectionResetError:
        return b""


def get(target: str, *, close: bool = True) -> bytes:
    connection = "close" if close else "keep-alive"
    return f"GET {target} HTTP/1.1\r\nHost: h\r\nConnection: {connection}\r\n\r\n".encode()


def body(answer: bytes) -> Any:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def served(check: Callable[[int], Any]) -> Any:
    async def run() -> Any:
        async with WebServer("127.0.0.1", 0, {"/broker.htm": METHODS}) as server:
            return await check(server.port)

    return asyncio.run(run())


def asked(target: str) -> Any:
    return body(served(lambda port: exchange(port, get(target))))


def test_a_method_gets_its_parameters_unquoted() -> None:
    given = asked("/broker.htm?method=echo&topic=a%20b&x=1&x=2")["given"]
    assert given == {"method": "echo", "topic": "a b", "x": "1"}


def test_a_form_adds_to_the_query() -> None:
    form = b"topic=one%2Ctwo"
    head = f"POST /broker.htm?method=echo HTTP/1.0\r\nContent-Length: {len(form)}\r\n\r\n"
    answer = served(lambda port: exchange(port, head.encode() + form))
    assert body(answer)["given"]["topic"] == "one,two"


def test_parameters_are_read_as_the_servlets_read_them() -> None:
    found = asked("/broker.htm?method=typed&count=7&flag=TRUE&names=a,b,,a&topic=t")
    assert found == {"number": 7, "flag": True, "items": ["a", "b"], "needed": "t"}


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("/broker.htm", "Please take with method parameter! "),
        ("/broker.htm?method=none", "Unsupported method none"),
        ("/broker.htm?method=typed", "Parameter topicName is missing or value is null or blank!"),
        ("/broker.htm?method=typed&topic=t&count=x", "Parameter count parse error: x is no number"),
        ("/broker.htm?method=fail", "Bad request from server: the disk"),
        ("/broker.htm?method=change", "Illegal visit: wrong confModAuthToken value!"),
        ("/broker.htm?method=change&confModAuthToken=oxn", "Illegal visit: wrong "
         "confModAuthToken value!"),
    ],
)  # fmt: skip
def test_a_refusal_is_a_result_that_says_why(target: str, text: str) -> None:
    assert asked(target) == {"result": False, "errCode": 400, "errMsg": text}


def test_a_method_gives_its_own_code() -> None:
    assert asked("/broker.htm?method=refuse")["errCode"] == 401


def test_the_token_allows_a_change() -> None:
    assert asked("/broker.htm?method=change&confModAuthToken=own")["result"] is True


def test_without_a_token_in_the_settings_nothing_can_be_changed() -> None:
    methods = Methods({"change": echo}, changing=frozenset({"change"}))
    request = WebRequest("/", "/", {"method": "change", "confModAuthToken": ""}, "p")
    with pytest.raises(RequestRefused):
        asyncio.run(methods.call(request))


def test_a_coroutine_is_waited_for_and_its_text_sent_as_it_is() -> None:
    assert asked("/broker.htm?method=later") == {"text": True}


def test_a_redirection_names_the_place() -> None:
    answer = served(lambda port: exchange(port, get("/broker.htm?method=elsewhere")))
    assert b"302 Found" in answer
    assert b"Location: http://active:8080/broker.htm?method=elsewhere\r\n" in answer


def test_another_path_is_not_found() -> None:
    assert asked("/other")["errCode"] == 404


def test_requests_sent_at_once_are_answered_in_order() -> None:
    first = get("/broker.htm?method=later", close=False)
    second = get("/broker.htm?method=echo&n=2")
    answer = served(lambda port: exchange(port, first, second))
    assert answer.index(b'{"text":true}') < answer.index(b'"n":"2"')


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nothing\r\n\r\n", b"400"),
        (b"PUT / HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /\n HTTP/1.1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"501"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * (web.MAX_HEAD + 1), b"431"),
        (b"GET /?" + b"a&" * (web.MAX_FIELDS + 1) + b" HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
    ],
)
def test_what_is_no_request_is_answered_and_closed(sent: bytes, status: bytes) -> None:
    answer = served(lambda port: exchange(port, sent))
    assert answer.startswith(b"HTTP/1.1 " + status)


def test_a_peer_that_sends_half_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "REQUEST_SECONDS", 0.01)
    assert served(lambda port: answer_or_end(port, b"GET /broker.htm")) == b""


def test_connections_over_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "MAX_CONNECTIONS", 0)
    assert served(lambda port: answer_or_end(port, get("/broker.htm?method=echo"))) == b""


@pytest.mark.parametrize("sent", [b"", b"POST /broker.htm HTTP/1.1\r\nContent-Length: 9\r\n\r\n"])
@pytest.mark.parametrize("others", ["127.0.0.1", "127.0.0.2"])
def test_requests_without_their_bodies_block_nobody(sent: bytes, others: str) -> None:
    async def check(port: int) -> None:
        opened = []
        for _ in range(web.MAX_CONNECTIONS + 10):
            connection = await asyncio.open_connection("127.0.0.1", port, local_addr=(others, 0))
            connection[1].write(sent)
            opened.append(connection)
        answer = await exchange(port, get("/broker.htm?method=echo"))
        assert body(answer)["result"]
        for _, writer in opened:
            writer.close()

    served(check)


def test_a_connection_whose_request_is_being_answered_stays_when_others_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "MAX_OF_HOST", 1)

    async def main() -> None:
        asked_for, may_answer = asyncio.Event(), asyncio.Event()

        async def slow(_: WebRequest) -> str:
            asked_for.set()
            await may_answer.wait()
            return '{"slow":true}'

        paths = {"/broker.htm": Methods({"slow": slow})}
        async with WebServer("127.0.0.1", 0, paths) as server, asyncio.timeout(30):
            request = get("/broker.htm?method=slow").replace(b"Host: h", b"Host: localhost")
            first = asyncio.ensure_future(exchange(server.port, request))
            await asked_for.wait()
            assert await answer_or_end(server.port, request) == b""
            may_answer.set()
            assert body(await first) == {"slow": True}

    asyncio.run(main())


def test_an_address_with_many_wrong_tokens_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    methods = dataclasses.replace(METHODS, guesses=FailedLogins())

    async def main() -> None:
        nonlocal now
        async with WebServer("127.0.0.1", 0, {"/broker.htm": methods}) as server:
            target = "/broker.htm?method=change&confModAuthToken="
            for _ in range(MOST_FAILURES):
                answer = body(await exchange(server.port, get(target + "wrong")))
                assert "wrong confModAuthToken" in answer["errMsg"]
            blocked = body(await exchange(server.port, get(target + "own")))
            assert "too many wrong tokens" in blocked["errMsg"]
            now += PERIOD
            assert body(await exchange(server.port, get(target + "own")))["result"]

    asyncio.run(main())


def from_page(headers: str, method: str = "change") -> bytes:
    target = f"/broker.htm?method={method}&confModAuthToken=own"
    return f"GET {target} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n".encode()


@pytest.mark.parametrize(
    "headers",
    [
        "Host: 127.0.0.1:8080\r\nSec-Fetch-Site: cross-site\r\n",
        "Host: 127.0.0.1:8080\r\nSec-Fetch-Site: same-site\r\n",
        "Host: 127.0.0.1:8080\r\nOrigin: http://elsewhere\r\n",
        "Host: 127.0.0.1:8080\r\nOrigin: http://127.0.0.1:9090\r\n",
        "Host: 127.0.0.1:8080\r\nOrigin: null\r\n",
    ],
)
def test_a_page_of_another_site_changes_nothing(headers: str) -> None:
    answer = body(served(lambda port: exchange(port, from_page(headers))))
    assert (answer["result"], answer["errCode"]) == (False, 403)
    assert body(served(lambda port: exchange(port, from_page(headers, "echo"))))["result"] is True


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "Host: 127.0.0.1:8080\r\nSec-Fetch-Site: none\r\n",
        "Host: name:8080\r\nSec-Fetch-Site: same-origin\r\nOrigin: http://name:8080\r\n",
    ],
)
def test_who_asks_by_himself_or_from_a_page_of_the_server_may_change_things(headers: str) -> None:
    assert body(served(lambda port: exchange(port, from_page(headers))))["result"] is True


@pytest.mark.parametrize("token", [None, "abc"])
@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("", 0),
        ("localhost:8081", 0),
        ("127.0.0.1", 0),
        ("[::1]:8081", 0),
        ("stranger.example:8081", 403),
        ("10.0.0.1", 403),
        ("[::2]:8081", 403),
    ],
)
def test_while_the_token_is_no_secret_only_loopback_is_answered(
    token: str | None, host: str, code: int
) -> None:
    methods = Methods({"change": echo}, changing=frozenset({"change"}), token=token)
    parameters = {"method": "change", "confModAuthToken": "abc"}
    request = WebRequest("/", "/", parameters, "p", host=host)
    if not code:
        assert asyncio.run(methods.call(request))
        return
    with pytest.raises(RequestRefused) as refused:
        asyncio.run(methods.call(request))
    assert refused.value.code == code


def test_a_form_is_sent_on_as_a_form() -> None:
    head = b"POST /broker.htm?method=elsewhere HTTP/1.0\r\nContent-Length: 3\r\n\r\na=b"
    assert b"307 Temporary Redirect" in served(lambda port: exchange(port, head))


def test_a_port_that_is_taken_is_named() -> None:
    async def run() -> None:
        async with WebServer("127.0.0.1", 0, {}) as first:
            with pytest.raises(OSError, match=f":{first.port}: another process does already$"):
                await WebServer("127.0.0.1", first.port, {}).__aenter__()

    asyncio.run(run())


@given(
    strategies.recursive(
        strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(),
        lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    )
)
def test_an_answer_written_in_steps_is_the_same_as_one_written_at_once(value: object) -> None:
    assert asyncio.run(web.dumped(value)) == web.dump(value)


def test_half_a_surrogate_pair_is_answered() -> None:
    assert asked("/broker.htm?method=half")["errMsg"] == "no such group: \ud800"


def test_a_peer_that_takes_no_answers_gets_no_more_of_them() -> None:
    async def flood(server: WebServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(get("/broker.htm?method=large", close=False) * 200)
        await until(lambda: bool(server.connections))
        (taken,) = server.connections
        await until(lambda: taken._is_full)
        calls = server.calls
        assert calls < 50
        for _ in range(20):
            await asyncio.sleep(0)
        assert server.calls == calls
        answers = 0
        while answers < 200:  # when it reads them it gets all
            answers += (await reader.readuntil(b"HTTP/1.1 200 OK")).count(b"HTTP/1.1 200 OK")
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(1_000_002)
        writer.close()

    with_server(flood)


def test_a_peer_that_takes_its_last_answer_never_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(server: WebServer) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(get("/broker.htm?method=large&size=30000000"))
        await until(lambda: bool(server.connections))
        await until(lambda: not server.connections)
        writer.close()

    monkeypatch.setattr(web, "IDLE_SECONDS", 0.2)
    with_server(ask)


def test_headers_are_read_once_however_slowly_a_body_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = web.take_request

    def take(buffer: bytearray, peer: str) -> Any:
        seen.append(len(buffer))
        return real(buffer, peer)

    async def ask(server: WebServer) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = b"POST /broker.htm?method=echo HTTP/1.1\r\nContent-Length: 3\r\n\r\n"
        for piece in (head, b"a", b"=", b"b"):
            held = sum(len(one._buffer) for one in server.connections)
            writer.write(piece)
            await until(lambda: held != sum(len(one._buffer) for one in server.connections))  # noqa: B023
        assert b'"a":"b"' in await reader.readuntil(b"}}")
        writer.close()

    monkeypatch.setattr(web, "take_request", take)
    with_server(ask)
    assert len(seen) <= 3


def with_server(use: Callable[[WebServer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(100), WebServer("127.0.0.1", 0, {"/broker.htm": METHODS}) as one:
            await use(one)

    asyncio.run(main())


@pytest.mark.parametrize("goes", [True, False])
def test_of_long_answers_one_at_a_time_is_made_and_taken_while_others_are_answered(
    goes: bool,
) -> None:
    async def main() -> None:
        async with WebServer("127.0.0.1", 0, {"/": METHODS}) as server:
            long = b"GET /?method=large&size=30000000 HTTP/1.1\r\nConnection: close\r\n\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
            writer.write(long)
            await reader.readline()  # the rest is not read
            second = asyncio.ensure_future(exchange(server.port, long))
            for _ in range(3):
                assert b'"result":true' in await exchange(
                    server.port, b"GET /?method=echo HTTP/1.1\r\nConnection: close\r\n\r\n"
                )
            assert server.calls == 4  # the second one has not begun
            if goes:
                writer.transport.abort()
            else:
                await reader.read()
                writer.close()
            assert len(await second) > 30_000_000
            assert server.calls == 5

    asyncio.run(main())


def test_a_connection_that_is_just_being_accepted_does_not_outlive_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = WebServer("127.0.0.1", 0, {"/": METHODS})
    ends: list[asyncio.Future[None]] = []

    class Last(web._Connection):
        """What the event loop asks for before it makes the connection."""

        def __init__(self, server: WebServer) -> None:
            super().__init__(server)
            ends.append(asyncio.ensure_future(server.__aexit__()))

    async def main() -> None:
        await server.__aenter__()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert not server.connections
        await asyncio.wait(ends)
        writer.close()

    monkeypatch.setattr(web, "_Connection", Last)
    asyncio.run(main())
