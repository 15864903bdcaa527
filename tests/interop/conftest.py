"""Java clusters shared by tests, because a start takes ten seconds."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.tools import Cluster, cluster_with_both_tools

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A busy machine takes half a minute to start a JVM, and tests start several."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@dataclass(frozen=True)
class JavaCluster:
    """A running Java name server with one Java broker, both of `release`."""

    release: str
    namesrv: str  # "127.0.0.1:port"
    broker: str  # "127.0.0.1:port"
    broker_name: str
    home: Path


# The last cluster stays until the end of the run, and an idle Java 5.5 broker takes a quarter of a
# core.
@pytest.fixture(scope="session", params=peers.SERVER_RELEASES[::-1])
def java_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaCluster]:
    """A Java cluster of each release in turn. Tests share it: use your own topics and groups."""
    require_java()
    release: str = request.param
    home = tmp_path_factory.mktemp(f"java-{release}")
    with (
        peers.JavaNameServer(release, home) as namesrv,
        peers.JavaBroker(release, home, namesrv.address) as broker,
    ):
        yield JavaCluster(release, namesrv.address, broker.address, broker.name, home)


@pytest.fixture(scope="session", params=[*peers.SERVER_RELEASES, "ours"])
def both_tools(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A filled cluster of each kind in turn, with the Java mqadmin and ours.

    All tests share it: change only what no other test reads.
    """
    release: str = request.param
    with cluster_with_both_tools(
        release, tmp_path_factory.mktemp(f"commands-{release}")
    ) as cluster:
        yield cluster
