import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.channel import Channel
from mq.daemons.standalone import Standalone
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from mq.protocol.names import dead_letter_topic
from tests.cli.connected import connected
from tests.cli.members import member
from tests.cli.pairs import DEAD, dead_broker, make_topic, put, running_pair
from tests.cli.scripted import daemon
from tests.cli.support import Finished, Mq

SOON = ("--timeout", "2")  # the limit for members that never answer


def page(finished: Finished, status: int = 0) -> dict[str, Any]:
    assert finished.status == status, finished.err
    (found,) = finished.json["data"]
    return dict(found)


def consume(pair: Standalone, group: str, topic: str, offset: int) -> None:
    """Set a group to an offset of queue 0."""
    with BlockingSession(pair.name_server_address) as session:
        admin = Admin(session)
        run(admin.update_consumer_offset(pair.broker.address, group, topic, 0, offset))


def make_group(mq: Mq, group: str, *options: str) -> None:
    assert mq("updateSubGroup", "-c", "DefaultCluster", "-g", group, *options).status == 0


def test_the_page_of_a_group_has_lag_members_settings_and_dead_letters(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "DescribeOrders", 1)
    make_topic(standalone, dead_letter_topic("describe-whole"), 1)
    make_group(cluster, "describe-whole", "-r", "3")
    put(standalone, [Message("DescribeOrders", b"%d" % n) for n in range(5)], 0)
    put(standalone, [Message(dead_letter_topic("describe-whole"), b"lost")] * 2, 0)
    consume(standalone, "describe-whole", "DescribeOrders", 2)
    with connected(standalone, group="describe-whole", topic="DescribeOrders"):
        found = page(cluster("group", "describe", "describe-whole", "-o", "json", *SOON))
        text = cluster("group", "describe", "-g", "describe-whole", *SOON).out
    third = json.loads(cluster("message", "export", "DescribeOrders", "-").out.splitlines()[2])[
        "storeTimestamp"
    ]
    assert (found["lag"], found["deadLetters"], found["retries"]) == (3, 2, 0)
    assert found["oldest"] is not None
    assert abs(milliseconds(found["oldest"]) - third) < 1
    (topic,) = [one for one in found["topics"] if one["topic"] == "DescribeOrders"]
    assert (topic["queues"], topic["lag"]) == (1, 3)
    (queue,) = [one for one in found["queues"] if one["topic"] == "DescribeOrders"]
    assert (queue["brokerOffset"], queue["consumerOffset"], queue["lag"]) == (5, 2, 3)
    (one,) = found["members"]
    assert one["clientId"] == "client@1"
    assert one["problem"] is not None  # a bare connection, which does not answer
    settings = {item["name"]: item["values"] for item in found["settings"]}
    assert settings["retryMaxTimes"] == {"broker-a": "3"}
    for line in (
        "Lag           3 messages, oldest waiting: ",
        "Dead letters  2 messages, the",
    ):
        assert line in text
    assert "client@1 did not answer: " in text


def milliseconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp() * 1000


def test_members_that_disagree_are_told(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "Disagreed", 2)
    with ExitStack() as parts:
        first = parts.enter_context(member(standalone, "describe-two", "Disagreed", "TagA"))
        second = parts.enter_context(member(standalone, "describe-two", "Disagreed", "TagB"))
        found = page(cluster("group", "describe", "describe-two", "-o", "json"))
        text = cluster("group", "describe", "describe-two").out
    assert {one["clientId"] for one in found["members"]} == {first, second}
    (wanted,) = found["disagreements"]
    assert wanted == {"topic": "Disagreed", "wanted": {first: "TagA", second: "TagB"}}
    assert f"Disagreed: {first} subscribes to TagA\n" in text
    mine = next(one for one in found["members"] if one["clientId"] == first)
    assert (mine["language"], mine["subscriptions"]) == ("PYTHON", ["Disagreed TagA"])


def test_a_topic_that_is_gone_is_told(cluster: Mq, standalone: Standalone) -> None:
    with connected(standalone, group="describe-gone", topic="NeverMade"):
        found = page(cluster("group", "describe", "describe-gone", "-o", "json", *SOON))
        text = cluster("group", "describe", "describe-gone", *SOON).out
    assert found["goneTopics"] == ["NeverMade"]
    assert "Members subscribe to topic NeverMade, which does not exist.\n" in text


def test_a_group_without_members_has_a_page_and_one_that_there_is_not_has_none(
    cluster: Mq, standalone: Standalone
) -> None:
    make_group(cluster, "describe-idle", "-s", "false")
    idle = cluster("group", "describe", "describe-idle")
    assert (idle.status, idle.err) == (0, "")
    for line in ("No member is connected.", "Nothing consumed yet.", "at broker-a"):
        assert line in idle.out
    nobody = cluster("group", "describe", "describe-nobody")
    assert (nobody.status, nobody.out) == (66, "")
    assert nobody.err.startswith("mq group describe: there is no consumer group describe-nobody\n")


@pytest.mark.parametrize("format", ["plain", "table", "markdown", "csv", "yaml"])
def test_each_format_has_the_page(cluster: Mq, standalone: Standalone, format: str) -> None:
    make_topic(standalone, "DescribeForms", 1)
    make_group(cluster, "describe-forms")
    put(standalone, [Message("DescribeForms", b"x")], 0)
    consume(standalone, "describe-forms", "DescribeForms", 0)
    out = cluster("group", "describe", "describe-forms", "-o", format, columns=120).out
    assert "DescribeForms" in out
    assert ("retryMaxTimes" in out) == (format != "csv")
    by_queue = cluster("group", "describe", "describe-forms", "--queues", "-o", format, columns=160)
    assert "broker-a" in by_queue.out
    columns = ("--columns", "topic,lag", "--no-header", "-o", format)
    chosen = cluster("group", "describe", "describe-forms", *columns, columns=120)
    assert chosen.status == 0
    assert "retryMaxTimes" not in chosen.out


def test_a_broker_that_does_not_answer_is_a_line_of_each_page(tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("describing")
    with running_pair() as pair:
        mq = Mq(folder, {"NAMESRV_ADDR": pair.name_server_address})
        make_topic(pair, "Half", 1)
        put(pair, [Message("Half", b"x")], 0)
        make_group(mq, "describe-half")
        consume(pair, "describe-half", "Half", 0)
        with dead_broker(pair.name_server_address, "Half"):
            group = mq("group", "describe", "describe-half", "-o", "json")
            topic = mq("topic", "describe", "Half", "-o", "json")
            whole = mq("cluster", "describe", "-o", "json")
            nobody = mq("group", "describe", "describe-nobody")
    assert (page(group, 1)["lag"], page(topic, 1)["messages"]) == (1, 1)
    for finished in (group, topic):
        assert finished.err.count("broker-dead: ") == 1
        assert f"broker-dead: {DEAD}: " in finished.err
    states = {one["brokerName"]: one["problem"] for one in page(whole, 1)["brokers"]}
    assert states["broker-a"] is None
    assert states["broker-dead"].startswith("cannot be reached: ")
    assert nobody.status == 66
    assert "no consumer group describe-nobody at the brokers that answer" in nobody.err
    assert f"broker-dead: {DEAD}: " in nobody.err


def test_a_broker_that_hangs_is_not_asked_about_each_group_of_a_topic(tmp_path: Path) -> None:
    asked: list[int] = []

    def hang(request: Command, channel: Channel) -> None:
        asked.append(request.code)

    with (
        running_pair() as pair,
        daemon(dict.fromkeys(RequestCode, hang)) as hung,
        dead_broker(pair.name_server_address, "Hung", name="broker-hung", address=hung),
    ):
        mq = Mq(tmp_path, {"NAMESRV_ADDR": pair.name_server_address})
        make_topic(pair, "Hung", 1)
        for number in range(3):
            consume(pair, f"hung-{number}", "Hung", 0)
        found = page(mq("topic", "describe", "Hung", "-o", "json", "--timeout", "0.5"), 1)
    assert [one["group"] for one in found["groups"]] == ["hung-0", "hung-1", "hung-2"]
    assert asked.count(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO) == 1
    assert RequestCode.GET_CONSUME_STATS not in asked  # nor waited for, eight groups at a time


def test_the_page_of_a_topic_has_queues_groups_and_its_oldest_message(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "DescribeTopic", 2)
    put(standalone, [Message("DescribeTopic", b"%d" % n) for n in range(4)], 1)
    make_group(cluster, "describe-reader")
    consume(standalone, "describe-reader", "DescribeTopic", 0)
    with member(standalone, "describe-member", "DescribeTopic"):
        found = page(cluster("topic", "describe", "DescribeTopic", "-o", "json"))
        text = cluster("topic", "describe", "-t", "DescribeTopic").out
    lines = cluster("message", "export", "DescribeTopic", "-").out.splitlines()
    first = min(json.loads(line)["storeTimestamp"] for line in lines)
    assert (found["messages"], milliseconds(found["oldest"])) == (4, first)
    assert [(one["queueId"], one["messages"]) for one in found["queues"]] == [(0, 0), (1, 4)]
    (route,) = found["route"]
    assert (route["brokerName"], route["readQueueNums"], route["perm"]) == ("broker-a", 2, 6)
    groups = {one["group"]: one for one in found["groups"]}
    assert groups["describe-member"]["members"] == 1
    assert groups["describe-reader"]["members"] == 0
    assert "Messages  4 in 2 queues\n" in text
    absent = cluster("topic", "describe", "DescribeAbsent")
    assert (absent.status, absent.out) == (66, "")
    assert absent.err.startswith("mq topic describe: there is no topic DescribeAbsent\n")


def test_the_page_of_a_cluster_has_servers_brokers_and_what_they_hold(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "DescribeHeld", 3)
    make_group(cluster, "describe-held")
    plain = page(cluster("cluster", "describe", "-o", "json"))
    assert plain["nameServers"] == [
        {"address": standalone.name_server_address, "brokers": 1, "problem": None}
    ]
    (broker,) = plain["brokers"]
    assert (broker["role"], broker["brokerAddr"]) == ("master", standalone.broker.address)
    assert broker["version"].startswith("V")
    assert plain["topics"] >= 1
    assert plain["groups"] >= 1
    assert plain["topicQueues"] is None
    held = page(cluster("cluster", "describe", "--topics", "-o", "json"))["topicQueues"]
    assert {
        "topic": "DescribeHeld",
        "brokerName": "broker-a",
        "readQueueNums": 3,
        "writeQueueNums": 3,
        "perm": "RW-",
    } in held
    assert not {one["topic"] for one in held} & {"TBW102", "DefaultCluster", "broker-a"}
    text = cluster("cluster", "describe", "DefaultCluster", "--topics").out
    assert text.startswith("Name servers\n")
    assert "DescribeHeld" in text
    other = cluster("cluster", "describe", "NoCluster")
    assert other.status == 66


def test_a_name_server_that_does_not_answer_is_told(cluster: Mq, standalone: Standalone) -> None:
    both = f"{standalone.name_server_address};{DEAD}"
    found = cluster("cluster", "describe", "-n", both, "-o", "json")
    states = {one["address"]: one["problem"] for one in page(found, 1)["nameServers"]}
    assert states[standalone.name_server_address] is None
    assert states[DEAD] is not None
    assert f"name server {DEAD}: " in found.err
    nobody = cluster("cluster", "describe", "-n", DEAD)
    assert nobody.status == 69
