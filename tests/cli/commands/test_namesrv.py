import pytest

from mq.daemons.standalone import Standalone
from tests.cli.support import Mq


def test_write_permission_is_taken_and_given_back(cluster: Mq, standalone: Standalone) -> None:
    server = standalone.name_server_address
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Wiped")

    def perm() -> int:
        (row,) = cluster("topicRoute", "-t", "Wiped", "-o", "json").json["data"]
        return int(row["perm"])

    wiped = cluster("wipeWritePerm", "-b", "broker-a")
    assert wiped.out.startswith(
        f"wipe write perm of broker[broker-a] in name server[{server}] OK, "
    )
    assert perm() == 4
    (row,) = cluster("addWritePerm", "-b", "broker-a", "-o", "json").json["data"]
    assert (row["namesrvAddr"], row["brokerName"]) == (server, "broker-a")
    assert row["topicCount"] > 0
    assert perm() == 6
    unknown = cluster("wipeWritePerm", "-b", "nobody")
    assert (unknown.status, unknown.out) == (
        0,
        f"wipe write perm of broker[nobody] in name server[{server}] OK, 0\n",
    )


def test_a_dead_name_server_is_reported_beside_the_one_that_lives(
    cluster: Mq, standalone: Standalone
) -> None:
    server = standalone.name_server_address
    both = ("-n", f"{server};127.0.0.1:1")
    partly = cluster("addWritePerm", "-b", "broker-a", *both)
    assert partly.status == 1
    assert "in name server[127.0.0.1:1] Failed\n" in partly.out
    assert f"in name server[{server}] OK, " in partly.out
    assert partly.err.startswith("mq addWritePerm: 127.0.0.1:1: ")
    for command in (
        ("updateKvConfig", "-s", "N", "-k", "K", "-v", "V"),
        ("deleteKvConfig", "-s", "N", "-k", "K"),
        ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false"),
        ("getNamesrvConfig",),
    ):
        finished = cluster(*command, *both)
        assert finished.status == 1
        assert "127.0.0.1:1: " in finished.err


def test_settings_are_shown_and_changed(cluster: Mq, standalone: Standalone) -> None:
    server = standalone.name_server_address
    words = ("updateNamesrvConfig", "-k", "orderMessageEnable")
    changed = cluster(*words, "-v", "true")
    assert changed.out == "update name server config success!\norderMessageEnable : true\n"
    shown = cluster("getNamesrvConfig")
    assert shown.out.startswith(f"============{server}============\n")
    assert f"{'orderMessageEnable':<50}=  true\n" in shown.out
    back = cluster(*words, "-v", "false", "-n", server)
    assert back.out == f"update name server config success![{server}]\norderMessageEnable : false\n"
    document = cluster("getNamesrvConfig", "-o", "json").json
    assert document["data"][server]["orderMessageEnable"] == "false"


@pytest.mark.parametrize(
    ("key", "value", "status"),
    [
        ("kvConfigPath", "/tmp/elsewhere", 77),
        ("noSuchSetting/", "1", 69),
        ("orderMessageEnable", "true\nkvConfigPath=/x", 64),
        ("a=b", "1", 64),
    ],
)
def test_settings_that_may_not_be_changed_are_refused(
    key: str, value: str, status: int, cluster: Mq
) -> None:
    finished = cluster("updateNamesrvConfig", "-k", key, "-v", value)
    assert (finished.status, finished.out) == (status, "")


def test_key_value_settings_are_set_and_deleted(cluster: Mq) -> None:
    words = ("-s", "ORDER_TOPIC_CONFIG", "-k", "KeptInOrder")
    assert cluster("updateKvConfig", *words, "-v", "broker-a:2").out == (
        "create or update kv config to namespace success.\n"
    )
    shown = cluster("updateOrderConf", "-t", "KeptInOrder", "-m", "get", "-o", "json").json
    assert shown["data"][0]["orderConf"] == "broker-a:2"
    for _ in range(2):  # a missing one counts as deleted
        assert cluster("deleteKvConfig", *words).out == "delete kv config from namespace success.\n"
    assert cluster("updateOrderConf", "-t", "KeptInOrder", "-m", "get").status == 66
