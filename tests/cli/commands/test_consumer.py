import time
from contextlib import ExitStack
from pathlib import Path

from mq.client.admin import Admin
from mq.client.options import Intervals
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from mq.protocol.names import retry_topic
from tests.cli.members import member
from tests.cli.pairs import DEAD, another_broker, dead_broker, make_topic, put, running_pair
from tests.cli.support import Mq


def test_a_group_is_made_with_what_was_said(cluster: Mq, standalone: Standalone) -> None:
    made = cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "Made", "-r", "3", "-s", "false")
    assert made.status == 0
    assert "retryMaxTimes=3" in made.out
    with BlockingSession(standalone.name_server_address) as session:
        table = run(Admin(session).subscription_groups(standalone.broker.address))
    config = table.subscription_group_table["Made"]
    assert (config.retry_max_times, config.consume_enable) == (3, False)


def test_progress_of_a_group_counts_what_waits(cluster: Mq, standalone: Standalone) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Behind", "-r", "1", "-w", "1")
    cluster("updateTopic", "-c", "DefaultCluster", "-t", retry_topic("Slow"))
    cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "Slow")
    for _ in range(3):
        assert cluster("sendMessage", "-t", "Behind", "-p", "x").status == 0
    with BlockingSession(standalone.name_server_address) as session:
        address = standalone.broker.address
        run(Admin(session).update_consumer_offset(address, "Slow", "Behind", 0, 1))
    document = cluster("consumerProgress", "-g", "Slow", "-o", "json").json
    assert document["totals"]["diffTotal"] == 2
    (row,) = [item for item in document["data"] if item["topic"] == "Behind"]
    assert (row["brokerOffset"], row["consumerOffset"], row["diff"]) == (3, 1, 2)
    groups = cluster("consumerProgress", "-o", "json").json["data"]
    (slow,) = [item for item in groups if item["group"] == "Slow"]
    assert (slow["consumers"], slow["diffTotal"], slow["version"]) == (0, 2, None)


def test_a_group_is_not_told_to_keep_up_or_to_be_offline_where_a_broker_does_not_say(
    cluster: Mq, standalone: Standalone
) -> None:
    with dead_broker(standalone.name_server_address, retry_topic("Unsaid"), name="a"):
        finished = cluster("consumerProgress", "-o", "json")
        plain = cluster("consumerProgress").out
    (row,) = [item for item in finished.json["data"] if item["group"] == "Unsaid"]
    assert (row["consumers"], row["consumeTps"], row["diffTotal"]) == (None, None, None)
    assert finished.status == 1
    assert f"lag of group Unsaid: {DEAD}: Connection refused" in finished.err
    assert f"members of group Unsaid: {DEAD}: Connection refused" in finished.err
    (line,) = [line for line in plain.splitlines() if line.startswith("Unsaid")]
    assert line.split() == ["Unsaid", "N/A", "N/A", "N/A", "N/A"]


def test_an_unknown_group_is_not_found(cluster: Mq) -> None:
    finished = cluster("consumerProgress", "-g", "Nobody")
    assert (finished.status, finished.out) == (66, "")
    assert finished.err == (
        "mq consumerProgress: no name server has consumer group Nobody\n"
        "hint: list groups: mq consumerProgress\n"
    )


def test_an_illegal_group_is_refused(cluster: Mq) -> None:
    assert cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "a b").status == 64


def test_a_retry_policy_that_is_no_json_shows_one(cluster: Mq) -> None:
    finished = cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "G", "-p", "daily")
    assert finished.status == 64
    assert "customizedRetryPolicy" in finished.err


def test_progress_misses_a_broker_that_only_the_members_know(tmp_path: Path) -> None:
    with running_pair() as pair:
        mq = Mq(tmp_path, {"NAMESRV_ADDR": pair.name_server_address})
        make_topic(pair, "Held")
        progress = ("consumerProgress", "-g", "holding")
        with ExitStack() as until:
            with another_broker(pair, "broker-b", tmp_path / "second") as second:
                make_topic(pair, "Held", at=second)
                for broker in (pair.broker, second):
                    put(pair, [Message("Held", b"x")], 0, broker=broker.settings.broker.broker_name)
                    with BlockingSession(pair.name_server_address) as session:
                        admin = Admin(session)
                        run(admin.update_consumer_offset(broker.address, "holding", "Held", 0, 0))
                # It gets no notice from a name server that the broker is gone.
                deaf = Intervals(routes=3600)
                client = until.enter_context(member(pair, "holding", "Held", intervals=deaf))
                wait_for_queues(mq, 4)
                there = mq(*progress)
                assert (there.status, there.err) == (0, "")
            away = mq(*progress, "-o", "json")
            assert away.status == 1
            (failure,) = away.json["failures"]
            assert failure.startswith("broker broker-b: not registered now, its queues are ")
            assert f"Held 0 by {client}" in failure and f"Held 1 by {client}" in failure
            assert {row["brokerName"] for row in away.json["data"]} == {"broker-a"}
            other = mq(*progress, "-t", "Other")
            assert "broker-b" not in other.err


def wait_for_queues(mq: Mq, count: int) -> None:
    """Wait until the members of the group have this number of the topic's queues, and have
    committed.
    """
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        rows = mq("consumerProgress", "-g", "holding", "-t", "Held", "-s", "true", "-o", "json")
        if rows.status == 0:
            held = [row for row in rows.json["data"] if row["client"] and row["topic"] == "Held"]
            if len(held) == count:
                return
        time.sleep(0.05)  # members commit nothing when they take a queue
    raise AssertionError("the member does not get its queues")


def test_a_group_that_only_committed_offsets_is_shown_and_cloned(
    cluster: Mq, standalone: Standalone
) -> None:
    make_topic(standalone, "Commits", queues=1)
    put(standalone, [Message("Commits", b"1"), Message("Commits", b"2")])
    with BlockingSession(standalone.name_server_address) as session:
        address = standalone.broker.address
        run(Admin(session).update_consumer_offset(address, "Committed", "Commits", 0, 1))
        assert run(Admin(session).whole_consume_stats("Committed")).offset_table
    for command in ("consumerProgress", "offset list"):
        document = cluster(*command.split(" "), "-g", "Committed", "-o", "json").json
        (row,) = document["data"]
        assert (row["topic"], row["brokerOffset"], row["consumerOffset"]) == ("Commits", 2, 1)
        assert document["totals"]["diffTotal"] == 1
    groups = cluster("consumerProgress", "-o", "json").json["data"]
    assert [item["diffTotal"] for item in groups if item["group"] == "Committed"] == [1]
    assert cluster("consumerStatus", "-g", "Committed").status == 0
    cloned = cluster("cloneGroupOffset", "-s", "Committed", "-d", "Copy", "-t", "Commits")
    assert cloned.status == 0
    (row,) = cluster("consumerProgress", "-g", "Copy", "-o", "json").json["data"]
    assert row["consumerOffset"] == 1
