import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.codes import RequestCode
from tests.cli.scripted import answer, daemon
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
def test_a_broker_that_is_not_there_is_unavailable(command: str, cluster: Mq) -> None:
    finished = cluster(command, "-b", "127.0.0.1:1")
    assert (finished.status, finished.out) == (69, "")
    assert finished.err.startswith(f"mq {command}: cannot reach 127.0.0.1:1: ")
    assert "hint: " in finished.err


def test_a_setting_of_a_running_broker_is_changed(cluster: Mq, standalone: Standalone) -> None:
    address = standalone.broker.address
    change = ("updateBrokerConfig", "-k", "flushIntervalCommitLog", "-v")
    assert (
        cluster(*change, "700", "-b", address).out == f"update broker config success, {address}\n"
    )
    everywhere = cluster(*change, "701", "-c", "DefaultCluster", "-a", "true", "-o", "json")
    row = {"brokerAddr": address, "key": "flushIntervalCommitLog", "value": "701"}
    assert everywhere.json["data"] == [row]
    settings = cluster("getBrokerConfig", "-b", address, "-o", "json").json["data"]
    assert settings[address]["flushIntervalCommitLog"] == "701"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("-k", "flushIntervalCommitLog", "-v", "1"), 64, "-b/--brokerAddr or -c/--clusterName"),
        (("-k", "a=b", "-v", "1", "-b", "127.0.0.1:1"), 64, "must each be one line"),
        (("-k", "a", "-v", "1\nb=2", "-b", "127.0.0.1:1"), 64, "must each be one line"),
        (("-k", "a", "-v", "1", "-c", "Nowhere"), 66, "no cluster 'Nowhere'"),
        (("-k", "storePathRootDir", "-v", "/", "-c", "DefaultCluster"), 77, "storePathRootDir"),
    ],
)
def test_a_setting_that_cannot_be_changed_is_refused(
    arguments: tuple[str, ...], status: int, words: str, cluster: Mq
) -> None:
    finished = cluster("updateBrokerConfig", *arguments)
    assert (finished.status, finished.out) == (status, "")
    assert words in finished.err


def test_the_hint_at_a_refused_setting_is_about_settings(cluster: Mq) -> None:
    line = ("updateBrokerConfig", "-k", "storePathRootDir", "-v", "/", "-c", "DefaultCluster")
    assert "hint: set it in the peer's configuration file" in cluster(*line).err


def test_a_note_about_a_setting_is_written_to_standard_error(
    cluster: Mq, standalone: Standalone
) -> None:
    address = standalone.broker.address
    finished = cluster(
        "updateBrokerConfig", "-k", "sendMessageThreadPoolNums", "-v", "9", "-b", address
    )
    assert finished.out == f"update broker config success, {address}\n"
    assert finished.err == (
        f"mq updateBrokerConfig: {address}: sendMessageThreadPoolNums has no effect in this "
        "daemon\n"
    )


def test_the_lag_of_every_group_is_shown(cluster: Mq, standalone: Standalone) -> None:
    address, where = standalone.broker.address, ("-t", "BrokerLag", "-c", "DefaultCluster")
    cluster("updateTopic", *where, "-r", "1", "-w", "1")
    cluster("updateSubGroup", "-b", address, "-g", "BrokerLagGroup")
    for _ in range(2):
        cluster("sendMessage", "-t", "BrokerLag", "-p", "x")
    with BlockingSession(cluster.variables["NAMESRV_ADDR"]) as session:
        run(Admin(session).update_consumer_offset(address, "BrokerLagGroup", "BrokerLag", 0, 1))
    found = cluster("brokerConsumeStats", "-b", address, "--output", "json").json
    (row,) = [row for row in found["data"] if row["group"] == "BrokerLagGroup"]
    assert (row["topic"], row["brokerName"], row["queueId"]) == ("BrokerLag", "broker-a", 0)
    assert (row["brokerOffset"], row["consumerOffset"], row["diff"]) == (2, 1, 1)
    assert row["lastConsumed"].endswith("Z")
    assert found["totals"]["diffTotal"] >= 1
    far = cluster("brokerConsumeStats", "-b", address, "-l", "100", "--output", "json").json
    assert "BrokerLagGroup" not in {row["group"] for row in far["data"]}
    plain = cluster("brokerConsumeStats", "-b", address).out
    assert plain.startswith("#Topic   ")
    assert "\n\nDiff Total: " in plain


def test_a_timeout_that_is_none_is_refused(cluster: Mq) -> None:
    finished = cluster("brokerConsumeStats", "-b", "127.0.0.1:1", "-t", "0")
    assert finished.status == 64


def test_secrets_that_a_broker_tells_are_not_shown(mq: Mq) -> None:
    """Java's 5.x masks nothing."""
    body = (
        b'initAuthenticationUser={"username":"admin","password":"hush"}\n'
        b'innerClientAuthenticationCredentials={"accessKey":"a","secretKey":"hush"}\n'
        b"brokerName=b\nadminToken=\n"
    )
    handlers = {
        RequestCode.GET_BROKER_CONFIG: answer(body),
        RequestCode.GET_NAMESRV_CONFIG: answer(body),
        RequestCode.GET_CONTROLLER_CONFIG: answer(body),
    }
    with daemon(handlers) as address:
        for command in (
            ("getBrokerConfig", "-b", address),
            ("getNamesrvConfig",),
            ("getControllerConfig", "-a", address),
        ):
            for form in ("plain", "json"):
                shown = mq(*command, "-n", address, "-o", form)
                assert shown.status == 0, shown.err
                assert "hush" not in shown.out
                assert shown.out.count("******") == 2
