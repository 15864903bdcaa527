"""Creates a topic before messages are sent to it: explicitly, never as a side effect.

A broker with autoCreateTopicEnable would create it at the first message, on one broker, with its
own number of queues, and also for a misspelled name.
"""

import asyncio
from typing import TYPE_CHECKING

from mq.client.errors import RequestTimeout, RouteNotFound
from mq.client.operations.subjects import topics
from mq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from mq.client.admin import Admin

QUEUES = 8  # as created by updateTopic
_LOOK_SECONDS = 0.05


async def exists(admin: "Admin", topic: str) -> bool:
    """Whether a name server has a route of the topic. Raises MQError if none answers."""
    try:
        await admin.session.route(topic, max_age=0)
    except RouteNotFound:
        return False
    return True


async def make(
    admin: "Admin", topic: str, cluster_name: str, seconds: float
) -> topics.TopicCreation:
    """Create a topic at each master of a cluster, and wait until a name server knows it.

    If a broker already has the topic it stays unchanged: creating it would remove queues. Raises
    NotFound, RequestTimeout after `seconds`, and the error of the last broker if none creates it.
    """
    from mq.protocol.bodies import TopicConfig

    config = TopicConfig(topic_name=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
    made = topics.TopicCreation((), None, ())
    holders, _ = await topics.holders(admin, topic)
    if not holders:
        made = await topics.make_in_cluster(admin, cluster_name, config)
    try:
        async with asyncio.timeout(seconds):
            while not await exists(admin, topic):  # noqa: ASYNC110 - no notification of a route
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        raise RequestTimeout(admin.session.name_server, seconds, code) from None
    return made
