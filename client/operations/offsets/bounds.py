"""The first and last offsets of all readable queues."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import MessageQueue, TopicOffset

AT_ONCE = 16  # concurrent queries: a topic may have thousands of queues


async def bounds(
    admin: "Admin", address: str, topic: str, queues: "Iterable[MessageQueue]"
) -> "dict[MessageQueue, TopicOffset]":
    """Return the least and greatest offset of queues of a topic at the broker at `address`. Raises
    MQError.

    Brokers before 5.3 report only the writable queues (AdminBrokerProcessor.getTopicStatsInfo). A
    topic that is being reduced has queues that are only read until they are empty; those are
    queried individually, several at a time.
    """
    from mq.protocol.bodies import TopicOffset

    found = (await admin.topic_stats(address, topic)).offset_table
    left = [queue for queue in queues if queue not in found]
    for start in range(0, len(left), AT_ONCE):
        some = left[start : start + AT_ONCE]
        asked = [admin.min_offset(address, topic, queue.queue_id) for queue in some]
        asked += [admin.max_offset(address, topic, queue.queue_id) for queue in some]
        answers = [max(0, offset) for offset in await admin.session.all(asked)]
        least_of, most_of = answers[: len(some)], answers[len(some) :]
        for queue, least, most in zip(some, least_of, most_of, strict=True):
            found[queue] = TopicOffset(min_offset=least, max_offset=most)
    return found
