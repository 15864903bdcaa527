"""Who has consumed a message: DefaultMQAdminExtImpl.messageTrackDetail."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import BrokerError, ConsumerNotOnline, MQError
from mq.client.operations import cluster, java_order, wire
from mq.client.operations.consumption import consume_stats
from mq.client.operations.errors import NotFound
from mq.protocol.bodies import ConsumeType
from mq.protocol.host import address_text
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import ConsumerConnection
    from mq.protocol.message import StoredMessage

# The text of Java's client if no broker has offsets of the group (examineConsumeStats).
_NO_STATS = (
    "CODE:206 DESC:Not found the consumer group consume stats, because return offset table is "
    "empty, maybe the consumer not consume any message"
)


_REASONS = {
    "CONSUMED": "the group has committed an offset after it",
    "CONSUMED_BUT_FILTERED": "the group has passed it: its tag is not among those that it wants",
    "NOT_CONSUME_YET": "the group has not come to it yet",
    "NOT_ONLINE": "no consumer of the group is online",
    "PULL": "consumers of the group pull by themselves, and may keep their offsets elsewhere",
}


@dataclass
class Track:
    """The status of a message in one consumer group. `type` is Java's TrackType."""

    group: str
    type: str = "UNKNOWN"
    error: str | None = None

    @property
    def reason(self) -> str:
        """The reason in a sentence; otherwise the answer."""
        return _REASONS.get(self.type) or self.error or "nothing is known of the group"


async def tracks(admin: "Admin", message: "StoredMessage") -> list[Track]:
    """Return the status in every group that the topic's first broker knows."""
    route = await admin.topic_route(message.topic)
    if not route.broker_datas:
        return []
    address = cluster.any_address(route.broker_datas[0])
    names = await wire.groups_of_topic(admin.session, address, message.topic)
    return [await _track(admin, message, group) for group in java_order.hash_order(names)]


async def _track(admin: "Admin", message: "StoredMessage", group: str) -> Track:
    track = Track(group)
    try:
        connection = await admin.group_connection(group)
        if connection.consume_type is ConsumeType.CONSUME_ACTIVELY:
            track.type = "PULL"
        elif connection.consume_type is ConsumeType.CONSUME_PASSIVELY:
            consumed = await _consumed(admin, message, group)
            track.type = "NOT_CONSUME_YET"
            if consumed:
                filtered = _filtered(connection, message)
                track.type = "CONSUMED_BUT_FILTERED" if filtered else "CONSUMED"
    except NotFound:
        track.type, track.error = "NOT_ONLINE", _NO_STATS
    except BrokerError as error:
        if isinstance(error, ConsumerNotOnline):
            track.type = "NOT_ONLINE"
        track.error = f"CODE:{int(error.code)} DESC:{error.remark}"
    except MQError as error:
        track.error = str(error)
    return track


async def _consumed(admin: "Admin", message: "StoredMessage", group: str) -> bool:
    """Whether the group has passed the message on the broker that stores it."""
    stats = await consume_stats(admin, group)
    table = (await admin.cluster_info()).broker_addr_table
    home = address_text(message.store_host)
    for queue, offset in stats.offsets.items():
        if (queue.topic, queue.queue_id) == (message.topic, message.queue_id):
            broker = table.get(queue.broker_name)
            if broker is not None and broker.broker_addrs.get(MASTER_ID) == home:
                if offset.consumer_offset > message.queue_offset:
                    return True
    return False


def _filtered(connection: "ConsumerConnection", message: "StoredMessage") -> bool:
    """Whether the group's tags exclude the message."""
    subscription = connection.subscription_table.get(message.topic)
    if subscription is None or not subscription.tags_set:
        return False
    tags = subscription.tags_set
    return "*" not in tags and message.properties.get("TAGS") not in tags
