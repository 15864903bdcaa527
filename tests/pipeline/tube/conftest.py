"""One TubeMQ cluster for all tests of a worker, and topics on it."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mq.testing import RunningTube
from tests.pipeline.tube.filling import Sent, fill

# A topic exists after some heartbeats of its broker.
_QUICK = {"heartbeatPeriodMs": "20"}


@dataclass
class TubeTopic:
    """A topic of one test, and the options with which a query reads it."""

    tube: RunningTube
    name: str

    @property
    def options(self) -> dict[str, str]:
        return {"masters": self.tube.master, "topic": self.name, "group": f"g_{self.name}"}

    def send(self, *bodies: bytes, partition: int | None = 0, kind: str | None = None) -> Sent:
        """Send in order, to one partition or, with None, to each in turn."""
        return fill(self.tube.master, self.name, bodies, partition, kind)


@pytest.fixture(scope="session")
def tube_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTube]:
    """A master and a broker for the whole run."""
    with RunningTube(tmp_path_factory.mktemp("tube"), _QUICK) as tube:
        yield tube


@pytest.fixture
def topic(tube_of_session: RunningTube) -> TubeTopic:
    """A topic of two partitions that share an index."""
    name = f"t{uuid.uuid4().hex}"
    tube_of_session.create_topic(name, 2)
    return TubeTopic(tube_of_session, name)
