"""Commands that support snodes, with a real one."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.daemons.snode.app import Snode
from mq.testing import RunningBroker
from tests.cli.support import Mq
from tests.daemons.snode.world import snode_settings

PATIENCE = 30.0


@pytest.fixture
def mq(mq_broker: RunningBroker, tmp_path: Path) -> Mq:
    return Mq(tmp_path / "config", {"NAMESRV_ADDR": mq_broker.name_server})


@contextmanager
def running_snode(name_server: str) -> Iterator[Snode]:
    """A snode in a thread of its own, registered at a name server."""
    snode = Snode(snode_settings(name_server, clusterName="edge"))
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with snode:
            while not snode.registration.known_by:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield snode
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        loop.close()


def test_snodes_are_listed_with_their_state(mq: Mq, mq_broker: RunningBroker) -> None:
    assert mq("snodeList", "-o", "json").json["data"] == []
    with running_snode(mq_broker.name_server) as snode:
        (row,) = mq("snodeList", "-o", "json").json["data"]
        assert row == {
            "cluster": "edge",
            "snodeName": "snode-a",
            "snodeAddr": snode.address,
            "state": "up",
        }
        assert mq("snodeList", "-c", "edge", "-o", "json").json["data"] == [row]
        other = mq("snodeList", "-c", "other")
        assert (other.status, "known: edge" in other.err) == (66, True)
    done = mq("snodeList", "-o", "json")
    assert done.json["data"][0]["state"] == "silent"
    assert done.status == 1


def test_the_doctor_looks_at_snodes(mq: Mq, mq_broker: RunningBroker) -> None:
    def looked() -> list[tuple[str, str]]:
        rows = mq("doctor", "-o", "json").json["data"]
        return [(row["severity"], row["subject"]) for row in rows if row["check"] == "snode"]

    with running_snode(mq_broker.name_server) as snode:
        subject = f"snode-a ({snode.address})"
        assert looked() == [("ok", subject)]
    assert looked() == [("critical", subject)]


def test_top_shows_snodes(mq: Mq, mq_broker: RunningBroker) -> None:
    with running_snode(mq_broker.name_server) as snode:
        words = ("top", "--show", "snodes", "--interval", "0.1", "--count", "1", "-o", "json")
        (row,) = mq(*words).json["data"]
        assert (row["snodeName"], row["snodeAddr"], row["state"]) == (
            "snode-a",
            snode.address,
            "up",
        )
        assert row["responseMillis"] >= 0
