"""A topic that was deleted and recreated at a Java broker; its log has both generations."""

import asyncio
import shutil
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.session import Session
from mq.protocol.codes import ResponseCode
from tests.cli.support import Mq
from tests.interop.faults.pairs import SLAVE, namesrv, ours
from tests.interop.faults.pairs import java as java_master
from tests.interop.jvm import require_java
from tests.interop.peers import SERVER_RELEASES, JavaBroker
from tests.system.daemon import BrokerProcess
from tests.system.ledger import QUEUES, TOPIC, read_all, send_command
from tests.system.pairs import caught_up
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

OLD = [f"old-{number:04d}" for number in range(200)]
NEW = [f"new-{number:04d}" for number in range(50)]
SETTINGS = {"mappedFileSizeCommitLog": str(64 << 20), "diskMaxUsedSpaceRatio": "95"}


async def send(session: Session, address: str, names: list[str]) -> None:
    for number, name in enumerate(names):
        answer = await session.invoke(address, send_command(name, number % QUEUES, 300))
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def shows(address: str, names: list[str]) -> None:
    """Wait until the queues, which Java fills a moment later, have these messages."""

    async def has_all() -> bool:
        return await read_all(address) == dict.fromkeys(names, 1)

    await until(has_all)


async def two_lives(address: str) -> None:
    async with Session("127.0.0.1:1", timeout=10) as session:
        await send(session, address, OLD)
        await shows(address, OLD)
        await Admin(session).delete_topic_in_broker(address, TOPIC)
        await send(session, address, NEW)
        await shows(address, NEW)


def read(address: str) -> dict[str, int]:
    return asyncio.run(read_all(address))


@pytest.mark.parametrize("end", ["killed", "stopped"])
@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_our_broker_and_then_java_serve_the_new_generation_after_kills(
    release: str, end: str, tmp_path: Path
) -> None:
    require_java()
    store = tmp_path / "store"
    expected = dict.fromkeys(NEW, 1)
    with JavaBroker(release, tmp_path, "", store=store) as java:
        asyncio.run(two_lives(java.address))
        java.kill() if end == "killed" else java.stop()
    with BrokerProcess(store, SETTINGS) as broker:
        assert read(broker.address) == expected
        broker.kill()
        broker.start()
        assert read(broker.address) == expected

        async def more() -> None:
            async with Session("127.0.0.1:1", timeout=10) as session:
                await send(session, broker.address, ["more-0000"])

        asyncio.run(more())
        expected["more-0000"] = 1
        broker.kill()
        broker.start()
        assert read(broker.address) == expected
        assert broker.stop() == 0
    assert Mq(tmp_path / "config")("store", "verify", str(store)).status == 0
    with JavaBroker(release, tmp_path, "", store=store) as java:
        asyncio.run(shows(java.address, list(expected)))


@pytest.mark.parametrize("lost", ["consumequeue", "nothing"])
def test_a_repaired_store_of_java_has_the_new_generation(lost: str, tmp_path: Path) -> None:
    require_java()
    store = tmp_path / "store"
    with JavaBroker("4.9.7", tmp_path, "", store=store) as java:
        asyncio.run(two_lives(java.address))
        java.kill()
    if lost != "nothing":
        shutil.rmtree(store / lost / TOPIC)
    mq = Mq(tmp_path / "config")
    assert mq("store", "repair", str(store), "--yes").status == 0
    done = mq("store", "verify", str(store), "-o", "json")
    assert (done.status, done.json["data"]) == (0, [])
    with BrokerProcess(store, SETTINGS) as broker:
        assert read(broker.address) == dict.fromkeys(NEW, 1)


@pytest.mark.parametrize("release", ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.long)])
@pytest.mark.parametrize("begins", ["before", "after"])
def test_our_slave_of_a_java_master_serves_the_new_generation_after_a_kill(
    release: str, begins: str, tmp_path: Path
) -> None:
    require_java()
    with (
        namesrv(tmp_path) as names,
        java_master(release, tmp_path, names, tmp_path / "m") as master,
    ):
        slave = ours(tmp_path / "slave", names, **SLAVE)
        if begins == "after":
            asyncio.run(two_lives(master.address))
        with slave:
            if begins == "before":
                asyncio.run(two_lives(master.address))
            caught_up(slave.address, master.address)
            asyncio.run(shows(slave.address, NEW))
            slave.kill()
            for path in (tmp_path / "slave").glob("deletions.json*"):
                path.write_bytes(b"damaged")
            slave.start()
            asyncio.run(shows(slave.address, NEW))
