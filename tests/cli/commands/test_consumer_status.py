import re
from pathlib import Path

import pytest

from mq.cli.show import running_text
from mq.client.operations.subjects import members
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import (
    ConsumerRunningInfo,
    MessageQueue,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    SubscriptionData,
)
from tests.cli.members import member
from tests.cli.support import Mq


def test_each_member_s_page_goes_to_a_file_that_plain_names(
    cluster: Mq, standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Status", "-r", "2", "-w", "2")
    with member(standalone, "StatusGroup", "Status") as client_id:
        for command, line in (
            ("consumerStatus", f"1          {client_id:<40} V4_9_8              "),
            ("consumer", f"001  {client_id:<40} V4_9_8              "),
        ):
            shown = cluster(command, "-g", "StatusGroup")
            assert (shown.status, shown.err) == (0, "")
            (path,) = re.findall(r"(\d{13}/\S+)", shown.out)
            page = Path(path).read_text()
            assert page.startswith("#Consumer Properties#\n")
            assert "\n#Consumer Subscription#\n001 Topic: %RETRY%StatusGroup " in page
            assert shown.out.endswith(
                "\n\nSame subscription in the same group of consumer\n\nRebalance OK\n"
            )
            assert line in shown.out
        whole = cluster("consumerStatus", "-g", "StatusGroup", "-i", client_id).out
        assert whole.startswith("#Consumer Properties#\n")
        assert "#Consumer jstack#" not in whole
        stacks = cluster("consumerStatus", "-g", "StatusGroup", "-i", client_id, "-s").out
        assert "#Consumer jstack#\n" in stacks


def test_json_has_the_members_whole_and_writes_no_file(
    cluster: Mq, standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "StatusJson", "-r", "2", "-w", "2")
    with member(standalone, "StatusJsonGroup", "StatusJson", "TagA") as client_id:
        where = ("-g", "StatusJsonGroup", "-b", standalone.broker.address)
        found = cluster("consumerStatus", *where, "-o", "json").json
    (one,) = found["data"]
    assert one["clientId"] == client_id
    assert one["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert {item["topic"]: item["subString"] for item in one["subscriptions"]} == {
        "%RETRY%StatusJsonGroup": "*",
        "StatusJson": "TagA",
    }
    assert found["totals"] == {"sameSubscription": True, "problems": []}
    assert not [path for path in tmp_path.iterdir() if path.name.isdigit()]


def test_a_group_without_members_has_an_empty_list_of_them(cluster: Mq) -> None:
    cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "Lonely")
    done = cluster("consumerStatus", "-g", "Lonely", "-o", "json")
    assert (done.status, done.json["data"]) == (0, [])
    assert cluster("consumerStatus", "-g", "Lonely", "-i", "nobody@1").status == 66
    assert cluster("consumerStatus").status == 64


QUEUE = MessageQueue("T", "broker-a", 3)
MINUTE = 60_000
NOW = 1_000_000_000


def running(tags: str = "*", *, started: int = 0, **properties: str) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        properties={
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMER_START_TIMESTAMP": str(started),
            **properties,
        },
        subscription_set=[SubscriptionData(topic="T", sub_string=tags)],
    )


def test_members_that_disagree_are_seen_once_they_have_run_for_two_minutes() -> None:
    same = {"a": running("X"), "b": running("X")}
    other = {"a": running("X"), "b": running("Y")}
    young = {"a": running("X", started=NOW - MINUTE), "b": running("Y")}
    assert members.same_subscriptions(same, NOW)
    assert not members.same_subscriptions(other, NOW)
    assert members.same_subscriptions(young, NOW)


def test_a_queue_that_is_not_consumed_for_a_minute_is_stuck() -> None:
    info = running()
    idle = ProcessQueueInfo(cached_msg_count=2, last_consume_timestamp=NOW - MINUTE - 1)
    info.mq_table = {QUEUE: idle}
    where = "c MessageQueue [topic=T, brokerName=broker-a, queueId=3]"
    assert members.stuck("c", info, NOW) == [
        f"{where} can't consume for a while, maybe blocked, 60001ms"
    ]
    idle.cached_msg_count = 0
    assert members.stuck("c", info, NOW) == []


def test_an_ordered_queue_without_its_lock_is_stuck() -> None:
    info = running(PROP_CONSUMEORDERLY="true")
    info.mq_table = {QUEUE: ProcessQueueInfo(last_lock_timestamp=NOW - 5)}
    (line,) = members.stuck("c", info, NOW)
    assert line.endswith("can't lock for a while, 5ms")
    info.mq_table = {QUEUE: ProcessQueueInfo(locked=True, droped=True, try_unlock_times=4)}
    (line,) = members.stuck("c", info, NOW)
    assert line.endswith("unlock 4 times, still failed")


def test_what_release_5_added_is_on_the_page_where_a_member_has_it() -> None:
    info = running()
    assert "Pop Detail" not in running_text.page(info)
    info.mq_pop_table = {QUEUE: PopProcessQueueInfo(wait_ack_count=7, last_pop_timestamp=5)}
    info.user_consumer_info = {"k": "v"}
    page = running_text.page(info)
    assert "PopProcessQueueInfo [waitAckCount:7, droped:false, lastPopTimestamp:5]\n" in page
    assert f"#User Consume Info#\n{'k':<40}: v\n" in page
