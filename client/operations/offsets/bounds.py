"""Where queues begin and end, of all that can be read."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import MessageQueue, TopicOffset

AT_ONCE = 16  # queues that are asked for at a time: a topic may have thousands


async def bounds(
    admin: "Admin", address: str, topic: str, queues: "Iterable[MessageQueue]"
) -> "dict[MessageQueue, TopicOffset]":
    """Least and greatest offset of queues of a topic at the broker at `address`. Raises MQError.

    Brokers before 5.3 tell of the queues that are written to, and of no others
    (AdminBrokerProcessor.getTopicStatsInfo): a topic that is to have fewer has some that are only
    read until they are empty. Those are asked for, some side by side.
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
