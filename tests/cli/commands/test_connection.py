from mq.cli.runtime.status import Status
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import BrokerData, TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message_id import encode_offset_id
from tests.cli.connected import connected
from tests.cli.scripted import daemon
from tests.cli.support import Mq


def test_connected_consumers_and_their_subscriptions_are_shown(
    cluster: Mq, standalone: Standalone
) -> None:
    with connected(standalone, group="Shown", topic="ShownTopic", client_id="me@7"):
        at = ("consumerConnection", "-g", "Shown", "-b", standalone.broker.address)
        plain = cluster(*at).out.splitlines()
        data = cluster(*at, "-o", "json").json["data"]
        table = cluster(*at, terminal=True, NO_COLOR="1")
    assert plain[1].startswith("me@7                                 127.0.0.1:")
    assert plain[1].endswith(" PYTHON     V4_9_8")
    assert plain[2:4] == ["", "Below is subscription:"]
    assert "ShownTopic           *" in plain
    assert plain[-3:] == [
        "ConsumeType: CONSUME_PASSIVELY",
        "MessageModel: CLUSTERING",
        "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET",
    ]
    assert [item["clientId"] for item in data["consumers"]] == ["me@7"]
    assert {"topic": "ShownTopic", "expression": "*"} in data["subscriptions"]
    assert data["messageModel"] == "CLUSTERING"
    assert "subscribes to ShownTopic: *" in table.out + table.err


def test_a_group_that_is_not_connected_is_not_found(cluster: Mq, standalone: Standalone) -> None:
    address = standalone.broker.address
    at_broker = cluster("consumerConnection", "-g", "Absent", "-b", address)
    assert (at_broker.status, at_broker.out) == (66, "")
    assert cluster("consumerConnection", "-g", "Absent").status == 66
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Unwritten")
    producers = cluster("producerConnection", "-g", "Absent", "-t", "Unwritten")
    assert (producers.status, producers.out) == (66, "")


def test_connected_producers_are_shown(cluster: Mq, standalone: Standalone) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Written")
    with connected(standalone, group="Writers", client_id="writer@1"):
        one = cluster("producerConnection", "-g", "Writers", "-t", "Written")
        every = cluster("producer", "-b", standalone.broker.address)
        rows = cluster("producer", "-b", standalone.broker.address, "-o", "json").json["data"]
    assert one.out.startswith("0001  writer@1                         127.0.0.1:")
    assert "producer group (Writers) instance : clientId=writer@1,remoteIP=/127.0.0.1:" in every.out
    (row,) = [item for item in rows if item["group"] == "Writers"]
    assert (row["clientId"], row["language"], row["version"]) == ("writer@1", "PYTHON", "V4_9_8")
    assert row["clientAddr"].startswith("127.0.0.1:")
    assert row["lastUpdate"].endswith("Z")


def refusing(code: RequestCode) -> dict[RequestCode, Handler]:
    """A cluster of Java's 4.9 that permits this to no client."""

    def route(request: Command, channel: Channel) -> Command:
        host, port = channel.local_address
        data = BrokerData(cluster="c", broker_name="b", broker_addrs={0: f"{host}:{port}"})
        return request.reply(body=TopicRouteData(broker_datas=[data]).encode())

    def refuse(request: Command, channel: Channel) -> Command:
        remark = "org.apache.rocketmq.acl.common.AclException: Check signature failed"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)

    return {RequestCode.GET_ROUTEINFO_BY_TOPIC: route, code: refuse}


def test_a_refusal_is_not_told_as_a_group_without_producers(mq: Mq) -> None:
    with daemon(refusing(RequestCode.GET_PRODUCER_CONNECTION_LIST)) as address:
        finished = mq("producerConnection", "-g", "shop", "-t", "Orders", "-n", address)
    assert finished.status not in (0, Status.NOT_FOUND)
    assert "AclException: Check signature failed" in finished.err


def test_a_refusal_is_not_told_as_a_message_that_is_not_there(mq: Mq) -> None:
    with daemon(refusing(RequestCode.VIEW_MESSAGE_BY_ID)) as address:
        port = int(address.split(":")[1])
        place = encode_offset_id("127.0.0.1", port, 0)
        finished = mq("queryMsgById", "-i", place, "-n", address)
    assert finished.status not in (0, Status.NOT_FOUND)
    assert "AclException: Check signature failed" in finished.err
