"""Limits of what consumers can make a filter server hold and do."""

import asyncio
import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

from mq.protocol.codes import ResponseCode
from tests.daemons.filtersrv.servers import (
    EVEN,
    pull,
    servers,
    upload,
)
from tests.daemons.peer import Peer

ODD = EVEN.replace(b"== 0", b"== 1")


def test_too_many_classes_are_refused_by_the_name_of_the_limit() -> None:
    async def main() -> None:
        async with servers(filterMaxClasses="1") as at, Peer(at.filters.port) as peer:
            assert (await upload(peer)).code == ResponseCode.SUCCESS
            reply = await upload(peer, group="other")
            assert reply.code == ResponseCode.SYSTEM_BUSY
            assert "(filterMaxClasses)" in str(reply.remark)
            assert (await upload(peer, ODD)).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_class_that_hangs_uses_no_more_than_its_part_of_the_memory() -> None:
    hangs = b"import time\nclass Even:\n    def match(self, message):\n        time.sleep(1000)\n"

    async def main() -> None:
        async with (
            servers(filterBatchMillis="3000", filterHeldMaxBytes="100000") as at,
            Peer(at.filters.port) as peer,
            Peer(at.filters.port) as second,
            Peer(at.filters.port) as other,
        ):
            await at.send(random.Random(1).randbytes(20_000))  # which cannot be compressed
            await upload(peer, hangs)
            await upload(other, EVEN.replace(b"int(message.body) % 2 == 0", b"True"), group="other")
            first = asyncio.ensure_future(pull(peer))
            again = asyncio.ensure_future(pull(second))
            done, _ = await asyncio.wait({first, again}, return_when=asyncio.FIRST_COMPLETED)
            (refused,) = done  # the other one still waits for the class
            assert refused.result().code == ResponseCode.SYSTEM_BUSY
            assert "(filterHeldMaxBytes)" in str(refused.result().remark)
            assert (await pull(other, group="other")).code == ResponseCode.SUCCESS
            assert {(await first).code, (await again).code} == {
                ResponseCode.SYSTEM_BUSY,
                ResponseCode.SYSTEM_ERROR,
            }

    asyncio.run(main())


def test_messages_that_wait_to_be_compressed_count_as_held_too() -> None:
    async def main() -> None:
        async with (
            servers(filterHeldMaxBytes="100000") as at,
            Peer(at.filters.port) as peer,
            Peer(at.filters.port) as second,
        ):
            await at.send(random.Random(1).randbytes(40_000))
            await upload(peer, EVEN.replace(b"int(message.body) % 2 == 0", b"True"))
            free = threading.Event()
            threads = ThreadPoolExecutor(1)  # the event loop shuts it down
            threads.submit(free.wait)
            asyncio.get_running_loop().set_default_executor(threads)
            try:
                first = asyncio.ensure_future(pull(peer))
                while not threads._work_queue.qsize():  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.01)
                assert (await pull(second)).code == ResponseCode.SYSTEM_BUSY
            finally:
                free.set()
            assert (await first).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_one_group_uses_no_more_than_its_part_of_the_pulls() -> None:
    async def main() -> None:
        async with (
            servers(fsServerAsyncSemaphoreValue="4") as at,
            AsyncExitStack() as peers,
            Peer(at.filters.port) as other,
        ):
            several = [await peers.enter_async_context(Peer(at.filters.port)) for _ in range(4)]
            await upload(other)
            await upload(other, group="other")
            # There are no messages yet, so each of these waits for the broker.
            held = [asyncio.ensure_future(pull(peer)) for peer in several]
            done, _ = await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
            assert {one.result().code for one in done} == {ResponseCode.SYSTEM_BUSY}
            assert "(fsServerAsyncSemaphoreValue)" in str(done.pop().result().remark)
            await at.send(b"2")
            assert (await pull(other, group="other")).code == ResponseCode.SUCCESS
            codes = Counter([(await one).code for one in held])
            assert codes == {ResponseCode.SYSTEM_BUSY: 2, ResponseCode.SUCCESS: 2}

    asyncio.run(main())


def test_concurrent_uploads_start_one_process_and_do_not_exceed_the_limit() -> None:
    async def main() -> None:
        async with servers(filterMaxClasses="2") as at, AsyncExitStack() as peers:
            others = {*children()}  # from earlier tests in this process
            several = [await peers.enter_async_context(Peer(at.filters.port)) for _ in range(8)]
            replies = await asyncio.gather(
                *(upload(peer, group=f"group-{n % 4}") for n, peer in enumerate(several))
            )
            codes = Counter(reply.code for reply in replies)
            assert codes == {ResponseCode.SUCCESS: 4, ResponseCode.SYSTEM_BUSY: 4}
            assert len(at.filters.classes.table) == 2
            assert len({*children()} - others) == 2

    asyncio.run(main())


def children() -> list[str]:
    """The child processes, most of which are sandboxes here."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
