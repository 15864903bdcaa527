"""A full disk, and one that fails to flush: no message is acknowledged that is not stored."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.protocol.codes import ResponseCode
from tests.system.daemon import BrokerProcess
from tests.system.faults.crashing import SETTINGS
from tests.system.faults.sends import send_each, stored

HERE = Path(__file__).parent


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB that may be filled."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_full_disk_refuses_with_its_cause_and_keeps_what_was_acknowledged(
    small_disk: Path, flush: str
) -> None:
    # The broker's own limit would refuse first: here the disk itself must refuse.
    settings = {**SETTINGS, "flushDiskType": flush, "diskSpaceWarningLevelRatio": "100"}
    names = [f"m{number:05d}" for number in range(1000)]
    process = BrokerProcess(small_disk / "store", settings)
    process.log_path = small_disk.parent / "broker.log"  # not on the full disk, too
    with process as broker:
        answers = asyncio.run(send_each(broker.address, names, 10_000))
        refused = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
        assert refused, "6 MB took 10 MB"
        assert {answer.code for answer in refused} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert "No space left on device" in (refused[0].remark or "")
        acknowledged = {
            name for name, answer in zip(names, answers, strict=True) if answer.code == 0
        }
        assert dict.fromkeys(acknowledged, 1) == stored(broker.address)
        broker.kill()
        broker.start()
        assert dict.fromkeys(acknowledged, 1) == stored(broker.address)


def test_messages_are_accepted_again_when_there_is_space(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(3_000_000))
    settings = {**SETTINGS, "diskSpaceWarningLevelRatio": "100"}
    with BrokerProcess(small_disk / "store", settings) as broker:
        names = [f"m{number:05d}" for number in range(500)]
        answers = asyncio.run(send_each(broker.address, names, 10_000))
        assert answers[-1].code == ResponseCode.SERVICE_NOT_AVAILABLE
        ballast.unlink()
        (answer,) = asyncio.run(send_each(broker.address, ["after"], 1000))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        acknowledged = [n for n, a in zip(names, answers, strict=True) if a.code == 0]
        assert dict.fromkeys([*acknowledged, "after"], 1) == stored(broker.address)


def test_the_refusal_names_a_disk_over_the_limit(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(5_800_000))
    with BrokerProcess(small_disk / "store", SETTINGS) as broker:
        (answer,) = asyncio.run(send_each(broker.address, ["one"], 100))
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "limit 90 % (diskSpaceWarningLevelRatio)" in (answer.remark or "")


@pytest.fixture
def failing_fsync(tmp_path: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no C compiler: apt-get install gcc libc6-dev", pytrace=False)
        pytest.skip("no C compiler: apt-get install gcc libc6-dev")
    library = tmp_path / "failing_fsync.so"
    source = HERE / "failing_fsync.c"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def test_a_failing_fsync_is_never_acknowledged_and_sends_are_refused(
    tmp_path: Path, failing_fsync: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = tmp_path / "fail"
    monkeypatch.setenv("MQ_FAIL_FSYNC", str(switch))
    broker = BrokerProcess(tmp_path / "store", SETTINGS, preload=failing_fsync)
    with broker:
        (good,) = asyncio.run(send_each(broker.address, ["good"], 100))
        switch.touch()
        bad, next_one = asyncio.run(send_each(broker.address, ["bad", "next"], 100))
        switch.unlink()
        (later,) = asyncio.run(send_each(broker.address, ["later"], 100))
        assert good.code == ResponseCode.SUCCESS
        for answer in (bad, next_one, later):
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "fsync of the commit log failed" in (answer.remark or "")
        assert stored(broker.address) == {"good": 1}, "what may be lost must not be read"
        broker.kill()
        broker.start()
        (again,) = asyncio.run(send_each(broker.address, ["again"], 100))
        assert again.code == ResponseCode.SUCCESS
        # "bad" was written and may exist: its sender learned that it is not known to be on disk.
        assert {"good", "again"} <= stored(broker.address).keys() <= {"good", "bad", "again"}
