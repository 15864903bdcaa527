import json
from pathlib import Path

import pytest

from tests.cli.support import Mq


def make(cluster: Mq, name: str, *options: str) -> None:
    assert cluster("updateTopic", "-c", "DefaultCluster", "-t", name, *options).status == 0


def route(cluster: Mq, name: str) -> dict[str, object]:
    (row,) = cluster("topicRoute", "-t", name, "-o", "json").json["data"]
    return dict(row)


def address(cluster: Mq) -> str:
    (row,) = cluster("clusterList", "-o", "json").json["data"]
    return str(row["brokerAddr"])


def test_a_changed_permission_leaves_the_queues(cluster: Mq) -> None:
    make(cluster, "Permitted", "-r", "3", "-w", "2")
    changed = cluster("updateTopicPerm", "-c", "DefaultCluster", "-t", "Permitted", "-p", "4")
    where = address(cluster)
    assert changed.out == f"update topic perm from 6 to 4 in {where} success.\n"
    found = route(cluster, "Permitted")
    assert (found["perm"], found["readQueueNums"], found["writeQueueNums"]) == (4, 3, 2)
    again = cluster("updateTopicPerm", "-b", where, "-t", "Permitted", "-p", "4")
    assert again.out == "new perm equals to the old one!\n"
    back = cluster("updateTopicPerm", "-b", where, "-t", "Permitted", "-p", "6", "-o", "json")
    assert back.json["data"] == [
        {"brokerName": "broker-a", "brokerAddr": where, "topic": "Permitted", "oldPerm": 4,
         "perm": 6}
    ]  # fmt: skip


def test_a_permission_needs_a_place_a_value_and_a_master_that_has_the_topic(cluster: Mq) -> None:
    make(cluster, "Placed")
    nowhere = cluster("updateTopicPerm", "-t", "Placed", "-p", "6")
    assert nowhere.status == 64
    assert "one of -b/--brokerAddr or -c/--clusterName is required" in nowhere.err
    wrong = cluster("updateTopicPerm", "-t", "Placed", "-p", "9", "-c", "DefaultCluster")
    assert (wrong.status, wrong.err.splitlines()[0]) == (64, "mq updateTopicPerm: -p/--perm: 9")
    other = cluster("updateTopicPerm", "-t", "Placed", "-p", "4", "-b", "127.0.0.1:1")
    assert other.status == 66
    assert "127.0.0.1:1 is not the address of a master that has topic Placed" in other.err


def test_an_order_configuration_is_put_shown_and_deleted(cluster: Mq) -> None:
    words = ("updateOrderConf", "-t", "OrderedByHand")
    put = cluster(*words, "-m", "put", "-v", "broker-a:4;broker-b:4")
    assert put.out == (
        "update orderConf success. topic=[OrderedByHand], orderConf=[broker-a:4;broker-b:4]"
    )
    shown = cluster(*words, "-m", "get", "-o", "json")
    assert shown.json["data"] == [{"topic": "OrderedByHand", "orderConf": "broker-a:4;broker-b:4"}]
    assert cluster(*words, "-m", "delete").out == "delete orderConf success. topic=[OrderedByHand]"
    gone = cluster(*words, "-m", "get")
    assert (gone.status, gone.out) == (66, "")
    assert "topic OrderedByHand has no order configuration" in gone.err


@pytest.mark.parametrize("order", [None, "", "broker-a", "broker-a:x", ":4", "broker-a:4;"])
def test_an_order_configuration_that_cannot_be_is_refused(order: str | None, cluster: Mq) -> None:
    value = () if order is None else ("-v", order)
    finished = cluster("updateOrderConf", "-t", "T", "-m", "put", *value)
    assert finished.status == 64
    assert "-v/--orderConf" in finished.err


def test_many_topics_are_made_from_a_file(cluster: Mq, tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    file.write_text(
        json.dumps(
            [
                {"topicName": "ListedOne", "readQueueNums": 2, "writeQueueNums": 2},
                {"topicName": "ListedTwo", "readQueueNums": 3, "writeQueueNums": 3, "perm": 4},
            ]
        )
    )
    made = cluster("updateTopicList", "-c", "DefaultCluster", "-f", str(file))
    assert made.out == (
        f"submit batch of topic config to {address(cluster)} success, "
        "please check the result later.\n"
    )
    assert route(cluster, "ListedOne")["readQueueNums"] == 2
    assert route(cluster, "ListedTwo")["perm"] == 4
    piped = '[{"topicName": "ListedThree", "readQueueNums": 5, "writeQueueNums": 5}]'
    assert cluster("updateTopicList", "-", "-c", "DefaultCluster", typed=piped).status == 0
    assert route(cluster, "ListedThree")["readQueueNums"] == 5
    wrong = cluster("updateTopicList", "-f", "-", "-c", "DefaultCluster", typed="nonsense")
    assert (wrong.status, wrong.out) == (65, "")
    assert "standard input: not JSON" in wrong.err


@pytest.mark.parametrize(
    ("content", "status", "complaint"),
    [
        (None, 66, "no file "),
        ("[", 65, "not JSON"),
        ("{}", 65, "not a list of topics"),
        ("[]", 65, "not a list of topics"),
        ('[{"topicName": "T", "perm": []}]', 65, "topic 1: "),
        ('[{"topicName": "../x"}]', 64, "../x"),
    ],
)
def test_a_file_of_topics_that_cannot_be_used_is_refused(
    content: str | None, status: int, complaint: str, cluster: Mq, tmp_path: Path
) -> None:
    file = tmp_path / "topics.json"
    if content is not None:
        file.write_text(content)
    finished = cluster("updateTopicList", "-c", "DefaultCluster", "-f", str(file))
    assert (finished.status, finished.out) == (status, "")
    assert complaint in finished.err


def test_queues_are_allocated_in_neighbouring_runs(cluster: Mq) -> None:
    make(cluster, "Allocated", "-r", "5", "-w", "5")
    shown = cluster("allocateMQ", "-t", "Allocated", "-i", "b,a", "-o", "json").json["data"]
    shares = {name: [row["queueId"] for row in shown if row["consumer"] == name] for name in "ab"}
    assert shares == {"a": [0, 1, 2], "b": [3, 4]}
    plain = json.loads(cluster("allocateMQ", "-t", "Allocated", "-i", "b,a").out)["result"]
    assert {name: len(queues) for name, queues in plain.items()} == {"b": 3, "a": 2}
    assert cluster("allocateMQ", "-t", "Allocated", "-i", ",").status == 64
