"""The Java broker and ours serve one store in turn: each serves the data written by the other."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.cli.support import Mq
from tests.interop.peers import JavaBroker
from tests.system.daemon import BrokerProcess
from tests.system.ledger import QUEUES, TOPIC, read_all, send_command

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

FILE_SIZE = str(64 << 20)
NO_NAME_SERVER = "127.0.0.1:1"


class Served:
    """A broker of either kind that serves the store."""

    def __init__(self, process: JavaBroker | BrokerProcess) -> None:
        self._process = process
        self.address = process.address

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._process.stop()


@contextmanager
def java(release: str, tmp: Path) -> Iterator[Served]:
    broker = JavaBroker(release, tmp, "", store=tmp / "store")
    with broker:
        yield Served(broker)


@contextmanager
def ours(release: str, tmp: Path) -> Iterator[Served]:
    settings = {"mappedFileSizeCommitLog": FILE_SIZE, "diskMaxUsedSpaceRatio": "95"}
    with BrokerProcess(tmp / "store", settings) as broker:
        yield Served(broker)


BROKERS = {"java": java, "ours": ours}


@pytest.fixture
def mq(tmp_path: Path) -> Mq:
    return Mq(tmp_path / "config")


async def send(address: str, names: list[str]) -> None:
    async with Session(NO_NAME_SERVER, timeout=10) as session:
        for number, name in enumerate(names):
            answer = await session.invoke(address, send_command(name, number % QUEUES, 500))
            assert answer.code == ResponseCode.SUCCESS, answer.remark


async def commit_offset(address: str, offset: int) -> None:
    fields = {
        "consumerGroup": "audit",
        "topic": TOPIC,
        "queueId": "1",
        "commitOffset": str(offset),
    }
    async with Session(NO_NAME_SERVER, timeout=10) as session:
        await session.invoke(address, Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields))


async def committed(address: str) -> str:
    fields = {"consumerGroup": "audit", "topic": TOPIC, "queueId": "1"}
    async with Session(NO_NAME_SERVER, timeout=10) as session:
        command = Command(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        return (await session.invoke(address, command)).fields["offset"]


async def found_by_key(address: str, key: str) -> bool:
    fields = {
        "topic": TOPIC,
        "key": key,
        "maxNum": "10",
        "beginTimestamp": "0",
        "endTimestamp": str((1 << 62) - 1),
    }
    async with Session(NO_NAME_SERVER, timeout=10) as session:
        answer = await session.invoke(address, Command(RequestCode.QUERY_MESSAGE, fields))
    return answer.code == ResponseCode.SUCCESS and key.encode() in bytes(answer.body)


@pytest.mark.parametrize("order", [("java", "ours", "java"), ("ours", "java", "ours")])
def test_a_store_is_handed_over_after_a_clean_stop(tmp_path: Path, order: tuple[str, ...]) -> None:
    expected: list[str] = []
    for turn, kind in enumerate(order):
        with BROKERS[kind]("4.9.7", tmp_path) as broker:
            if turn:
                assert asyncio.run(read_all(broker.address)) == dict.fromkeys(expected, 1)
                assert asyncio.run(committed(broker.address)) == str(turn)
                for name in expected[::50]:
                    assert asyncio.run(found_by_key(broker.address, name)), name
            names = [f"{kind}{turn}-{number:04d}" for number in range(300)]
            asyncio.run(send(broker.address, names))
            asyncio.run(commit_offset(broker.address, turn + 1))
            expected += names
            broker.stop()


@pytest.mark.parametrize("order", [("java", "ours", "java"), ("ours", "java", "ours")])
def test_a_store_is_handed_over_after_kill_9(tmp_path: Path, order: tuple[str, ...]) -> None:
    expected: list[str] = []
    for turn, kind in enumerate(order):
        with BROKERS[kind]("4.9.7", tmp_path) as broker:
            if turn:
                assert asyncio.run(read_all(broker.address)) == dict.fromkeys(expected, 1)
                # After a crash Java drops the current index file, and with it the older keys.
                if kind == "ours":
                    for name in expected[::50]:
                        assert asyncio.run(found_by_key(broker.address, name)), name
            names = [f"{kind}{turn}-{number:04d}" for number in range(300)]
            asyncio.run(send(broker.address, names))
            expected += names
            broker.kill()


def test_java_5_5_serves_our_store_and_we_serve_its(tmp_path: Path) -> None:
    expected: list[str] = []
    for turn, kind in enumerate(("ours", "java", "ours")):
        with BROKERS[kind]("5.5.0", tmp_path) as broker:
            if turn:
                assert asyncio.run(read_all(broker.address)) == dict.fromkeys(expected, 1)
            names = [f"{kind}{turn}-{number:04d}" for number in range(300)]
            asyncio.run(send(broker.address, names))
            expected += names
            broker.stop()


def test_java_serves_a_store_of_ours_that_was_damaged_and_repaired(tmp_path: Path, mq: Mq) -> None:
    names = [f"ours-{number:04d}" for number in range(300)]
    with ours("4.9.7", tmp_path) as broker:
        asyncio.run(send(broker.address, names))
        broker.stop()
    root = tmp_path / "store"
    log = root / "commitlog" / f"{0:020d}"
    at = log.read_bytes().index(b"ours-0100")
    with open(log, "r+b") as file:
        file.seek(at)
        file.write(b"OURS")
    assert mq("store", "verify", str(root)).status == 65
    assert mq("store", "repair", str(root), "--yes").status == 0
    names.remove("ours-0100")
    with java("4.9.7", tmp_path) as broker:
        found = asyncio.run(read_all(broker.address))
        # Java usually delivers the message after the lost one of its queue twice.
        assert found.pop("ours-0104") in (1, 2)
        assert found == dict.fromkeys(set(names) - {"ours-0104"}, 1)
        names += (more := [f"java-{number:04d}" for number in range(300)])
        asyncio.run(send(broker.address, more))
        broker.stop()
    done = mq("store", "verify", str(root), "-o", "json")
    assert (done.status, done.json["data"]) == (0, [])
    with ours("4.9.7", tmp_path) as broker:
        assert asyncio.run(read_all(broker.address)) == dict.fromkeys(names, 1)


@pytest.mark.parametrize("release", ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.long)])
def test_a_store_of_java_is_verified_without_problems(release: str, tmp_path: Path, mq: Mq) -> None:
    names = [f"java-{number:04d}" for number in range(300)]
    with java(release, tmp_path) as broker:
        asyncio.run(send(broker.address, names))
        broker.stop()
    done = mq("store", "verify", str(tmp_path / "store"), "-o", "json")
    assert (done.status, done.json["data"]) == (0, [])
    assert done.json["totals"]["indexItems"] >= 300
    dumped = mq("store", "dump", str(tmp_path / "store"), "-t", TOPIC, "--format", r"%k\n")
    assert dumped.out.split() == names
