import json
import time
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import SubscriptionGroupConfig
from tests.cli.support import Mq


def groups(pair: Standalone) -> dict[str, SubscriptionGroupConfig]:
    with BlockingSession(pair.name_server_address) as session:
        found = run(Admin(session).subscription_groups(pair.broker.address))
    return found.subscription_group_table


def topics(cluster: Mq) -> list[str]:
    return cluster("topicList").out.splitlines()


def test_a_deleted_group_is_gone_with_its_topics(cluster: Mq, standalone: Standalone) -> None:
    address = standalone.broker.address
    for topic in ("%RETRY%Gone", "%DLQ%Gone"):
        cluster("updateTopic", "-c", "DefaultCluster", "-t", topic)
    # A pending registration would recreate a deleted topic, as with Java.
    end = time.monotonic() + 60
    while not {"%RETRY%Gone", "%DLQ%Gone"} <= set(topics(cluster)) and time.monotonic() < end:
        time.sleep(0.05)
    cluster("updateSubGroup", "-b", address, "-g", "Gone")
    deleted = cluster("deleteSubGroup", "-c", "DefaultCluster", "-g", "Gone", "-r", "true")
    assert deleted.out.splitlines() == [
        f"delete subscription group [Gone] from broker [{address}] in cluster [DefaultCluster] "
        "success.",
        "delete topic [%RETRY%Gone] from cluster [DefaultCluster] success.",
        "delete topic [%RETRY%Gone] from NameServer success.",
        "delete topic [%DLQ%Gone] from cluster [DefaultCluster] success.",
        "delete topic [%DLQ%Gone] from NameServer success.",
    ]
    assert "Gone" not in groups(standalone)
    assert not {"%RETRY%Gone", "%DLQ%Gone"} & set(topics(cluster))


def test_a_group_deleted_at_one_broker_keeps_its_topics(
    cluster: Mq, standalone: Standalone
) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "%RETRY%Half")
    cluster("updateSubGroup", "-b", standalone.broker.address, "-g", "Half")
    deleted = cluster("deleteSubGroup", "-b", standalone.broker.address, "-g", "Half", "-o", "json")
    address = standalone.broker.address
    assert deleted.json["data"] == [{"role": "broker", "address": address, "name": "Half"}]
    assert "Half" not in groups(standalone)
    assert "%RETRY%Half" in topics(cluster)


def test_offsets_go_with_the_group_only_if_asked(cluster: Mq, standalone: Standalone) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Kept", "-r", "1", "-w", "1")
    for _ in range(3):
        cluster("sendMessage", "-t", "Kept", "-p", "x")
    with BlockingSession(standalone.name_server_address) as session:
        admin, address = Admin(session), standalone.broker.address
        for remove, left in (("false", 2), ("true", 0)):
            cluster("updateSubGroup", "-b", address, "-g", "Keeper")
            run(admin.update_consumer_offset(address, "Keeper", "Kept", 0, 2))
            cluster("deleteSubGroup", "-b", address, "-g", "Keeper", "-r", remove)
            cluster("updateSubGroup", "-b", address, "-g", "Keeper")
            assert run(admin.query_consumer_offset(address, "Keeper", "Kept", 0)) == left


def test_the_settings_of_a_group_are_shown_for_each_broker(cluster: Mq) -> None:
    cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "Shown", "-r", "5")
    plain = cluster("getConsumerConfig", "-g", "Shown").out
    assert plain.startswith(f"{'=' * 29}DefaultCluster:broker-a{'=' * 29}\ngroupName  ")
    assert f"{'retryMaxTimes':<40}=  5\n" in plain
    (found,) = cluster("getConsumerConfig", "-g", "Shown", "-o", "json").json["data"]
    assert (found["cluster"], found["brokerName"]) == ("DefaultCluster", "broker-a")
    assert found["config"]["retryMaxTimes"] == 5
    missing = cluster("getConsumerConfig", "-g", "NobodyShown")
    assert (missing.status, missing.out) == (66, "")


def test_a_group_is_let_pop(cluster: Mq, standalone: Standalone) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Popped")
    chosen = ("setConsumeMode", "-t", "Popped", "-g", "Popping", "-c", "DefaultCluster", "-m")
    plain = cluster(*chosen, "POP", "-q", "2").out
    assert plain == (
        f"set consume mode to {standalone.broker.address} success.\n"
        "topic[Popped] group[Popping] consume mode[POP] popShareQueueNum[2]"
    )
    assert cluster(*chosen, "PUSH").status == 64
    assert cluster("setConsumeMode", "-t", "T", "-g", "G", "-m", "POP").status == 64


def test_many_groups_are_made_from_a_file(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    file = tmp_path / "groups.json"
    file.write_text(json.dumps([{"groupName": "Listed1", "retryMaxTimes": 2}, {"groupName": "L2"}]))
    address = standalone.broker.address
    made = cluster("updateSubGroupList", "-b", address, "-f", str(file))
    assert made.out == (
        f"submit batch of group config to {address} success, please check the result later.\n"
    )
    made = cluster("updateSubGroupList", "-c", "DefaultCluster", "-f", str(file), "-o", "json")
    assert [row["group"] for row in made.json["data"]] == ["Listed1", "L2"]
    assert groups(standalone)["Listed1"].retry_max_times == 2


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ("[", 65),
        ("{}", 65),
        ('[{"groupName":"G","retryMaxTimes":"x"}]', 65),
        ('[{"retryMaxTimes":7}]', 64),
        ('[{"groupName":"a b"}]', 64),
        (None, 66),
    ],
)
def test_a_file_that_lists_no_groups_is_refused(
    content: str | None, status: int, cluster: Mq, tmp_path: Path
) -> None:
    file = tmp_path / "groups.json"
    if content is not None:
        file.write_text(content)
    finished = cluster("updateSubGroupList", "-c", "DefaultCluster", "-f", str(file))
    assert (finished.status, finished.out) == (status, "")
    assert "groups.json" in finished.err or "a b" in finished.err
