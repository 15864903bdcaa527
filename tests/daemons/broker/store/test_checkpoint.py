"""The store's checkpoint file."""

import os
from pathlib import Path

from mq.daemons.broker.store.checkpoint import Checkpoint


def test_others_may_read_the_file_and_not_write_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Checkpoint(tmp_path / "checkpoint").save()
    finally:
        os.umask(before)
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o644
