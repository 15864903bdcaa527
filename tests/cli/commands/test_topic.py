import pytest

from tests.cli.pairs import dead_broker, running_pair
from tests.cli.support import Mq


def names(cluster: Mq) -> set[str]:
    return {row["topic"] for row in cluster("topicList", "-o", "json").json["data"]}


def make(cluster: Mq, name: str, *options: str) -> None:
    assert cluster("updateTopic", "-c", "DefaultCluster", "-t", name, *options).status == 0


def test_a_topic_that_is_made_is_listed_until_it_is_deleted(cluster: Mq) -> None:
    make(cluster, "Born")
    assert "Born" in names(cluster)
    deleted = cluster("deleteTopic", "-c", "DefaultCluster", "-t", "Born")
    assert deleted.out == (
        "delete topic [Born] from cluster [DefaultCluster] success.\n"
        "delete topic [Born] from NameServer success.\n"
    )
    assert "Born" not in names(cluster)


def test_route_and_status_tell_queues_in_every_format(cluster: Mq) -> None:
    make(cluster, "Routed", "-r", "2", "-w", "3", "-p", "6")
    route = cluster("topicRoute", "-t", "Routed", "-o", "json").json
    (row,) = route["data"]
    assert (row["brokerName"], row["readQueueNums"], row["writeQueueNums"]) == ("broker-a", 2, 3)
    assert route["totals"] == {"readQueueNums": 2, "writeQueueNums": 3}
    status = cluster("topicStatus", "-t", "Routed", "-o", "csv").out.splitlines()
    assert status[0] == "brokerName,queueId,minOffset,maxOffset,lastUpdated"
    assert status[1:] == [f"broker-a,{number},0,0," for number in range(3)]
    table = cluster("topicStatus", "-t", "Routed", terminal=True, NO_COLOR="1").out
    assert "Max offset" in table
    assert "#Max Offset" not in table


def test_the_cluster_of_a_topic_is_found(cluster: Mq) -> None:
    make(cluster, "Housed")
    assert cluster("topicClusterList", "-t", "Housed").out == "DefaultCluster\n"


def test_an_unknown_topic_is_not_found(cluster: Mq) -> None:
    for command in ("topicRoute", "topicStatus", "topicClusterList"):
        finished = cluster(command, "-t", "Nowhere")
        assert (finished.status, finished.out) == (66, "")
        assert finished.err == (
            f"mq {command}: topic Nowhere: no name server knows it\n"
            "hint: list topics: mq topicList\n"
        )


def test_an_unknown_cluster_names_the_known_ones(cluster: Mq) -> None:
    for command in (("updateTopic", "-t", "T"), ("deleteTopic", "-t", "T")):
        finished = cluster(*command, "-c", "NoCluster")
        assert (finished.status, finished.out) == (66, "")
        assert finished.err == (
            f"mq {command[0]}: no cluster 'NoCluster' (known: DefaultCluster)\n"
            "hint: see: mq clusterList\n"
        )


def test_an_illegal_name_is_refused_before_anything_is_sent(cluster: Mq) -> None:
    finished = cluster("updateTopic", "-c", "DefaultCluster", "-t", "../x")
    assert (finished.status, finished.out) == (64, "")
    assert "../x" in finished.err


def test_o_is_the_command_s_own_flag_where_it_has_one(cluster: Mq) -> None:
    made = cluster("updateTopic", "-c", "DefaultCluster", "-t", "Ordered", "-o", "true")
    assert made.out.endswith("order=true]")
    again = cluster("updateTopic", "-c", "DefaultCluster", "-t", "Ordered", "--output", "json")
    assert again.json["data"][0]["order"] is False
    wrong = cluster("updateTopic", "-c", "DefaultCluster", "-t", "Ordered", "-o", "json")
    assert wrong.status == 64
    assert "-o/--order: 'json' is not one of true, false" in wrong.err


def test_the_only_cluster_is_the_one_that_is_meant(cluster: Mq) -> None:
    assert cluster("topic", "create", "InTheOnly").out.startswith("create topic to ")
    assert cluster("topicRoute", "InTheOnly").status == 0
    made = cluster("group", "create", "in-the-only")
    assert made.out.startswith("create subscription group to ")
    config = cluster("broker", "config", "-o", "json")
    assert (
        config.json["data"]
        == cluster("getBrokerConfig", "-c", "DefaultCluster", "-o", "json").json["data"]
    )
    assert cluster("brokerStatus").out.startswith("127.0.0.1:")


def test_what_is_there_is_changed_only_where_one_says(cluster: Mq) -> None:
    assert cluster("updateTopic", "-c", "DefaultCluster", "-t", "Wide", "-r", "16").status == 0
    refused = cluster("topic", "create", "Wide")
    assert (refused.status, refused.out) == (64, "")
    assert "Wide already exists, with readQueueNums 16 at 127.0.0.1:" in refused.err
    assert "hint: to change it, choose the cluster: -c DefaultCluster" in refused.err
    assert cluster("topic", "create", "Wide", "-r", "16").status == 0  # nothing changes
    assert cluster("group", "create", "patient", "-r", "3").status == 0
    assert "patient already exists" in cluster("group", "create", "patient").err


def test_what_is_deleted_stays_at_a_broker_without_a_master_and_that_is_told(mq: Mq) -> None:
    """It comes back with the master."""
    with running_pair() as pair:
        cluster = mq.having({"NAMESRV_ADDR": pair.name_server_address})
        assert cluster("updateTopic", "-c", "DefaultCluster", "-t", "Kept").status == 0
        assert cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "kept").status == 0
        with dead_broker(pair.name_server_address, "Kept", name="broker-b", number=1):
            for words in (("deleteTopic", "-t", "Kept"), ("deleteSubGroup", "-g", "kept")):
                finished = cluster(*words, "-c", "DefaultCluster")
                assert finished.status == 1, words
                assert "broker broker-b: it has no master now, and keeps what" in finished.err


def test_of_several_clusters_one_has_to_be_named(mq: Mq) -> None:
    with running_pair() as pair, dead_broker(pair.name_server_address, "Any", cluster="Second"):
        cluster = mq.having({"NAMESRV_ADDR": pair.name_server_address})
        for words in (("topic", "create", "T"), ("group", "create", "G"), ("broker", "status")):
            finished = cluster(*words)
            assert (finished.status, finished.out) == (64, "")
            assert "several clusters: DefaultCluster, Second" in finished.err
            assert "hint: choose one: -c DefaultCluster" in finished.err


def test_not_both_broker_and_cluster_may_be_given(cluster: Mq) -> None:
    both = cluster("updateTopic", "-t", "T", "-b", "127.0.0.1:1", "-c", "C")
    assert both.status == 64
    assert "only one of -b/--brokerAddr and -c/--clusterName may be given" in both.err


@pytest.mark.parametrize("text", ["a=b", "+a", "-a=b", "+a=b,+a=c", "+a=", ""])
def test_attributes_that_cannot_be_are_refused(text: str, cluster: Mq) -> None:
    finished = cluster("updateTopic", "-c", "DefaultCluster", "-t", "T", f"-a{text},")
    assert finished.status == 64
    assert "--attributes: " in finished.err
