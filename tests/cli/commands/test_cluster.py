from types import SimpleNamespace

import pytest

from mq.daemons.standalone import Standalone
from tests.cli.support import Mq


def test_json_has_a_row_per_broker(cluster: Mq, standalone: Standalone) -> None:
    document = cluster("clusterList", "-o", "json").json
    (row,) = document["data"]
    assert row["cluster"] == "DefaultCluster"
    assert row["brokerName"] == "broker-a"
    assert row["brokerAddr"] == standalone.broker.address
    assert row["version"] == "V4_9_8"
    assert 0 < row["diskRatio"] < 1


def test_an_unknown_cluster_is_not_found(cluster: Mq) -> None:
    finished = cluster("clusterList", "-c", "Other")
    assert finished.status == 66
    assert "known: DefaultCluster" in finished.err


def test_an_interval_prints_again_and_again(cluster: Mq, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    # Only the command's own: threads of other tests' fixtures sleep, too.
    monkeypatch.setattr("mq.cli.runtime.repetition.time", SimpleNamespace(sleep=sleep))
    finished = cluster("clusterList", "-i", "7", "-o", "json")
    assert finished.status == 0
    assert slept == [7, 7, 7]
    assert len(finished.out.splitlines()) == 3
    assert cluster("clusterList", "-i", "-1").status == 64
