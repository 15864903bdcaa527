"""Limits of one connection to a TubeMQ server: requests and memory."""

import asyncio
import contextlib

import pytest

from mq.daemons.memory import MemoryBudget
from mq.daemons.tube import channel
from mq.daemons.tube.rpc import Call
from mq.protocol.tube.frame import encode_frame
from mq.protocol.tube.messages import (
    CloseResponseM2C,
    RequestBody,
    RequestHeader,
)
from tests.daemons.tube.rpc_peers import ANSWER, CLOSE, REQUEST, client, request, run, serving
from tests.waiting import until


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", request()[:8] + b"\xff" * 4, request()[:12] + b"\xff" * 4]
)
def test_what_is_no_frame_closes_the_connection(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(lambda call: ANSWER) as listener, client(listener) as peer:
            peer.send(data)
            assert await peer.frame() is None
            assert listener.counters["broken_frames"] == 1
            assert not listener.channels

    run(test())


def test_a_request_that_waited_longer_than_its_client_does_is_not_answered() -> None:
    calls: list[Call] = []

    def handle(call: Call) -> CloseResponseM2C | None:
        if call.request.serial == 1:
            calls.append(call)
            return None
        return ANSWER

    async def test() -> None:
        async with serving(handle) as listener, client(listener) as peer:
            peer.send(request(1))
            await until(lambda: bool(calls))
            calls[0].deadline = listener.now()  # a short timeout may be over before it is handled
            calls[0].answer(ANSWER)
            peer.send(request(2))
            frame = await peer.frame()
            assert frame is not None and frame[0] == 2
            assert listener.counters["expired_requests"] == 1

    run(test())


def test_a_request_without_a_timeout_is_answered() -> None:
    async def test() -> None:
        async with serving(lambda call: ANSWER) as listener, client(listener) as peer:
            body = RequestBody(method=CLOSE, request=REQUEST).SerializeToString()
            header = RequestHeader(serviceType=1, protocolVer=2).SerializeToString()
            parts = (b"\x08\x00", header, body)
            peer.send(encode_frame(1, b"".join(bytes([len(part)]) + part for part in parts)))
            assert await peer.answer() == ANSWER.SerializeToString()

    run(test())


def test_a_peer_that_does_not_read_is_not_served() -> None:
    served = 0
    big = bytes(1024 * 1024)

    def handle(call: Call) -> bytes:
        nonlocal served
        served += 1
        return big

    async def test() -> None:
        async with serving(handle) as listener, client(listener) as peer:
            peer.send(*[request(serial) for serial in range(150)])
            await peer.writer.drain()
            await until(lambda: bool(listener.channels))
            (channel,) = listener.channels
            await until(lambda: channel.stalled)
            assert served < 100
            assert channel.memory < 100 * len(big)
            for serial in range(150):
                frame = await peer.frame()
                assert frame is not None and frame[0] == serial
            assert served == 150

    run(test())


def test_a_peer_with_many_requests_under_way_is_not_read_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "MAX_CALLS", 10)
    calls: list[Call] = []

    async def test() -> None:
        async with serving(calls.append) as listener, client(listener) as peer:
            peer.send(*[request(serial) for serial in range(25)])
            for most in (10, 20, 25):
                await until(lambda most=most: len(calls) >= most)  # type: ignore[misc]
                await asyncio.sleep(0)
                assert len(calls) == most
                for call in calls[-10:]:
                    call.answer(ANSWER)
            for _ in range(25):
                assert await peer.answer() == ANSWER.SerializeToString()

    run(test())


def test_a_peer_that_makes_the_server_hold_too_much_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        memory = MemoryBudget(lambda: 100_000)
        async with serving(lambda call: ANSWER, memory=memory) as listener:
            async with client(listener) as peer:
                peer.send(encode_frame(1, bytes(200_000))[:-1])
                with contextlib.suppress(ConnectionError):
                    assert await peer.frame() is None
                assert sum(memory.evicted.values()) == 1

    run(test())


def test_a_connection_over_the_limit_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(lambda call: ANSWER, max_connections=lambda: 1) as listener:
            async with client(listener) as first, client(listener) as second:
                with contextlib.suppress(ConnectionError):
                    assert await second.frame() is None
                assert listener.counters["refused_connections"] == 1
                first.send(request())
                assert await first.answer() == ANSWER.SerializeToString()

    run(test())
