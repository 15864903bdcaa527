"""Where queues begin and end, of all that can be read."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import MessageQueue, TopicOffset


async def bounds(
    admin: "Admin", address: str, topic: str, queues: "Iterable[MessageQueue]"
) -> "dict[MessageQueue, TopicOffset]":
    """Least and greatest offset of queues of a topic at the broker at `address`. Raises MQError.

    Brokers before 5.3 tell of the queues that are written to, and of no others
    (AdminBrokerProcessor.getTopicStatsInfo): a topic that is to have fewer has some that are only
    read until they are empty. Those are asked for one by one.
    """
    from mq.protocol.bodies import TopicOffset

    found = (await admin.topic_stats(address, topic)).offset_table
    for queue in queues:
        if queue not in found:
            found[queue] = TopicOffset(
                min_offset=max(0, await admin.min_offset(address, topic, queue.queue_id)),
                max_offset=max(0, await admin.max_offset(address, topic, queue.queue_id)),
            )
    return found
