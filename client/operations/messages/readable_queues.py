"""The readable queues of a topic, and why others are not readable."""

from typing import TYPE_CHECKING

from mq.client.operations.errors import NextStep, NotFound
from mq.client.routing.routes import read_queues
from mq.protocol.bodies import MessageQueue
from mq.protocol.flags import Permission

if TYPE_CHECKING:
    from mq.client.pull.pull_consumer import PullConsumer


async def readable_queues(
    consumer: "PullConsumer", topic: str
) -> tuple[list[MessageQueue], dict[str, str]]:
    """Return the readable queues of a topic, and why the others are not readable, by broker name.

    Raises NotFound if no queue is readable.
    """
    route = await consumer.session.route(topic)
    queues = read_queues(topic, route)
    closed = {
        one.broker_name: f"topic {topic} cannot be read at broker {one.broker_name}: "
        + (
            "it has no read queues"
            if one.perm & Permission.READ
            else "its permission there has no READ"
        )
        for one in route.queue_datas
        if not (one.perm & Permission.READ and one.read_queue_nums)
    }
    if not queues:
        why = "; ".join(closed.values()) or f"the route of topic {topic} has no queues"
        raise NotFound(why, hint=NextStep.LOOK_AT_ROUTE, subject=topic)
    return queues, closed
