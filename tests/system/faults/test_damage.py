"""Files damaged on purpose under a killed broker, and its data after the next start."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.system.daemon import BrokerProcess
from tests.system.faults.crashing import SETTINGS
from tests.system.ledger import QUEUES, TOPIC, read_all, send_command

COUNT = 400
NAMES = [f"m{number:05d}" for number in range(COUNT)]


async def send_all(address: str) -> None:
    async with Session("127.0.0.1:1", timeout=10) as session:
        for number, name in enumerate(NAMES):
            answer = await session.invoke(address, send_command(name, number % QUEUES, 3000))
            assert answer.code == ResponseCode.SUCCESS, answer.remark


async def find(address: str, key: str) -> int:
    """The number of messages that the key index finds."""
    fields = {
        "topic": TOPIC,
        "key": key,
        "maxNum": "10",
        "beginTimestamp": "0",
        "endTimestamp": str(1 << 62),
    }
    async with Session("127.0.0.1:1", timeout=10) as session:
        answer = await session.invoke(address, Command(RequestCode.QUERY_MESSAGE, fields))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return bytes(answer.body).count(key.encode() + b"..")


@pytest.fixture
def killed(tmp_path: Path) -> BrokerProcess:
    """A broker that stored COUNT messages over several log files and was killed."""
    broker = BrokerProcess(tmp_path / "store", SETTINGS)
    with broker:
        asyncio.run(send_all(broker.address))
    return broker


def flip(path: Path, chance: random.Random, times: int = 1, end: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(times):
        data[chance.randrange(end or len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def queue_files(store: Path) -> list[Path]:
    return sorted((store / "consumequeue" / TOPIC).glob("*/0*"))


@pytest.mark.parametrize("how", ["flipped", "truncated", "emptied", "deleted"])
def test_damaged_queues_cost_no_message(killed: BrokerProcess, how: str) -> None:
    chance = random.Random(how)
    for path in queue_files(killed.store):
        if how == "flipped":
            flip(path, chance, times=20, end=COUNT // QUEUES * 20)
        elif how == "truncated":
            truncate(path)
        elif how == "emptied":
            empty(path)
        else:
            path.unlink()
    with killed as broker:
        assert asyncio.run(read_all(broker.address)) == dict.fromkeys(NAMES, 1)


@pytest.mark.parametrize("damage", [truncate, empty, Path.unlink])
def test_a_damaged_index_costs_no_key(
    killed: BrokerProcess, damage: Callable[[Path], object]
) -> None:
    for path in (killed.store / "index").iterdir():
        damage(path)
    with killed as broker:
        for name in NAMES[:: COUNT // 10]:
            assert asyncio.run(find(broker.address, name)) == 1


@pytest.mark.parametrize("damage", [truncate, empty, Path.unlink])
def test_damaged_state_files_never_stop_a_start(
    killed: BrokerProcess, damage: Callable[[Path], object]
) -> None:
    """Their backups are used; a topic without any is created again by the first send to it."""
    for path in (killed.store / "config").glob("*.json"):
        damage(path)
    checkpoint = killed.store / "checkpoint"
    if checkpoint.exists():  # one is taken every ten seconds
        damage(checkpoint)
    with killed as broker:
        stored = asyncio.run(read_all(broker.address))
        if not stored:
            asyncio.run(send_all(broker.address))
            stored = asyncio.run(read_all(broker.address))
            assert stored == dict.fromkeys(NAMES, 2)
        else:
            assert stored == dict.fromkeys(NAMES, 1)


def test_a_flipped_bit_in_the_last_log_file_truncates_it_there_and_is_reported(
    killed: BrokerProcess,
) -> None:
    last = sorted((killed.store / "commitlog").iterdir())[-1]
    data = bytearray(last.read_bytes())
    middle = data.index(b"m00390.")
    data[middle + 100] ^= 1
    last.write_bytes(data)
    with killed as broker:
        assert asyncio.run(read_all(broker.address)) == dict.fromkeys(NAMES[:390], 1)
        assert "checksum of its body is wrong" in broker.log
        (kept,) = (broker.store / "damaged").iterdir()
        assert kept.read_bytes().count(b"m00395.") == 1
        asyncio.run(send_all(broker.address))
        stored = asyncio.run(read_all(broker.address))
        assert stored == {**dict.fromkeys(NAMES, 1), **dict.fromkeys(NAMES[:390], 2)}


def test_a_log_cut_at_any_byte_serves_whole_records(killed: BrokerProcess) -> None:
    chance = random.Random(7)
    last = sorted((killed.store / "commitlog").iterdir())[-1]
    size = last.stat().st_size
    known = len(NAMES)
    for _ in range(3):
        data = last.read_bytes()
        used = len(data.rstrip(b"\0"))
        cut = chance.randrange(used - used // 8, used)
        last.write_bytes(data[:cut] + bytes(size - cut))
        with killed as broker:
            stored = asyncio.run(read_all(broker.address))
            assert len(stored) <= known
            assert stored == dict.fromkeys(NAMES[: len(stored)], 1)
            known = len(stored)
