"""What the tests of the command share."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from mq.daemons.standalone import Standalone
from tests.cli.support import Mq


@pytest.fixture
def mq(tmp_path: Path) -> Mq:
    """`mq` in process, with an empty configuration directory."""
    return Mq(tmp_path / "config")


@pytest.fixture(scope="session")
def standalone() -> Iterator[Standalone]:
    """Our name server and broker, in a loop of their own thread. Use topics of your own."""
    started: Future[Standalone] = Future()
    stop: Future[asyncio.Event] = Future()

    async def serve() -> None:
        event = asyncio.Event()
        stop.set_result(event)
        async with Standalone(name_server_port=0, broker_port=0) as pair:
            await pair.broker.registration.first_round.wait()
            started.set_result(pair)
            await event.wait()

    def main() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    thread = threading.Thread(target=main)
    thread.start()
    pair = started.result(30)
    yield pair
    loop_event = stop.result()
    pair.tasks.failed.get_loop().call_soon_threadsafe(loop_event.set)
    thread.join(30)


@pytest.fixture
def cluster(standalone: Standalone, tmp_path: Path) -> Mq:
    """`mq` with NAMESRV_ADDR set to our own daemons."""
    variables = {
        "NAMESRV_ADDR": standalone.name_server_address,
        "MQ_STATE_DIR": str(tmp_path / "state"),
    }
    return Mq(tmp_path / "config", variables)
