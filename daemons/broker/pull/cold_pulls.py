"""Pulls of messages that are not in memory: the event loop must not wait for a disk.

OFFSET_MOVED_EVENT: reports to monitoring that a group requested an offset that does not exist.

mqadmin's startMonitoring consumes the topic (PullMessageProcessor.generateOffsetMovedEvent).

Suggests the broker for the next pull: the master, or a slave for messages far from the log's
end.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from mq.client.machine import clock
from mq.client.transport.tasks import end_with
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.pull.long_polling import COST
from mq.daemons.broker.pull.message_finder import RETRY, FoundMessages
from mq.daemons.broker.pull.pull_reply import request_of
from mq.daemons.broker.statistics.stats import BrokerStats, GroupCounter
from mq.daemons.broker.store import CommitLog, ConsumeQueue, StoreRefused
from mq.daemons.channel import Channel
from mq.protocol import names
from mq.protocol.bodies import MessageQueue, SubscriptionGroupConfig
from mq.protocol.bodies.consume import OffsetMovedEvent
from mq.protocol.message import StoredMessage
from mq.protocol.names import MASTER_ID
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

# Limit of events per second; more are only counted. Java writes one for each such pull, so a client
# could make the broker write as fast as it pulls. A group that is reset, or whose messages were
# deleted, causes one event for each of its queues.
MOST_A_SECOND = 100


class Suggestions:
    """Suggests a broker with each reply if slaves may be read from (slaveReadEnable)."""

    def __init__(self, settings: BrokerSettings, commit_log: CommitLog, warm_bytes: int) -> None:
        """Messages more than ``warm_bytes`` before the end of the log count as far from it."""
        self._settings = settings
        self._log = commit_log
        self._warm_bytes = warm_bytes
        self.configure()

    def configure(self) -> None:
        """Read the settings again."""
        self.to_slaves = self._settings.broker.slave_read_enable

    def is_for_master(
        self, group: SubscriptionGroupConfig, queue: ConsumeQueue, offset: int
    ) -> bool:
        """Whether a reply that starts at a queue offset can only name the master, like all replies
        of the native path.
        """
        if not self.to_slaves:
            return True
        entry = queue.entry(offset)
        return group.broker_id == MASTER_ID and (entry is None or self._is_near(entry[0]))

    def _is_near(self, physical: int) -> bool:
        """Whether a physical offset is near the end of the log."""
        return self._log.written - physical <= self._warm_bytes

    def of(self, group: SubscriptionGroupConfig, queue: ConsumeQueue, found: FoundMessages) -> int:
        """The id of the broker from which a group is to read next, after this reply.

        Source: PullMessageProcessor; DefaultMessageStore.getMessage for messages far from the log's
        end.
        """
        if not self.to_slaves:
            return MASTER_ID
        end = found.end
        if not end and found.code == RETRY:  # messages were read, and none matched the filter
            entry = queue.entry(found.next_offset - 1)
            end = 0 if entry is None else entry[0] + entry[1]
        if end and not self._is_near(end):
            return group.which_broker_when_consume_slowly
        return group.broker_id


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


class ColdPulls:
    """Pulls that wait until their messages have been read from the disk."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait for disk reads in progress."""
        while self._tasks:  # a pull may have to wait a second time
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def wait(
        self,
        reading: Coroutine[None, None, None],
        header: dict[str, object],
        channel: Channel,
        size: int,
        counter: GroupCounter,
        again: Callable[[], None],
    ) -> None:
        """Call ``again`` after the read, unless the peer has disconnected; if the read fails, reply
        with the error. ``size`` bytes are reserved for the reply.
        """
        task = asyncio.ensure_future(self._wait(reading, header, channel, size, counter, again))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        end_with(task, reading)

    async def _wait(
        self,
        reading: Coroutine[None, None, None],
        header: dict[str, object],
        channel: Channel,
        size: int,
        counter: GroupCounter,
        again: Callable[[], None],
    ) -> None:
        began = clock.monotonic()
        pending_bytes = COST + size
        channel.reserve(pending_bytes)
        try:
            await reading
        except Exception as error:
            channel.reply_error(request_of(header), error)
            return
        finally:
            channel.reserve(-pending_bytes)
            waited = int((clock.monotonic() - began) * 1000)
            counter.waited += waited
            self._stats.longest_read = max(self._stats.longest_read, waited)
        if channel.stalled:  # otherwise many replies that the peer does not read would accumulate
            channel.postpone(again)
        elif not channel.closed:
            again()
