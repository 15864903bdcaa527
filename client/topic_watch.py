"""Topic listeners: called when a topic has other queues than before."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mq.client.cancellation import is_meant
from mq.client.errors import MQError
from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)

TOPIC_CHECK_SECONDS = 30.0  # DefaultLitePullConsumer.topicMetadataCheckIntervalMillis

#: Hears that a topic has other queues than before: `(topic, queues)`.
TopicListener = Callable[[str, list[MessageQueue]], Any]


class TopicWatch:
    """The topics whose queues somebody wants to hear of."""

    def __init__(self, group: str, queues: Callable[[str], Awaitable[list[MessageQueue]]]) -> None:
        """`queues` finds out what a topic has now; `group` is for the log."""
        self._group = group
        self._queues = queues
        self._watched: dict[str, tuple[list[MessageQueue], list[TopicListener]]] = {}

    async def add(self, topic: str, listener: TopicListener) -> None:
        """Let `listener` know of changes from now on. Raises what finding the queues raises."""
        queues = await self._queues(topic)
        _, listeners = self._watched.setdefault(topic, (queues, []))
        listeners.append(listener)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(TOPIC_CHECK_SECONDS)
            for topic, (before, listeners) in list(self._watched.items()):
                try:
                    now = await self._queues(topic)
                except MQError as error:
                    log.warning("group %s: the queues of %s: %s", self._group, topic, error)
                    continue
                if now != before:
                    self._watched[topic] = now, listeners
                    for listener in listeners:
                        try:
                            listener(topic, now)
                        except BaseException as error:  # it is the user's; others listen, too
                            if is_meant(error):
                                raise
                            log.exception("group %s: a listener to %s", self._group, topic)
