from mq.daemons.standalone import Standalone
from tests.cli.connected import connected
from tests.cli.support import Mq


def fill(cluster: Mq, topic: str) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "1", "-w", "1")
    for _ in range(3):
        assert cluster("sendMessage", "-t", topic, "-p", "x", "-c", "TagA").status == 0


def test_queue_entries_are_shown_from_an_index(cluster: Mq, standalone: Standalone) -> None:
    fill(cluster, "Entered")
    shown = cluster("queryCq", "-t", "Entered", "-q", "0", "-i", "1", "-o", "json").json
    assert [row["index"] for row in shown["data"]] == [1, 2]
    assert shown["totals"] == {"maxQueueIndex": 3, "minQueueIndex": 0}
    assert {row["tagsCode"] for row in shown["data"]} == {2598919}  # "TagA".hashCode()
    plain = cluster("queryCq", "-t", "Entered", "-q", "0", "-i", "1", "-c", "1").out
    assert plain.startswith("Queue data: \nmax: 3, min: 0\n======")
    assert plain.count("idx: ") == 1
    at = ("-b", standalone.broker.address)
    with connected(standalone, group="Matching", topic="Entered"):
        matched = cluster("queryCq", "-t", "Entered", "-q", "0", "-i", "0", "-g", "Matching", *at)
    assert matched.out.startswith("Subscription data: \n{")
    assert '\n\t"subString":"*",\n' in matched.out
    beyond = cluster("queryCq", "-t", "Entered", "-q", "0", "-i", "9")
    assert (beyond.status, beyond.out) == (66, "")


def test_wrong_numbers_are_refused(cluster: Mq) -> None:
    for words in (("-q", "-1", "-i", "0"), ("-q", "0", "-i", "-1"), ("-q", "0", "-i", "x")):
        assert cluster("queryCq", "-t", "T", *words).status == 64
    assert cluster("queryCq", "-t", "T", "-q", "0", "-i", "0", "-c", "0").status == 64


def test_a_broker_without_rocksdb_is_said_to_be_older(cluster: Mq, standalone: Standalone) -> None:
    finished = cluster("checkRocksdbCqWriteProgress", "-c", "DefaultCluster")
    assert (finished.status, finished.out) == (69, "")
    assert finished.err.splitlines()[0] == (
        f"mq checkRocksdbCqWriteProgress: {standalone.broker.address}: the broker is older than "
        "RocketMQ 5, which checkRocksdbCqWriteProgress needs"
    )
    spelled = ("checkRocksdbCqWriteProgress", "-c", "Nowhere", "--nameserverAddr")
    elsewhere = cluster.having({"NAMESRV_ADDR": "127.0.0.1:1"})
    assert elsewhere(*spelled, standalone.name_server_address).status == 66
    assert cluster(*spelled[:-1], "-n", "127.0.0.1:1").status == 69
    assert cluster(*spelled, "nowhere").status == 64
