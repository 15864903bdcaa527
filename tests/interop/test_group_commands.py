"""The plain text of the commands for consumer groups is that of the Java mqadmin."""

import json
import re
from pathlib import Path

import pytest

from tests.interop.tools import GROUP, TOPIC, Cluster

pytestmark = pytest.mark.java


def test_the_settings_of_a_group_are_what_java_prints(both_tools: Cluster) -> None:
    both_tools.assert_same("getConsumerConfig", "-g", GROUP)


def test_deleting_a_group_prints_what_java_prints(both_tools: Cluster) -> None:
    for where in (("-c", "DefaultCluster"), ("-b", both_tools.broker)):
        for more in ((), ("-r", "true")):
            both_tools.assert_same("deleteSubGroup", *where, "-g", "DeletedCommandGroup", *more)


def client_id(cluster: Cluster) -> str:
    found = cluster.ours("consumerStatus", "-g", GROUP, "-o", "json").json["data"]
    return str(found[0]["clientId"])


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_the_state_of_a_member_is_what_java_prints(both_tools: Cluster, release: str) -> None:
    arguments = ("consumerStatus", "-g", GROUP, "-i", client_id(both_tools))
    tool = both_tools.java if release == "4.9.7" else both_tools.java_5
    for _ in range(4):  # times of pulls move on between two calls
        java = tool(*arguments, "-n", both_tools.namesrv)
        ours = both_tools.ours(*arguments)
        if release == "5.5.0":  # this release always has the heads of what is not there
            empty = r"#Consumer Pop Detail#\n#Topic [^\n]*#ProcessQueueInfo   \n\n\n"
            java = re.sub(empty, "", java).removesuffix("\n\n#User Consume Info#\n")
        if java == ours.out:
            break
    assert ours.out == java
    assert ours.out.count("ProcessQueueInfo [commitOffset=") >= 8


def test_the_members_of_a_group_are_what_java_prints(
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


def test_what_came_with_release_5_prints_what_java_prints(
    both_tools: Cluster, tmp_path: Path
) -> None:
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
    # After its work the Java command shows its help as if it had been called wrongly.
    assert both_tools.ours(*many, "-c", "DefaultCluster").out == java.partition("usage:")[0]
