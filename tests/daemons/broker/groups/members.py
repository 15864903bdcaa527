"""Heartbeats of members, for tests of handlers."""

from mq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SnodeIdentity,
    SubscriptionData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.peer import Peer

HEARTBEAT = HeartbeatData(client_id="snode-a", snode_data=SnodeIdentity(snode_name="snode-a"))


def heartbeat(
    client_id: str, group: str = "g", *topics: str, version: int = 1, wanted: str = "*"
) -> bytes:
    subscriptions = [
        SubscriptionData(topic=topic, sub_string=wanted, sub_version=version) for topic in topics
    ]
    return HeartbeatData(
        client_id=client_id,
        producer_data_set=[ProducerData(group_name="P")],
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                subscription_data_set=subscriptions,
            )
        ],
    ).encode()


async def beat(
    peer: Peer,
    client_id: str,
    *topics: str,
    group: str = "g",
    version: int = 1,
    wanted: str = "*",
) -> None:
    body = heartbeat(client_id, group, *topics, version=version, wanted=wanted)
    reply = await peer.ask(RequestCode.HEART_BEAT, None, body)
    assert reply.code == ResponseCode.SUCCESS, reply
