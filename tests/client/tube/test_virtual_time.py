"""The clock of tests advances when there is nothing left to do, but not while bytes are in
flight.
"""

import asyncio
import socket
import time

from tests.client.tube.virtual_time import run_fast


def test_waiting_takes_no_time() -> None:
    async def scenario() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run_fast(scenario()) >= 3600
    assert time.monotonic() - began < 60


def test_the_clock_stands_still_for_bytes_that_come_late() -> None:
    """A busy system may deliver late; here it is made to hold some bytes back for 0.2 s."""
    ended: asyncio.Future[None]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        while data := await reader.read(100):
            writer.write(data)
        writer.close()
        await writer.wait_closed()
        ended.set_result(None)

    async def scenario() -> None:
        nonlocal ended
        ended = asyncio.get_running_loop().create_future()
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            for text in (b"first", b"second"):
                writer.write(text)
                async with asyncio.timeout(10):
                    assert await reader.read(100) == text
            assert asyncio.get_running_loop().time() < 10
            writer.close()
            await writer.wait_closed()
            await ended

    run_fast(scenario())
