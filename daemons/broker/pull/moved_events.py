"""OFFSET_MOVED_EVENT: reports to monitoring that a group requested an offset that does not exist.

mqadmin's startMonitoring consumes the topic (PullMessageProcessor.generateOffsetMovedEvent).
"""

import logging
from collections.abc import Callable

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.store import StoreRefused
from mq.protocol import names
from mq.protocol.bodies import MessageQueue
from mq.protocol.bodies.consume import OffsetMovedEvent
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

# Limit of events per second; more are only counted. Java writes one for each such pull, so a client
# could make the broker write as fast as it pulls. A group that is reset, or whose messages were
# deleted, causes one event for each of its queues.
MOST_A_SECOND = 100


class OffsetMovedEvents:
    """Writes the events. `host` is this broker's address."""

    def __init__(
        self,
        writer: MessageWriter,
        settings: BrokerSettings,
        host: tuple[str, int],
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._writer = writer
        self._settings = settings
        self._host = host
        self._clock = clock
        self._second = 0
        self._in_second = 0
        self.dropped = 0

    def moved(self, group: str, topic: str, queue_id: int, asked: int, given: int) -> None:
        """Report that a group requested an offset of a queue and is sent to another one."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        if self._in_second > MOST_A_SECOND:
            self.dropped += 1
            return
        event = OffsetMovedEvent(
            consumer_group=group,
            message_queue=MessageQueue(topic, self._settings.broker.broker_name, queue_id),
            offset_request=asked,
            offset_new=given,
        )
        message = StoredMessage(
            names.OFFSET_MOVED_EVENT,
            event.encode(),
            {
                PropertyKey.KEYS: group,
                PropertyKey.TAGS: group,
                PropertyKey.DELAY_LEVEL: "0",
            },
            queue_id=0,
            born_timestamp=clock.milliseconds(),
            born_host=self._host,
        )
        try:
            self._writer.put(message)
        except StoreRefused as refusal:
            log.warning(
                "cannot write the event that group %s was moved to %d in %s: %s",
                group,
                given,
                topic,
                refusal,
                extra={"failure": "offset moved events"},
            )
