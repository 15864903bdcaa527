import pytest

from mq.daemons.standalone import Standalone
from tests.cli.support import Mq


def test_status_and_settings_are_mappings_by_broker_in_json(
    cluster: Mq, standalone: Standalone
) -> None:
    address = standalone.broker.address
    status = cluster("brokerStatus", "-b", address, "-o", "json").json["data"]
    assert status[address]["brokerVersionDesc"] == "V4_9_8"
    settings = cluster("getBrokerConfig", "-c", "DefaultCluster", "-o", "json").json["data"]
    assert settings[address]["brokerName"] == "broker-a"


@pytest.mark.parametrize("command", ["brokerStatus", "getBrokerConfig"])
def test_neither_broker_nor_cluster_is_a_usage_error(command: str, cluster: Mq) -> None:
    assert cluster(command).status == 64


@pytest.mark.parametrize("command", ["brokerStatus", "getBrokerConfig"])
def test_a_broker_that_is_not_there_is_unavailable(command: str, cluster: Mq) -> None:
    finished = cluster(command, "-b", "127.0.0.1:1")
    assert (finished.status, finished.out) == (69, "")
    assert finished.err.startswith(f"mq {command}: cannot reach 127.0.0.1:1: ")
    assert "hint: " in finished.err
