from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.names import retry_topic
from tests.cli.pairs import DEAD, dead_broker
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


def test_a_group_without_a_retry_topic_is_behind_all_the_same(
    cluster: Mq, standalone: Standalone
) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Awaited", "-r", "1", "-w", "1")
    cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "Waited")
    for _ in range(3):
        assert cluster("sendMessage", "-t", "Awaited", "-p", "x").status == 0
    with BlockingSession(standalone.name_server_address) as session:
        address = standalone.broker.address
        run(Admin(session).update_consumer_offset(address, "Waited", "Awaited", 0, 1))
    (row,) = cluster("statsAll", "-t", "Awaited", "-o", "json").json["data"]
    assert (row["group"], row["accumulation"]) == ("Waited", 2)
    line = cluster("statsAll", "-t", "Awaited").out.splitlines()[1].split()
    assert line[:3] == ["Awaited", "Waited", "0"]  # as mqadmin 4.9 has it


def test_how_far_a_group_is_behind_is_not_claimed_where_a_broker_does_not_say(
    cluster: Mq, standalone: Standalone
) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Half", "-r", "1", "-w", "1")
    cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "Halved")
    assert cluster("sendMessage", "-t", "Half", "-p", "x").status == 0
    with BlockingSession(standalone.name_server_address) as session:
        address = standalone.broker.address
        run(Admin(session).update_consumer_offset(address, "Halved", "Half", 0, 0))
    with dead_broker(standalone.name_server_address, retry_topic("Halved")):
        finished = cluster("statsAll", "-t", "Half", "-o", "json")
    assert [row["accumulation"] for row in finished.json["data"]] == [None]
    assert finished.status == 1
    assert f"group Halved: {DEAD}: Connection refused" in finished.err
    with dead_broker(standalone.name_server_address, "Half"):
        finished = cluster("statsAll", "-t", "Half", "-o", "json")
    assert finished.status == 1
    assert f"TOPIC_PUT_NUMS of Half: {DEAD}: Connection refused" in finished.err
