"""The store's checkpoint file."""

import os
from pathlib import Path

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.checkpoint import Checkpoint


def test_others_may_read_the_file_and_not_write_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Checkpoint(tmp_path / "checkpoint").save()
    finally:
        os.umask(before)
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o644


def test_the_recovered_end_is_loaded_and_a_torn_one_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    saved = Checkpoint(path)
    saved.recovered_end = 4711
    saved.moved(1, 2, 3).save()

    def read() -> int | None:
        found = Checkpoint(path)
        found.load()
        return found.recovered_end

    assert read() == 4711
    page = bytearray(path.read_bytes())
    page[layout.FOUND_END_AT + 12] ^= 1
    path.write_bytes(page)
    assert read() is None
    Checkpoint(path).save()
    assert read() is None
