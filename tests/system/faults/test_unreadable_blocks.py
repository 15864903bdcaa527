"""A block of a disk that cannot be read fails the requests that need it and nothing else."""

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import decode_records
from tests.interop.ports import free_port
from tests.system.daemon import BrokerProcess
from tests.system.faults.bad_blocks import BLOCK, BadDisk, bad_disk
from tests.system.faults.crashing import SETTINGS
from tests.system.ledger import QUEUES, TOPIC, identity_of, read_all, send_command

COUNT = 800
SIZE = 3000
NAMES = [f"m{number:05d}" for number in range(COUNT)]
FAILED = "cannot be read"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[BadDisk]:
    with bad_disk(tmp_path) as disk:
        yield disk


@pytest.fixture(params=["0", "1"], ids=["python", "native"])
def broker(
    request: pytest.FixtureRequest, disk: BadDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[BrokerProcess]:
    """A broker that stored COUNT messages in three log files, and was stopped."""
    monkeypatch.setenv("MQ_NATIVE", request.param)
    settings = {**SETTINGS, "metricsPort": str(free_port()), "enablePropertyFilter": "true"}
    broker = BrokerProcess(disk.folder / "store", settings)
    broker.log_path = tmp_path / "broker.log"
    try:
        with broker:
            asyncio.run(send_all(broker.address))
            assert broker.stop() == 0
        yield broker
    finally:
        broker.kill()


async def send_all(address: str) -> None:
    async with Session("127.0.0.1:1", timeout=10) as session:
        for number, name in enumerate(NAMES):
            answer = await session.invoke(address, send_command(name, number % QUEUES, SIZE))
            assert answer.code == ResponseCode.SUCCESS, answer.remark


def log_files(broker: BrokerProcess) -> list[Path]:
    return sorted((broker.store / "commitlog").glob("0*"))


def lost_names(path: Path, position: int) -> set[str]:
    """The messages that have a part in the block at a position of the file. Call it before it is
    spoilt.
    """
    data = path.read_bytes()
    block = position - position % BLOCK
    places = {data.find(name.encode() + b"."): name for name in NAMES}
    begins = sorted(place for place in places if place >= 0)
    names = set()
    for begin, following in zip(begins, [*begins[1:], len(data)], strict=True):
        # A record starts some bytes before its body, and ends before that of the next.
        if begin - 200 < block + BLOCK and block < following:
            names.add(places[begin])
    return names


def ask(address: str, code: RequestCode, **fields: str) -> Command:
    async def main() -> Command:
        async with Session("127.0.0.1:1", timeout=10) as session:
            return await session.invoke(address, Command(code, fields))

    return asyncio.run(main())


async def read_past_failures(address: str, expression: str = "*") -> tuple[set[str], list[str]]:
    """The readable messages and the remarks of the failed pulls, one offset each."""
    found: set[str] = set()
    remarks = []
    async with Session("127.0.0.1:1", timeout=20) as session:
        for queue_id in range(QUEUES):
            offset = 0
            while offset < COUNT // QUEUES:
                fields = {
                    "consumerGroup": "auditors",
                    "topic": TOPIC,
                    "queueId": str(queue_id),
                    "queueOffset": str(offset),
                    "maxMsgNums": "32",
                    "sysFlag": "4",
                    "commitOffset": "0",
                    "suspendTimeoutMillis": "0",
                    "subscription": expression,
                    "subVersion": "0",
                    "expressionType": "TAG" if expression == "*" else "SQL92",
                }
                answer = await session.invoke(address, Command(RequestCode.PULL_MESSAGE, fields))
                if answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
                    found |= {identity_of(one.body) for one in decode_records(answer.body)}
                    following = int(answer.fields["nextBeginOffset"])
                    assert following > offset, "a pull that does not move on"
                    offset = following
                else:
                    remarks.append(str(answer.remark))
                    offset += 1
    return found, remarks


def test_only_the_messages_on_an_unreadable_block_cannot_be_pulled(
    broker: BrokerProcess, disk: BadDisk
) -> None:
    first, second = log_files(broker)[:2]
    lost = lost_names(first, 500_000) | lost_names(second, 300_000)
    disk.spoil((first, 500_000), (second, 300_000))
    with broker:
        for _ in range(2):
            found, remarks = asyncio.run(read_past_failures(broker.address))
            assert found == set(NAMES) - lost
            assert len(remarks) == len(lost)
            assert all(FAILED in remark and "Input/output error" in remark for remark in remarks)
        found, remarks = asyncio.run(read_past_failures(broker.address, "KEYS IS NOT NULL"))
        assert found == set(NAMES) - lost
        assert len(remarks) == len(lost)
        assert failed_reads(broker) > 0
        assert "cannot be read at offset" in broker.log
        assert broker.stop() == 0


def failed_reads(broker: BrokerProcess) -> float:
    url = f"http://127.0.0.1:{broker._settings['metricsPort']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("mq_failed_reads_total")
    )


def test_every_request_that_reads_the_log_survives_an_unreadable_block(
    broker: BrokerProcess, disk: BadDisk
) -> None:
    first, second = log_files(broker)[:2]
    names = lost_names(second, 300_000)
    lost = sorted(names)[-1]
    disk.spoil((first, 0), (second, 300_000))
    with broker:
        address = broker.address
        view = ask(address, RequestCode.VIEW_MESSAGE_BY_ID, offset="0")
        assert view.code == ResponseCode.SYSTEM_ERROR
        assert "Input/output error" in str(view.remark)
        query = {"topic": TOPIC, "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}
        answer = ask(address, RequestCode.QUERY_MESSAGE, key=lost, **query)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "Input/output error" in str(answer.remark)
        answer = ask(address, RequestCode.QUERY_MESSAGE, key=NAMES[-1], **query)
        assert answer.code == ResponseCode.SUCCESS
        for queue_id in range(QUEUES):
            place = {"topic": TOPIC, "queueId": str(queue_id)}
            ask(address, RequestCode.GET_EARLIEST_MSG_STORETIME, **place)
            for timestamp in ("0", "1", str(1 << 50)):
                ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=timestamp, **place)
        info = ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        assert info.code == ResponseCode.SUCCESS
        assert json.loads(bytes(info.body))["table"]["earliestMessageTimeStamp"] == "-1"
        assert failed_reads(broker) > 0
        assert asyncio.run(send_one(address)).code == ResponseCode.SUCCESS
        assert broker.stop() == 0


async def send_one(address: str) -> Command:
    async with Session("127.0.0.1:1", timeout=10) as session:
        return await session.invoke(address, send_command("last", 0, SIZE))


def test_a_slave_gets_the_log_up_to_the_unreadable_block(
    broker: BrokerProcess, disk: BadDisk, tmp_path: Path
) -> None:
    last = log_files(broker)[-1]  # with which a new slave starts
    disk.spoil((last, 100_000))
    ha_port = str(int(broker._settings["listenPort"]) + 1)  # where a slave expects it
    broker._settings = {**broker._settings, "brokerRole": "ASYNC_MASTER", "haListenPort": ha_port}
    slave = BrokerProcess(
        tmp_path / "slave",
        {
            **SETTINGS,
            "brokerRole": "SLAVE",
            "brokerId": "1",
            "haMasterAddress": f"127.0.0.1:{ha_port}",
        },
    )
    begin = 100_000 - 100_000 % BLOCK
    with broker, slave:
        copy = slave.store / "commitlog" / last.name
        wait_until(lambda: "is unreadable (" in broker.log)
        size = begin - 2 * SIZE  # a slave stores whole records
        with last.open("rb", buffering=0) as file:
            wanted = file.read(size)
        wait_until(lambda: copy.exists() and copy.read_bytes()[:size] == wanted)
        assert asyncio.run(send_one(broker.address)).code == ResponseCode.SUCCESS


def wait_until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # a log file: there is no event


def test_a_start_after_a_kill_skips_an_unreadable_block_and_keeps_later_records(
    broker: BrokerProcess, disk: BadDisk
) -> None:
    with broker:
        broker.kill()
    last = log_files(broker)[-1]
    lost = lost_names(last, 100_000)
    assert lost and NAMES[-1] not in lost
    disk.spoil((last, 100_000))
    with broker:
        found, _ = asyncio.run(read_past_failures(broker.address))
        assert found == set(NAMES) - lost
        assert f"{FAILED}: Input/output error" in broker.log
        assert "skipped" in broker.log
        assert asyncio.run(send_one(broker.address)).code == ResponseCode.SUCCESS
        broker.kill()
    with broker:
        found, _ = asyncio.run(read_past_failures(broker.address))
        assert found >= set(NAMES) - lost


def test_a_start_after_a_kill_ends_the_log_before_an_unreadable_end(
    broker: BrokerProcess, disk: BadDisk
) -> None:
    with broker:
        broker.kill()
    last = log_files(broker)[-1]
    used = len(last.read_bytes().rstrip(b"\0"))
    lost = lost_names(last, used - 1)
    disk.spoil((last, used - 1))
    with broker:
        assert asyncio.run(read_all(broker.address)) == dict.fromkeys(set(NAMES) - lost, 1)
        assert f"{FAILED}: Input/output error" in broker.log
        assert asyncio.run(send_one(broker.address)).code == ResponseCode.SUCCESS
        assert "last" in asyncio.run(read_all(broker.address))


def mq(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mq", *words], capture_output=True, text=True, check=False
    )


def test_verify_reports_an_unreadable_range_and_repair_closes_it(
    broker: BrokerProcess, disk: BadDisk
) -> None:
    first, second = log_files(broker)[:2]
    lost = lost_names(first, 500_000) | lost_names(second, 300_000)
    disk.spoil((second, 300_000), (first, 500_000))
    found = mq("store", "verify", str(broker.store), "-o", "json")
    assert found.returncode == 65, found.stderr
    assert found.stdout.count(f"{FAILED}: Input/output error") == 2
    repaired = mq("store", "repair", str(broker.store), "--yes")
    assert repaired.returncode == 0, repaired.stderr
    assert mq("store", "verify", str(broker.store)).returncode == 0
    with broker:
        assert asyncio.run(read_all(broker.address)) == dict.fromkeys(set(NAMES) - lost, 1)
