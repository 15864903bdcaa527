"""Topic listeners: called when the queues of a topic change."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mq.client.errors import MQError
from mq.client.transport.cancellation import is_meant
from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)

TOPIC_CHECK_SECONDS = 30.0  # DefaultLitePullConsumer.topicMetadataCheckIntervalMillis

#: Called when the queues of a topic have changed: `(topic, queues)`.
TopicListener = Callable[[str, list[MessageQueue]], Any]


class TopicWatch:
    """The topics that have listeners."""

    def __init__(self, group: str, queues: Callable[[str], Awaitable[list[MessageQueue]]]) -> None:
        """`queues` returns the current queues of a topic; `group` is for the log."""
        self._group = group
        self._queues = queues
        self._watched: dict[str, tuple[list[MessageQueue], list[TopicListener]]] = {}

    async def add(self, topic: str, listener: TopicListener) -> None:
        """Add a listener for changes from now on. Raises what finding the queues raises."""
        queues = await self._queues(topic)
        _, listeners = self._watched.setdefault(topic, (queues, []))
        listeners.append(listener)

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            await asyncio.sleep(TOPIC_CHECK_SECONDS)
            for topic, (before, listeners) in list(self._watched.items()):
                try:
                    now = await self._queues(topic)
                except MQError as error:
                    log.warning(
                        "group %s: cannot check the queues of %s: %s", self._group, topic, error
                    )
                    continue
                if now != before:
                    self._watched[topic] = now, listeners
                    for listener in listeners:
                        try:
                            listener(topic, now)
                        # user code; other listeners must still be called
                        except BaseException as error:
                            if is_meant(error):
                                raise
                            log.exception(
                                "group %s: a listener of topic %s failed", self._group, topic
                            )
