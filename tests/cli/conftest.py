"""Fixtures for tests of the command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.daemons.standalone import Standalone
from tests.cli.pairs import running_pair
from tests.cli.support import Mq


@pytest.fixture
def mq(tmp_path: Path) -> Mq:
    """`mq` in process, with an empty configuration directory."""
    return Mq(tmp_path / "config")


@pytest.fixture(scope="module")
def standalone() -> Iterator[Standalone]:
    """Our name server and broker, in a loop of their own thread, for the tests of one file."""
    with running_pair() as pair:
        yield pair


@pytest.fixture
def cluster(standalone: Standalone, tmp_path: Path) -> Mq:
    """`mq` with NAMESRV_ADDR set to our own daemons."""
    variables = {
        "NAMESRV_ADDR": standalone.name_server_address,
        "MQ_STATE_DIR": str(tmp_path / "state"),
    }
    return Mq(tmp_path / "config", variables)
