"""Pairs of our brokers and Java's: the same bytes in the log, the same entries in the queues."""

import asyncio
import time
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.protocol.codes import ResponseCode
from tests.interop.faults.pairs import SLAVE, java, namesrv, ours
from tests.interop.jvm import require_java
from tests.interop.peers import SERVER_RELEASES
from tests.system.ledger import QUEUES, read_all, send_command
from tests.system.pairs import assert_equal, caught_up, max_offset

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

# Starts and kills of every pair take minutes; test_slave_roles covers a slave of each.
RELEASES = ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.long)]


async def send(address: str, count: int, first: int = 0, size: int = 900) -> list[int]:
    """Return the response codes of the sends."""
    async with Session("127.0.0.1:1", timeout=15) as session:
        answers = [
            session.request(address, send_command(f"id-{number:06d}", number % QUEUES, size))
            for number in range(first, first + count)
        ]
        return [answer.code for answer in await asyncio.gather(*answers)]


@pytest.mark.parametrize("release", RELEASES)
def test_a_java_slave_has_what_our_master_has(release: str, tmp_path: Path) -> None:
    require_java()
    with namesrv(tmp_path) as names, ours(tmp_path / "master", names) as master:
        assert set(asyncio.run(send(master.address, 300))) == {ResponseCode.SUCCESS}
        with java(release, tmp_path, names, tmp_path / "slave", **SLAVE) as slave:
            caught_up(slave.address, master.address)
            asyncio.run(send(master.address, 500, 300))  # into an existing connection
            caught_up(slave.address, master.address)
            slave.kill()
            slave.start()
            asyncio.run(send(master.address, 200, 800, size=100_000))
            caught_up(slave.address, master.address)
            time.sleep(1.5)  # until Java has its queues on the disk; there is no event
            slave.stop()
        assert master.stop() == 0
    assert_equal(tmp_path / "slave", tmp_path / "master")


@pytest.mark.parametrize("release", RELEASES)
def test_our_slave_has_what_a_java_master_has(release: str, tmp_path: Path) -> None:
    require_java()
    with namesrv(tmp_path) as names, java(release, tmp_path, names, tmp_path / "master") as master:
        asyncio.run(send(master.address, 1))  # creates the topic
        assert set(asyncio.run(send(master.address, 300))) == {ResponseCode.SUCCESS}
        with ours(tmp_path / "slave", names, **SLAVE) as slave:
            caught_up(slave.address, master.address)
            asyncio.run(send(master.address, 500, 300))
            caught_up(slave.address, master.address)
            slave.kill()
            asyncio.run(send(master.address, 200, 800, size=100_000))
            slave.start()
            caught_up(slave.address, master.address)
            assert slave.stop() == 0
        time.sleep(1.5)
        master.stop()
    assert_equal(tmp_path / "slave", tmp_path / "master")


def test_our_sync_master_acknowledges_a_message_when_a_java_slave_has_it(tmp_path: Path) -> None:
    require_java()
    sync = {"brokerRole": "SYNC_MASTER"}
    with namesrv(tmp_path) as names, ours(tmp_path / "master", names, **sync) as master:
        assert asyncio.run(send(master.address, 1)) == [ResponseCode.SLAVE_NOT_AVAILABLE]
        with java("4.9.7", tmp_path, names, tmp_path / "slave", **SLAVE) as slave:
            caught_up(slave.address, master.address)
            assert set(asyncio.run(send(master.address, 200, 1))) == {ResponseCode.SUCCESS}
            assert max_offset(slave.address) == max_offset(master.address)
            slave.kill()
            assert asyncio.run(send(master.address, 1, 300)) == [ResponseCode.SLAVE_NOT_AVAILABLE]


@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_our_slave_serves_a_new_topic_of_a_java_master_that_was_killed(
    release: str, tmp_path: Path
) -> None:
    require_java()
    sync = {"brokerRole": "SYNC_MASTER"} | ({"inSyncReplicas": 2} if release[0] == "5" else {})
    with (
        namesrv(tmp_path) as names,
        java(release, tmp_path, names, tmp_path / "master", **sync) as master,
        ours(tmp_path / "slave", names, **SLAVE) as slave,
    ):
        caught_up(slave.address, master.address)
        asyncio.run(until_connected(master.address))
        assert set(asyncio.run(send(master.address, 200))) == {ResponseCode.SUCCESS}
        master.kill()
        assert len(asyncio.run(read_all(slave.address))) == 200


async def until_connected(address: str) -> None:
    """Send to another topic until a slave acknowledges: 4.9 has no haStatus."""
    command = send_command("first", 0, 900)
    command.fields = {**command.fields, "b": "other"}
    async with Session("127.0.0.1:1", timeout=15) as session, asyncio.timeout(60):
        while (await session.request(address, command)).code != ResponseCode.SUCCESS:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_a_java_sync_master_acknowledges_a_message_when_our_slave_has_it(
    release: str, tmp_path: Path
) -> None:
    require_java()
    # Without the second setting, 5.x brokers do not wait (inSyncReplicas is 1 there).
    sync = {"brokerRole": "SYNC_MASTER"} | ({"inSyncReplicas": 2} if release[0] == "5" else {})
    with (
        namesrv(tmp_path) as names,
        java(release, tmp_path, names, tmp_path / "master", **sync) as master,
        ours(tmp_path / "slave", names, **SLAVE) as slave,
    ):
        caught_up(slave.address, master.address)
        asyncio.run(send(master.address, 1))
        assert set(asyncio.run(send(master.address, 200, 1))) == {ResponseCode.SUCCESS}
        assert max_offset(slave.address) == max_offset(master.address)
        slave.kill()
        assert asyncio.run(send(master.address, 1, 300))[0] in (
            ResponseCode.SLAVE_NOT_AVAILABLE,
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
        )
