from mq.client.admin import Admin
from mq.client.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.names import retry_topic
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


def test_an_unknown_group_is_not_found(cluster: Mq) -> None:
    finished = cluster("consumerProgress", "-g", "Nobody")
    assert (finished.status, finished.out) == (66, "")
    assert finished.err == (
        "mq consumerProgress: no name server knows a consumer group Nobody\n"
        "hint: list the groups there are: mq consumerProgress\n"
    )


def test_an_illegal_group_is_refused(cluster: Mq) -> None:
    assert cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "a b").status == 64


def test_a_retry_policy_that_is_no_json_shows_one(cluster: Mq) -> None:
    finished = cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "G", "-p", "daily")
    assert finished.status == 64
    assert "customizedRetryPolicy" in finished.err
