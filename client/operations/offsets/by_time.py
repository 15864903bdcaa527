"""Searches by store time that are exact at every broker.

Brokers of 5.x and ours return the lower bound. Java's 4.9 returns the nearest message, or any one
of several that were stored in the same millisecond, so the messages there are checked.
"""

from typing import TYPE_CHECKING

from mq.client.errors import BrokerError, RouteNotFound
from mq.client.pull.pull_consumer import PullConsumer
from mq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from mq.client.admin import Admin


async def first_at(
    admin: "Admin", consumer: PullConsumer, address: str, queue: MessageQueue, timestamp: int
) -> int:
    """Return the offset of the first message of `queue` stored at `timestamp` (ms) or later, or the
    end.

    If the account may search at the broker at `address` but not read the queue, the broker's own
    answer is returned. Raises MQError.
    """
    where = address, queue.topic, queue.queue_id
    offset = await admin.search_offset(*where, timestamp - 1)
    try:
        while True:
            pulled = await consumer.pull(queue, offset, decompress=False)
            for message in pulled.messages:
                if message.store_timestamp >= timestamp:
                    return message.queue_offset
            if pulled.next_offset == offset:
                return offset
            offset = pulled.next_offset
    except (BrokerError, RouteNotFound):
        return await admin.search_offset(*where, timestamp)
