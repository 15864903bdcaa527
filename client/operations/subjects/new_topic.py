"""A topic that is sent to and that there is not: made on purpose, never by the way.

A broker with autoCreateTopicEnable would make it at the first message, on one broker, with its own
number of queues, and as well for a name that was misspelled.
"""

import asyncio
from typing import TYPE_CHECKING

from mq.client.errors import RequestTimeout, RouteNotFound
from mq.client.operations.subjects import topics
from mq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from mq.client.admin import Admin

QUEUES = 8  # as updateTopic makes them
_LOOK_SECONDS = 0.05


async def exists(admin: "Admin", topic: str) -> bool:
    """Whether a name server has a route of it. Raises MQError where none answers."""
    try:
        await admin.session.route(topic, max_age=0)
    except RouteNotFound:
        return False
    return True


async def make(
    admin: "Admin", topic: str, cluster_name: str, seconds: float
) -> topics.TopicCreation:
    """Make a topic at each master of a cluster, and wait until a name server knows it.

    One that a broker has already stays as it is: making it would take queues from it.

    Raises NotFound, RequestTimeout after so many seconds, and the error of the last broker where
    none makes it.
    """
    from mq.protocol.bodies import TopicConfig

    config = TopicConfig(topic_name=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
    made = topics.TopicCreation((), None, ())
    holders, _ = await topics.holders(admin, topic)
    if not holders:
        made = await topics.make_in_cluster(admin, cluster_name, config)
    try:
        async with asyncio.timeout(seconds):
            while not await exists(admin, topic):  # noqa: ASYNC110 - nobody tells of a new route
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        raise RequestTimeout(admin.session.name_server, seconds, code) from None
    return made
