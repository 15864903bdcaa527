"""The files of an export: a state never counts bytes of another run."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mq.client.operations.errors import BadData, CannotWrite
from mq.client.operations.messages.file_sink import FileSink

ASKED: dict[str, Any] = {"topic": "orders"}
OLD = b'{"body":"old"}\n'


def leave_cut(folder: Path) -> Path:
    """Leave what an interrupted export of one message leaves in a folder; returns the absent
    FILE.
    """
    folder.mkdir()
    file = folder / "orders.jsonl"
    part_of(file).write_bytes(OLD)
    state = {"asked": ASKED, "bytes": len(OLD), "messages": 1, "queues": {"a:0": [1, 9]}}
    state_of(file).write_text(json.dumps(state))
    return file


def part_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.part")


def state_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.state")


def test_an_export_killed_before_its_first_save_is_not_resumed_from_an_older_state(
    tmp_path: Path,
) -> None:
    file, killed = leave_cut(tmp_path / "here"), tmp_path / "killed"
    with FileSink(file, ASKED, resume=False):
        part_of(file).write_bytes(b'{"body":"of this run, and longer than the old"}\n')
        shutil.copytree(file.parent, killed)
    with FileSink(killed / file.name, ASKED, resume=True) as sink:
        assert (sink.written, sink.positions) == (0, {})
        assert part_of(killed / file.name).read_bytes() == b""


def test_a_resumed_export_keeps_its_state(tmp_path: Path) -> None:
    file = leave_cut(tmp_path / "here")
    with FileSink(file, ASKED, resume=True) as sink:
        assert state_of(file).exists()
        assert (sink.written, sink.positions) == (1, {"a:0": [1, 9]})
    assert file.read_bytes() == OLD


def test_gaps_are_saved_with_the_offset_after_them(tmp_path: Path) -> None:
    file = leave_cut(tmp_path / "here")
    with pytest.raises(KeyboardInterrupt), FileSink(file, ASKED, resume=True) as sink:
        sink.begin([], [], lambda: ["a:0: one message"])
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), FileSink(file, ASKED, resume=True) as sink:
        assert sink.gaps == ["a:0: one message"]
        sink.begin([], [], lambda: ["a:0: one message", "a:1: another"])
        raise KeyboardInterrupt
    with FileSink(file, ASKED, resume=True) as sink:
        assert sink.gaps == ["a:0: one message", "a:1: another"]


def test_what_a_state_counts_is_there_while_the_state_is(tmp_path: Path) -> None:
    file = leave_cut(tmp_path / "here")
    state_of(file).unlink()
    state_of(file).mkdir()  # it cannot be removed
    with pytest.raises(CannotWrite, match=r"cannot remove .*orders\.jsonl\.state"):
        FileSink(file, ASKED, resume=False).__enter__()
    assert part_of(file).read_bytes() == OLD
    opened = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert part_of(file) not in opened


def test_the_state_of_an_export_that_failed_goes_before_its_bytes_do(tmp_path: Path) -> None:
    """A state that is left alone would be applied to the FILE of an earlier export."""
    file = tmp_path / "orders.jsonl"
    with pytest.raises(OSError), FileSink(file, ASKED, resume=False):
        part_of(file).unlink()
        part_of(file).mkdir()  # it cannot be removed
        raise BadData("a wrong filter")
    assert part_of(file).exists() and not state_of(file).exists()
