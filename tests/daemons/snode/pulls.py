"""Heartbeats and pulls of a consumer at a snode."""

from mq.protocol.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.acl.guarded import pull_fields
from tests.daemons.peer import Peer
from tests.daemons.snode.world import ENODE

VERSION = 100


def heartbeat(
    group: str = "g",
    topic: str = "T",
    expression: str = "*",
    model: MessageModel = MessageModel.CLUSTERING,
    client: str = "c1",
) -> bytes:
    subscription = SubscriptionData(topic=topic, sub_string=expression, sub_version=VERSION)
    data = ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        subscription_data_set=[subscription],
    )
    return HeartbeatData(client_id=client, consumer_data_set=[data]).encode()


def pull(group: str = "g", **changed: str) -> dict[str, str]:
    fields = pull_fields("T", group)
    del fields["subscription"]
    version = {"sysFlag": "0", "subVersion": str(VERSION), "enodeName": ENODE}
    return {**fields, **version, **changed}


async def beat(peer: Peer, client: str, group: str = "g") -> None:
    reply = await peer.ask(RequestCode.HEART_BEAT, None, heartbeat(group, client=client))
    assert reply.code == ResponseCode.SUCCESS, reply
