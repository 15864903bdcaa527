"""A full disk with a file system that copies on write: the daemon refuses sends and lives."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.protocol.codes import ResponseCode
from tests.system.daemon import BrokerProcess
from tests.system.faults.bad_blocks import mounted
from tests.system.faults.crashing import SETTINGS
from tests.system.faults.sends import send_each, stored


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    image, folder = tmp_path / "disk.img", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(128 << 20)
    with mounted(image, folder, "btrfs", "-q", "-f"):
        yield folder


@pytest.mark.parametrize("native", ["0", "1"])
def test_a_full_disk_that_copies_on_write_refuses_sends_and_serves_readers(
    disk: Path, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQ_NATIVE", native)
    with process(disk) as broker:
        acknowledged = send_until_full(broker, disk)
        assert broker.stop() == 71  # its state cannot be saved, and it reports that
        (disk / "ballast").unlink()
        os.sync()
        broker.start()
        assert dict.fromkeys(acknowledged, 1) == stored(broker.address)
        (again,) = asyncio.run(send_each(broker.address, ["again"], 1000))
        assert again.code == ResponseCode.SUCCESS
        assert broker.stop() == 0


@pytest.mark.parametrize("is_new_mount", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_start_on_a_full_disk_serves_readers_and_accepts_messages_when_there_is_space(
    disk: Path, is_killed: bool, is_new_mount: bool
) -> None:
    with process(disk) as broker:
        if is_new_mount:  # for the next start
            (disk / "store" / "abort").write_bytes(b"")
        acknowledged = send_until_full(broker, disk)
        for _ in range(2):
            if is_killed:
                broker.kill()
            else:
                assert broker.stop() == 71 or is_new_mount
            broker.start()
            assert dict.fromkeys(acknowledged, 1) == stored(broker.address)
            if not is_new_mount:  # then index files are rebuilt, which may free space
                assert_refused(broker)
        assert (
            is_new_mount or "it is read-only, because the disk was full at the start" in broker.log
        )
        (disk / "ballast").unlink()
        os.sync()
        sent = wait_until_taken(broker)
        for _ in range(2):  # once after a kill
            assert dict.fromkeys({*acknowledged, sent}, 1) == stored(broker.address)
            broker.kill()
            broker.start()
        assert broker.stop() == 0


SETTINGS_OF_A_FULL_DISK = {
    **SETTINGS,
    "diskSpaceWarningLevelRatio": "100",
    "flushDiskType": "ASYNC_FLUSH",
}


def process(disk: Path) -> BrokerProcess:
    made = BrokerProcess(disk / "store", SETTINGS_OF_A_FULL_DISK)
    made.log_path = disk.with_name("broker.log")  # not on the full disk
    return made


def send_until_full(broker: BrokerProcess, disk: Path) -> set[str]:
    """Send messages until the disk is full; returns those that were acknowledged."""
    names = [f"m{number:05d}" for number in range(200)]
    first = asyncio.run(send_each(broker.address, names[:100], 1000))
    assert {answer.code for answer in first} == {ResponseCode.SUCCESS}
    os.sync()  # from now on each rewritten page needs new space
    fill(disk / "ballast")
    answers = asyncio.run(send_each(broker.address, names[100:200], 5000))
    assert answers[-1].code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "No space left on device" in str(answers[-1].remark)
    taken = {name for name, one in zip(names[100:200], answers, strict=True) if one.code == 0}
    acknowledged = {*names[:100], *taken}
    assert dict.fromkeys(acknowledged, 1) == stored(broker.address)
    return acknowledged


def assert_refused(broker: BrokerProcess) -> None:
    (refused,) = asyncio.run(send_each(broker.address, ["refused"], 1000))
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "No space left on device" in str(refused.remark)


def wait_until_taken(broker: BrokerProcess) -> str:
    """Send until a message is accepted; returns its name."""
    deadline = time.monotonic() + 60
    while True:
        (answer,) = asyncio.run(send_each(broker.address, ["again"], 1000))
        if answer.code == ResponseCode.SUCCESS:
            return "again"
        assert time.monotonic() < deadline, answer.remark
        time.sleep(0.1)  # another process: there is no event


def fill(path: Path) -> None:
    """Fill the disk."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(b"\1" * size):
                    pass
            except OSError:
                continue
