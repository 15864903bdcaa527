"""What the tests of the command share."""

from pathlib import Path

import pytest

from tests.cli.support import Mq


@pytest.fixture
def mq(tmp_path: Path) -> Mq:
    """`mq` in process, with an empty configuration directory."""
    return Mq(tmp_path / "config")
