"""A full disk with a file system that copies on write: the daemon refuses sends and lives."""

import asyncio
import os
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
    disk: Path, native: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MQ_NATIVE", native)
    settings = {**SETTINGS, "diskSpaceWarningLevelRatio": "100", "flushDiskType": "ASYNC_FLUSH"}
    process = BrokerProcess(disk / "store", settings)
    process.log_path = tmp_path / "broker.log"
    names = [f"m{number:05d}" for number in range(200)]
    with process as broker:
        first = asyncio.run(send_each(broker.address, names[:100], 1000))
        assert {answer.code for answer in first} == {ResponseCode.SUCCESS}
        os.sync()  # from now on each page that is written again needs new space
        fill(disk / "ballast")
        answers = asyncio.run(send_each(broker.address, names[100:200], 5000))
        assert answers[-1].code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "No space left on device" in str(answers[-1].remark)
        taken = {name for name, one in zip(names[100:200], answers, strict=True) if one.code == 0}
        acknowledged = {*names[:100], *taken}
        assert dict.fromkeys(acknowledged, 1) == stored(broker.address)
        assert broker.stop() == 71  # its state cannot be saved, and it says so
        (disk / "ballast").unlink()
        os.sync()
        broker.start()
        assert dict.fromkeys(acknowledged, 1) == stored(broker.address)
        (again,) = asyncio.run(send_each(broker.address, ["again"], 1000))
        assert again.code == ResponseCode.SUCCESS
        assert broker.stop() == 0


def fill(path: Path) -> None:
    """Take all space there is."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(b"\1" * size):
                    pass
            except OSError:
                continue
