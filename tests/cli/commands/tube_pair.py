"""A real master and broker of TubeMQ, for the tests of commands."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from mq.client.tube.admin import TubeAdmin
from mq.protocol.tube.strings import Address
from tests.cli.support import Finished

PATIENCE = 60.0
TOKEN = "ASDFGHJKL"


@contextmanager
def running(topics: Mapping[str, int] | None = None) -> Iterator[Any]:
    """A master and a broker in a thread of their own, with topics of this number of partitions."""
    tube = pytest.importorskip("mq.daemons.tube.standalone")
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()
    made: list[Any] = []

    async def serve() -> None:
        made_first = topics or {"demo": 3, "other": 1, "sent": 3}
        async with tube.TubeStandalone(
            master_port=0, broker_port=0, web_port=0, topics=made_first
        ) as pair:
            made.append(pair)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield made[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        loop.close()


@pytest.fixture(scope="module")
def pair() -> Iterator[Any]:
    with running() as pair:
        admin = admin_of(pair)
        port = pair.broker.web_port
        if next(iter(admin.broker_addresses().values())).port != port:
            admin.change("admin_update_broker_configure", brokerId=1, brokerWebPort=port)
        yield pair


def admin_of(pair: Any, token: str = TOKEN) -> TubeAdmin:
    master = Address.parse(pair.master_address)
    return TubeAdmin([master], web_port=pair.master.web_port, token=token, timeout=PATIENCE)


def web(pair: Any) -> list[str]:
    return ["--web-port", str(pair.master.web_port)]


def rows(finished: Finished) -> list[dict[str, Any]]:
    assert finished.status == 0, finished.err
    if finished.out.startswith("{\n"):
        found: list[dict[str, Any]] = finished.json["data"]
        return found
    return [row for line in finished.out.splitlines() for row in json.loads(line)["data"]]
