import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.consumer.send_back import send_back
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import MessageQueue, SubscriptionGroupConfig
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.send import SendMessageRequestHeader
from mq.protocol.message import Message
from mq.protocol.names import TOOLS_CONSUMER_GROUP, dead_letter_topic, retry_topic
from mq.protocol.properties import encode
from tests.cli.commands.buried import bury
from tests.cli.pairs import another_broker, dead_broker, make_topic, put, running_pair
from tests.cli.support import Finished, Mq
from tests.client.scripted import routed


def rows(finished: Finished) -> list[dict[str, Any]]:
    return list(finished.json["data"])


def bodies(mq: Mq, topic: str) -> list[str]:
    finished = mq("message", "export", "-", "-t", topic)
    assert finished.status == 0, finished.err
    return [json.loads(line)["body"] for line in finished.out.splitlines()]


def test_groups_are_listed_with_counts_and_causes(cluster: Mq, standalone: Standalone) -> None:
    bury(standalone, "dlq-listed", "DlqListedA", [b"1", b"2"])
    bury(standalone, "dlq-listed", "DlqListedB", [b"3"], level=0)
    found = {row["group"]: row for row in rows(cluster("dlq", "list", "-o", "json"))}
    row = found["dlq-listed"]
    assert (row["messages"], row["retriesUsedUp"], row["givenUpEarly"]) == (3, 0, 3)
    assert row["topics"] == "DlqListedA (2), DlqListedB (1)"
    assert row["oldest"] <= row["newest"]
    counted = {
        row["group"]: row for row in rows(cluster("dlq", "list", "--scan", "0", "-o", "json"))
    }
    row = counted["dlq-listed"]
    assert (row["messages"], row["givenUpEarly"], row["topics"]) == (3, 0, "")


def test_a_letter_whose_retries_are_used_up_is_told_from_others(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "DlqUsedUp", 1)
    with BlockingSession(standalone.name_server_address) as session:
        config = SubscriptionGroupConfig(group_name="dlq-used-up", retry_max_times=1)
        run(Admin(session).update_subscription_group(standalone.broker.address, config))
    bury(standalone, "dlq-early", "DlqUsedUp", [b"x"])
    (early,) = rows(cluster("dlq", "show", "-g", "dlq-early", "-o", "json"))
    assert (early["tries"], early["cause"]) == (1, "given up early")
    with BlockingSession(standalone.name_server_address) as session:
        config = SubscriptionGroupConfig(group_name="dlq-early", retry_max_times=1)
        run(Admin(session).update_subscription_group(standalone.broker.address, config))
    (used_up,) = rows(cluster("dlq", "show", "-g", "dlq-early", "-o", "json"))
    assert used_up["cause"] == "retries used up"


def test_letters_are_shown_with_where_they_come_from(cluster: Mq, standalone: Standalone) -> None:
    bury(standalone, "dlq-shown", "DlqShown", [b"first", b"second", b"third"])
    shown = rows(cluster("dlq", "show", "-g", "dlq-shown", "-o", "json"))
    assert [row["body"] for row in shown] == ["first", "second", "third"]
    assert {row["originTopic"] for row in shown} == {"DlqShown"}
    assert shown[0]["tags"] == "tag" and shown[0]["keys"] == "key-first"
    assert [row["resentAs"] for row in shown] == [None, None, None]
    (newest,) = rows(cluster("dlq", "show", "-g", "dlq-shown", "--limit", "1", "-o", "json"))
    assert newest["body"] == "third"
    by_id = cluster("dlq", "show", "-g", "dlq-shown", "--id", shown[0]["messageId"], "-o", "json")
    assert [row["body"] for row in rows(by_id)] == ["first"]
    formatted = cluster("dlq", "show", "-g", "dlq-shown", "--format", r"%b\n")
    assert formatted.out == "first\nsecond\nthird\n"


def test_letters_are_resent_once_and_never_again(cluster: Mq, standalone: Standalone) -> None:
    bury(standalone, "dlq-resent", "DlqResent", [b"a", b"b", b"c"])
    command = ("dlq", "resend", "-g", "dlq-resent", "-o", "json")
    first = cluster(*command, "--all", "--limit", "1")
    assert first.status == 0, first.err
    assert [row["result"] for row in rows(first)] == ["sent"]
    assert first.json["totals"] == {"sent": 1, "before": 0, "failed": 0}
    others = cluster(*command, "--all", "--limit", "5")
    assert [row["result"] for row in rows(others)] == ["before", "sent", "sent"]
    again = cluster(*command, "--all")
    assert again.json["totals"] == {"sent": 0, "before": 3, "failed": 0}
    assert sorted(bodies(cluster, "DlqResent")) == ["a", "a", "b", "b", "c", "c"]
    shown = rows(cluster("dlq", "show", "-g", "dlq-resent", "-o", "json"))
    assert [row["resentAs"] for row in shown] == [row["resentAs"] for row in rows(again)]
    assert all(row["resentAs"] for row in shown)


def test_a_copy_is_the_message_it_was_and_is_no_retry(cluster: Mq, standalone: Standalone) -> None:
    bury(standalone, "dlq-copy", "DlqCopy", [b"body"])
    (letter,) = rows(cluster("dlq", "show", "-g", "dlq-copy", "-o", "json"))
    sent = cluster("dlq", "resend", "-g", "dlq-copy", "--id", letter["messageId"], "-o", "json")
    assert sent.status == 0, sent.err
    exported = cluster("message", "export", "-", "-t", "DlqCopy").out.splitlines()
    original, copy = (json.loads(line) for line in exported)
    assert copy["messageId"] == original["messageId"] == letter["messageId"]
    assert copy["reconsumeTimes"] == 0
    mark = copy["properties"].pop("MQ_RESENT_FROM")
    assert mark == letter["offsetId"]
    for name in ("WAIT", "CLUSTER", "MSG_REGION", "TRACE_ON"):
        original["properties"].pop(name, None)
        copy["properties"].pop(name, None)
    assert copy["properties"] == original["properties"]


def test_a_letter_of_which_a_copy_fails_again_is_another_letter(
    cluster: Mq, standalone: Standalone
) -> None:
    bury(standalone, "dlq-twice", "DlqTwice", [b"again"])
    resend = ("dlq", "resend", "-g", "dlq-twice", "--all", "-o", "json")
    assert cluster(*resend).json["totals"]["sent"] == 1
    with BlockingSession(standalone.name_server_address) as session:
        (queue,) = run(PullConsumer(session).queues("DlqTwice"))

    async def give_up() -> None:
        async with Session(standalone.name_server_address) as session:
            async for message in PullConsumer(session).read(queue, 1):
                await send_back(
                    session, "dlq-twice", queue, message, delay_level=-1, max_reconsume_times=0
                )

    asyncio.run(give_up())
    assert cluster(*resend).json["totals"] == {"sent": 1, "before": 1, "failed": 0}
    assert len(bodies(cluster, "DlqTwice")) == 3


def test_a_dry_run_resends_nothing(cluster: Mq, standalone: Standalone) -> None:
    bury(standalone, "dlq-dry", "DlqDry", [b"x"])
    shown = cluster("dlq", "resend", "-g", "dlq-dry", "--all", "--dry-run")
    assert shown.status == 0, shown.err
    assert "DlqDry" in shown.out and "LOCK_BATCH_MQ" not in shown.out
    assert bodies(cluster, "DlqDry") == ["x"]


def test_two_do_not_resend_at_the_same_time(cluster: Mq, standalone: Standalone) -> None:
    bury(standalone, "dlq-locked", "DlqLocked", [b"x"])
    queue = MessageQueue(dead_letter_topic("dlq-locked"), "broker-a", 0)
    with BlockingSession(standalone.name_server_address) as session:
        admin, address = Admin(session), standalone.broker.address
        run(admin.lock_queues(address, TOOLS_CONSUMER_GROUP, "somebody", [queue]))
        refused = cluster("dlq", "resend", "-g", "dlq-locked", "--all")
        assert refused.status == 75
        assert "another client is resending the dead letters of dlq-locked" in refused.err
        run(admin.unlock_queues(address, TOOLS_CONSUMER_GROUP, "somebody", [queue]))
    assert cluster("dlq", "resend", "-g", "dlq-locked", "--all").status == 0


def test_a_copy_lies_where_its_letter_lies_whichever_broker_goes_away(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    texts = [b"%d" % number for number in range(6)]
    bury(standalone, "dlq-away", "DlqAway", texts)
    resend = ("dlq", "resend", "-g", "dlq-away", "--all", "-o", "json")
    with another_broker(standalone, "broker-b", tmp_path / "b") as other:
        make_topic(standalone, "DlqAway", 4, at=other)
        first = cluster(*resend)
        assert first.json["totals"] == {"sent": 6, "before": 0, "failed": 0}, first.err
    again = cluster(*resend)
    assert again.json["totals"] == {"sent": 0, "before": 6, "failed": 0}, again.err
    assert len(bodies(cluster, "DlqAway")) == 2 * 6


def test_a_letter_whose_broker_takes_no_copy_goes_to_another_only_if_it_may(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    bury(standalone, "dlq-drained", "DlqDrained", [b"x"])
    resend = ("dlq", "resend", "-g", "dlq-drained", "--all", "-o", "json")
    address = standalone.broker.address
    with another_broker(standalone, "broker-b", tmp_path / "b") as other:
        make_topic(standalone, "DlqDrained", 1, at=other)
        drained = cluster("updateTopicPerm", "-b", address, "-t", "DlqDrained", "-p", "4")
        assert drained.status == 0, drained.err
        refused = cluster(*resend)
        assert refused.status == 1
        assert refused.json["totals"] == {"sent": 0, "before": 0, "failed": 1}
        assert "broker-a, where the dead letter lies, takes no messages of topic" in refused.err
        assert "--any-broker" in refused.err
        sent = cluster(*resend, "--any-broker")
        assert sent.json["totals"] == {"sent": 1, "before": 0, "failed": 0}, sent.err
        assert cluster(*resend).json["totals"] == {"sent": 0, "before": 1, "failed": 0}


def forge(pair: Standalone, group: str, topic: str, body: bytes, **properties: str) -> None:
    """Create a dead letter whose sender claims a topic of origin."""
    make_topic(pair, topic, 1)

    async def send() -> None:
        async with Session(pair.name_server_address) as session:
            config = SubscriptionGroupConfig(group_name=group)
            await Admin(session).update_subscription_group(pair.broker.address, config)
            header = SendMessageRequestHeader(
                producer_group="P",
                topic=retry_topic(group),
                default_topic="TBW102",
                default_topic_queue_nums=1,
                queue_id=0,
                sys_flag=0,
                born_timestamp=1700000000000,
                flag=0,
                properties=encode({"RETRY_TOPIC": topic, **properties}),
                reconsume_times=99,
            )
            fields = header.encode()
            await session.call(pair.broker.address, Command(RequestCode.SEND_MESSAGE, fields, body))
            await routed(session, dead_letter_topic(group))

    asyncio.run(send())


def test_a_letter_that_was_never_in_its_topic_is_not_sent_there(
    cluster: Mq, standalone: Standalone
) -> None:
    forge(standalone, "dlq-forged", "DlqForged", b"pay", UNIQ_KEY="7F00FE")
    command = ("dlq", "resend", "-g", "dlq-forged", "--all", "-o", "json")
    refused = cluster(*command)
    assert (refused.status, refused.json["totals"]["failed"]) == (1, 1)
    assert "topic DlqForged holds no message with the id and the content" in refused.err
    assert bodies(cluster, "DlqForged") == []
    assert cluster(*command, "--unverified").json["totals"]["sent"] == 1
    assert bodies(cluster, "DlqForged") == ["pay"]


def test_a_letter_with_the_id_of_another_message_is_not_sent_in_its_name(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "DlqTaken", 1)
    put(standalone, [Message("DlqTaken", b"pay 1")], 0)
    exported = cluster("message", "export", "-", "-t", "DlqTaken").out
    unique = json.loads(exported)["messageId"]
    forge(standalone, "dlq-taken", "DlqTaken", b"pay 2", UNIQ_KEY=unique)
    refused = cluster("dlq", "resend", "-g", "dlq-taken", "--all", "-o", "json")
    assert refused.json["totals"] == {"sent": 0, "before": 0, "failed": 1}
    assert bodies(cluster, "DlqTaken") == ["pay 1"]


def test_a_forged_mark_does_not_keep_a_letter_from_being_resent(
    cluster: Mq, standalone: Standalone
) -> None:
    bury(standalone, "dlq-marked", "DlqMarked", [b"x"])
    (letter,) = rows(cluster("dlq", "show", "-g", "dlq-marked", "-o", "json"))
    forged = Message("DlqMarked", b"y")
    forged.system["UNIQ_KEY"] = letter["messageId"]
    forged.system["MQ_RESENT_FROM"] = letter["offsetId"]
    put(standalone, [forged], 0)
    (shown,) = rows(cluster("dlq", "show", "-g", "dlq-marked", "-o", "json"))
    assert shown["resentAs"] is None
    sent = cluster("dlq", "resend", "-g", "dlq-marked", "--all", "-o", "json")
    assert sent.json["totals"] == {"sent": 1, "before": 0, "failed": 0}


def test_a_letter_whose_topic_is_gone_fails_by_itself(cluster: Mq, standalone: Standalone) -> None:
    bury(standalone, "dlq-gone", "DlqGone", [b"lost"])
    bury(standalone, "dlq-gone", "DlqStays", [b"kept"])
    assert cluster("deleteTopic", "-c", "DefaultCluster", "-t", "DlqGone").status == 0
    finished = cluster("dlq", "resend", "-g", "dlq-gone", "--all", "-o", "json")
    assert finished.status == 1
    assert {row["topic"]: row["result"] for row in rows(finished)} == {
        "DlqGone": "failed",
        "DlqStays": "sent",
    }
    assert "DlqGone: no name server knows it" in finished.err


def test_without_an_index_the_user_is_warned(tmp_path: Path) -> None:
    with running_pair({"messageIndexEnable": "false"}) as pair:
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        bury(pair, "dlq-unindexed", "DlqUnindexed", [b"x"])
        command = ("dlq", "resend", "-g", "dlq-unindexed", "--all")
        finished = mq(*command)
        assert finished.status == 1
        assert "--unverified" in finished.err
        finished = mq(*command, "--unverified")
        assert finished.status == 1
        assert "cannot be looked up" in finished.err


def test_letters_are_exported_as_messages_are(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    bury(standalone, "dlq-exported", "DlqExported", [b"1", b"2"])
    file = tmp_path / "letters.jsonl"
    finished = cluster("dlq", "export", str(file), "-g", "dlq-exported")
    assert finished.status == 0, finished.err
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["body"] for line in lines] == ["1", "2"]
    assert {line["properties"]["RETRY_TOPIC"] for line in lines} == {"DlqExported"}


def test_an_export_stays_while_name_servers_do_not_know_where_the_letters_are(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    """A newly started one knows no topic yet: the file was emptied, with success."""
    bury(standalone, "dlq-unrouted", "DlqUnrouted", [b"1"])
    file = tmp_path / "letters.jsonl"
    assert cluster("dlq", "export", str(file), "-g", "dlq-unrouted").status == 0
    written = file.read_text()
    topic = dead_letter_topic("dlq-unrouted")
    with BlockingSession(standalone.name_server_address) as session:
        run(Admin(session).delete_topic_in_name_server(standalone.name_server_address, topic))
    for command in (("export", str(file)), ("show",), ("resend", "--all")):
        finished = cluster("dlq", *command, "-g", "dlq-unrouted")
        assert (finished.status, finished.out) == (66, ""), command
        assert "no name server has it yet" in finished.err
    assert file.read_text() == written


def test_a_dead_broker_is_reported_and_the_others_letters_listed(tmp_path: Path) -> None:
    with running_pair() as pair:
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        bury(pair, "dlq-half", "DlqHalf", [b"x"])
        with dead_broker(pair.name_server_address, dead_letter_topic("dlq-half"), "DlqHalf"):
            for command in (("list",), ("show", "-g", "dlq-half")):
                finished = mq("dlq", *command, "-o", "json")
                assert finished.status == 1
                assert len(rows(finished)) == 1
                assert "127.0.0.1:1: " in finished.err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("show", "-g", "nobody"), 66, "consumer group nobody has no dead letters"),
        (("show", "-g", "a b"), 64, "'a b'"),
        (("show", "-g", "dlq-bad", "--id", "none"), 66, "no dead letter has the id none"),
        (("show", "-g", "dlq-bad", "--limit", "0"), 64, "--limit 0"),
        (("list", "--scan", "-1"), 64, "--scan -1"),
        (("resend", "-g", "dlq-bad"), 64, "one of --all and --id is required"),
        (("resend", "-g", "dlq-bad", "--all", "--id", "x"), 64, "one of --all and --id"),
        (("resend", "-g", "dlq-bad", "--all", "--limit", "0"), 64, "--limit 0"),
        (("resend", "-g", "nobody", "--all"), 66, "consumer group nobody has no dead letters"),
        (("export", "-", "-g", "nobody"), 66, "consumer group nobody has no dead letters"),
        (("list", "-n", "127.0.0.1:1"), 69, "cannot reach 127.0.0.1:1"),
    ],
)
def test_what_does_not_fit_is_refused(
    cluster: Mq, standalone: Standalone, arguments: tuple[str, ...], status: int, message: str
) -> None:
    bury(standalone, "dlq-bad", "DlqBad", [b"x"])
    finished = cluster("dlq", *arguments)
    assert (finished.status, finished.out) == (status, "")
    assert message in finished.err
