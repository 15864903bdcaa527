"""Retention: deletion at an administrator's request, without waiting for the hour of deleteWhen."""

import asyncio
import logging
from collections.abc import Sequence

from mq.client.machine import clock
from mq.daemons.broker.offsets.offset_table import SEPARATOR, ConsumerOffsets
from mq.daemons.broker.store import ConsumeQueue, MessageStore, QueuesLeft, store_time, wake
from mq.daemons.broker.topics.topic_handlers import saving
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.channel import Channel
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

log = logging.getLogger(__name__)

# Limits per turn of the event loop. One write notes all of them, and deleting the files of each
# takes milliseconds.
_TOPICS_A_TURN = 10
_QUEUES_A_TURN = 40
# A slave keeps the queues of an unknown topic for this long after the last message, ms.
_COPIED_WITHIN = 3600 * 1000

_READ_BY_BROKER = (
    names.SCHEDULE_TOPIC,
    names.TRANSACTION_HALF_TOPIC,
    names.TRANSACTION_OPERATION_TOPIC,
)


def _is_read_by_broker(topic: str) -> bool:
    """Whether a service of the broker reads the topic from an offset of its own.

    In 5.x these are timers, pops, and later services of the same kind.
    """
    return topic in _READ_BY_BROKER or topic.startswith(names.SYSTEM_TOPIC_PREFIX)


class RetentionHandlers:
    """Deletes data that is no longer of use."""

    def __init__(self, topics: Topics, store: MessageStore, offsets: ConsumerOffsets) -> None:
        self._topics = topics
        self._store = store
        self._offsets = offsets

    @serves(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    async def clean_queues(self, command: Command, channel: Channel) -> Command:
        """Delete the queues whose messages have all expired.

        They start at offset 0 again (DefaultMessageStore.cleanExpiredConsumerQueue), and so do
        their groups. (Java leaves the groups' offsets: they skip the next messages.) Queues that
        the broker itself reads are kept, because its progress in them is an offset. (Java spares
        only those of the delay levels, and then does not deliver the messages in the others.)
        """
        expired = [queue for queue in self._store.queues if self._is_expired(queue)]
        stuck: list[OSError] = []
        for begin in range(0, len(expired), _QUEUES_A_TURN):
            some = list(filter(self._is_expired, expired[begin : begin + _QUEUES_A_TURN]))
            stuck += self._clear(some, channel)
            await asyncio.sleep(0)
        with saving("offsets of deleted queues may reappear after a restart; clean again, because "
                    "the offsets cannot be saved"):  # fmt: skip
            await self._offsets.save_removals()
        with saving("not all queues can be cleaned; clean again"):
            if stuck:
                raise stuck[0]
        return command.reply()

    def _clear(self, queues: Sequence[ConsumeQueue], channel: Channel) -> list[OSError]:
        """Clean queues; returns the errors of those that cannot be cleaned.

        It is noted in the same turn: otherwise a check point that is rewritten in between would
        count.
        """
        try:
            self._store.note_cleared(queues)
        except OSError as error:
            return [error]
        stuck: list[OSError] = []
        for queue in queues:
            log.info("%s cleans %r: all its messages have expired", channel.remote, queue)
            try:
                queue.clear()
            except OSError as error:
                stuck.append(error)
        self._offsets.reset_cleared({(queue.topic, queue.queue_id) for queue in queues})
        # Pulls suspended at the end of a queue are moved to its beginning now. Otherwise they would
        # wait until the new queue is as long as the old one, and get only the messages after that.
        wake(queues)
        return stuck

    def _is_expired(self, queue: ConsumeQueue) -> bool:
        if not 0 < queue.appended == queue.minimum or _is_read_by_broker(queue.topic):
            return False
        return self._store.queues.get(queue.topic, queue.queue_id) is queue  # still

    @serves(RequestCode.CLEAN_UNUSED_TOPIC)
    async def clean_topics(self, command: Command, channel: Channel) -> Command:
        """Delete the queues of topics that the broker does not have, and the offsets in them.

        A deletion that failed half way may have left such offsets.
        """
        there = self._store.queues.topics()
        left: list[OSError] = []
        for begin in range(0, len(there), _TOPICS_A_TURN):
            unused = []
            for topic in there[begin : begin + _TOPICS_A_TURN]:
                try:
                    if self._is_unused(topic):
                        unused.append(topic)
                except OSError as error:  # only this topic cannot be checked
                    left.append(error)
            if unused:
                listed = ", ".join(unused)
                log.info("%s cleans the queues of unknown topics: %s", channel.remote, listed)
                with saving():
                    try:
                        self._store.delete_topics(unused)
                    except QueuesLeft as error:  # other queues are deleted
                        left.append(error)
                self._forget_offsets(unused)
                await asyncio.sleep(0)
        with saving("offsets of deleted topics may reappear after a restart; clean again, because "
                    "the offsets cannot be saved"):  # fmt: skip
            await self._offsets.save_removals()
        with saving("not all queues can be removed from the disk; clean again"):
            if left:
                raise left[0]
        return command.reply()

    def _forget_offsets(self, topics: Sequence[str]) -> None:
        known = {key.partition(SEPARATOR)[0] for key in self._offsets.table}
        for topic in filter(known.__contains__, topics):
            self._offsets.remove_topic(topic)

    def _is_unused(self, topic: str) -> bool:
        """Whether the broker lacks the topic. Raises OSError."""
        if self._topics.get(topic) is not None or self._topics.is_system(topic):
            return False
        return self._store.replica is None or self._is_old(topic)

    def _is_old(self, topic: str) -> bool:
        """Whether the last message of a topic is old enough to delete the topic's queues on a
        slave.

        A slave may lack the configuration of a topic that its master has: its copy of the topics
        may be older than the records, or lost.
        """
        since = clock.milliseconds() - _COPIED_WITHIN
        return all(
            queue.readable == queue.appended
            and store_time(self._store, topic, queue.queue_id, queue.readable - 1) < since
            for queue in self._store.queues.of_topic(topic)
        )

    @serves(RequestCode.DELETE_EXPIRED_COMMITLOG)
    async def delete_log_files(self, command: Command, channel: Channel) -> Command:
        """Delete log files older than fileReservedTime: some now, the rest in the next rounds of
        the cleaner (CleanCommitLogService.executeDeleteFilesManually).
        """
        deleted = await self._store.retention.clean(manual=True)
        log.info("%s had %d expired log files deleted", channel.remote, deleted)
        return command.reply()
