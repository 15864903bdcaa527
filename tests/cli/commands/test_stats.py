from tests.cli.support import Mq


def test_a_topic_without_groups_has_one_row(cluster: Mq) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Counted")
    rows = cluster("statsAll", "-t", "Counted", "-o", "json").json["data"]
    assert rows == [
        {"topic": "Counted", "group": None, "accumulation": 0, "inTps": 0.0, "outTps": None,
         "inMsg24Hour": 0, "outMsg24Hour": None}
    ]  # fmt: skip
    head, line = cluster("statsAll", "-t", "Counted").out.splitlines()
    assert head.split() == [
        "#Topic", "#Consumer", "Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour",
        "#OutMsg24Hour",
    ]  # fmt: skip
    assert line.split() == ["Counted", "0", "0.00", "0", "NO_CONSUMER"]


def test_a_quiet_topic_is_not_active(cluster: Mq) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Quiet")
    assert cluster("statsAll", "-a", "-t", "Quiet", "-o", "json").json["data"] == []
    assert len(cluster("statsAll", "-a", "-t", "Quiet").out.splitlines()) == 1
