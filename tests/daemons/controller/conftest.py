"""An etcd for a whole module of tests: each controller has its own group in it."""

from collections.abc import Iterator

import pytest

from tests.daemons.controller.etcd_server import EtcdServer


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server
