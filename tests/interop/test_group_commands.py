"""The commands for consumer groups print the same plain text as the Java mqadmin."""

import json
import re
import time
from datetime import datetime
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from tests.interop.tools import BROKER, GROUP, IDLE_GROUP, MESSAGES, TOPIC, Cluster

pytestmark = pytest.mark.java


def test_the_settings_of_a_group_are_printed_as_by_java(both_tools: Cluster) -> None:
    both_tools.assert_same("getConsumerConfig", "-g", GROUP)


def test_deleting_a_group_prints_what_java_prints(both_tools: Cluster) -> None:
    for where in (("-c", "DefaultCluster"), ("-b", both_tools.broker)):
        for more in ((), ("-r", "true")):
            both_tools.assert_same("deleteSubGroup", *where, "-g", "DeletedCommandGroup", *more)


def client_id(cluster: Cluster) -> str:
    found = cluster.ours("consumerStatus", "-g", GROUP, "-o", "json").json["data"]
    return str(found[0]["clientId"])


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_the_state_of_a_member_is_printed_as_by_java(both_tools: Cluster, release: str) -> None:
    arguments = ("consumerStatus", "-g", GROUP, "-i", client_id(both_tools))
    tool = both_tools.java if release == "4.9.7" else both_tools.java_5
    for _ in range(20):  # times of pulls change between the two calls
        java = tool(*arguments, "-n", both_tools.namesrv)
        ours = both_tools.ours(*arguments)
        if release == "5.5.0":  # this release also prints the headings of absent parts
            empty = r"#Consumer Pop Detail#\n#Topic [^\n]*#ProcessQueueInfo   \n\n\n"
            java = re.sub(empty, "", java).removesuffix("\n\n#User Consume Info#\n")
        if java == ours.out:
            break
    assert ours.out == java
    assert ours.out.count("ProcessQueueInfo [commitOffset=") >= 8


def test_the_members_of_a_group_are_printed_as_by_java(
    both_tools: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # both write their pages to the working directory
    folder = re.compile(r"\b\d{13}/")
    arguments = ("consumerStatus", "-g", GROUP, "-b", both_tools.broker)
    java, ours = both_tools.theirs(*arguments), both_tools.ours(*arguments)
    assert folder.sub("<folder>/", ours.out) == folder.sub("<folder>/", java) != java
    (mine,) = tmp_path.glob("*/*")
    (other,) = both_tools.java.home.glob(f"{folder.findall(java)[0]}*")
    assert mine.name == other.name
    assert mine.read_text().splitlines()[0] == other.read_text().splitlines()[0]


def test_commands_of_release_5_print_what_java_prints(both_tools: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    file.write_text(json.dumps([{"groupName": "Listed1"}, {"groupName": "Listed2"}]))
    broker = ("-b", both_tools.broker)
    mode = ("setConsumeMode", "-t", TOPIC, "-g", "Listed1", "-m", "POP")
    many = ("updateSubGroupList", "-f", str(file))
    if both_tools.release == "4.9.7":
        for command in (mode, many):
            refused = both_tools.ours(*command, *broker)
            assert (refused.status, refused.out) == (69, "")
            assert "the broker is older than RocketMQ 5, which" in refused.err
        return
    both_tools.assert_same(*mode, *broker, tool=both_tools.java_5)
    both_tools.assert_same(*mode, "-q", "3", "-c", "DefaultCluster", tool=both_tools.java_5)
    both_tools.assert_same(*many, *broker, tool=both_tools.java_5)
    java = both_tools.java_5(*many, "-c", "DefaultCluster", "-n", both_tools.namesrv)
    # After its work the Java command shows its help, as after a wrong call.
    assert both_tools.ours(*many, "-c", "DefaultCluster").out == java.partition("usage:")[0]


def test_a_group_a_topic_and_a_cluster_are_described(both_tools: Cluster) -> None:
    deadline = time.monotonic() + 60
    while True:  # other tests send to its topic, and it commits every few seconds
        group = both_tools.ours("group", "describe", GROUP, "-o", "json")
        assert (group.status, group.err) == (0, "")
        (found,) = group.json["data"]
        if not found["lag"]:
            break
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert (found["online"], found["lag"], found["oldest"]) == (True, 0, None)
    (member,) = found["members"]
    assert (member["language"], member["problem"]) == ("JAVA", None)
    assert member["subscriptions"] == [f"{TOPIC} *"]
    assert {item["name"]: item["values"][BROKER] for item in found["settings"]}[
        "retryMaxTimes"
    ] == "16"
    idle = both_tools.ours("group", "describe", IDLE_GROUP)
    assert (idle.status, idle.err) == (0, "")
    assert "No member is connected." in idle.out
    nobody = both_tools.ours("group", "describe", "NobodyKnowsThisGroup")
    assert nobody.status == 66, nobody.err
    topic = both_tools.ours("topic", "describe", TOPIC, "-o", "json")
    assert (topic.status, topic.err) == (0, "")
    (shown,) = topic.json["data"]
    assert shown["messages"] >= MESSAGES
    assert shown["oldest"] <= shown["newest"]
    assert GROUP in {one["group"] for one in shown["groups"]}
    whole = both_tools.ours("cluster", "describe", "--topics", "-o", "json")
    assert (whole.status, whole.err) == (0, "")
    (held,) = whole.json["data"]
    assert [one["role"] for one in held["brokers"]] == ["master"]
    assert TOPIC in {one["topic"] for one in held["topicQueues"]}


def test_the_oldest_unconsumed_message_is_found(both_tools: Cluster) -> None:
    group = "BehindDescribed"
    assert both_tools.ours("updateSubGroup", "-b", both_tools.broker, "-g", group).status == 0
    with BlockingSession(both_tools.namesrv) as session:
        admin = Admin(session)
        run(admin.update_consumer_offset(both_tools.broker, group, TOPIC, 0, 1))
    (found,) = both_tools.ours("group", "describe", group, "-o", "json").json["data"]
    (queue,) = [one for one in found["queues"] if one["queueId"] == 0]
    assert queue["lag"] >= 2
    exported = both_tools.ours("message", "export", TOPIC, "-", "-i", "0").out.splitlines()
    stored = json.loads(exported[1])["storeTimestamp"]
    oldest = datetime.fromisoformat(queue["oldest"])
    assert round(oldest.timestamp() * 1000) == stored
    # A search for the readers of a message of this topic would find it.
    delete = ("deleteSubGroup", "-c", "DefaultCluster", "-g", group, "-r", "true", "--yes")
    assert both_tools.ours(*delete).status == 0
    with BlockingSession(both_tools.namesrv) as session:
        left = run(Admin(session).all_consumer_offsets(both_tools.broker))
    assert [name for name in left if name.endswith(f"@{group}")] == []
