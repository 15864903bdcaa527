"""Retention: deleting at an administrator's request, without waiting for the hour of deleteWhen."""

import asyncio
import logging
from collections.abc import Sequence

from mq.client.machine import clock
from mq.daemons.broker.handlers.topic import saving
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.errors import QueuesLeft
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.store_times import store_time
from mq.daemons.broker.store.waiters import wake
from mq.daemons.broker.tables.offsets import SEPARATOR, ConsumerOffsets
from mq.daemons.broker.tables.topics import Topics
from mq.daemons.channel import Channel
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

log = logging.getLogger(__name__)

# Deleted before others are served: noted in one write, and the files of each take milliseconds.
_TOPICS_A_TURN = 10
_QUEUES_A_TURN = 40  # likewise
# A slave keeps the queues of an unknown topic for this long after the last message, ms.
_COPIED_WITHIN = 3600 * 1000

_READ_BY_BROKER = (
    names.SCHEDULE_TOPIC,
    names.TRANSACTION_HALF_TOPIC,
    names.TRANSACTION_OPERATION_TOPIC,
)


def _is_read_by_broker(topic: str) -> bool:
    """Whether a service of the broker reads the topic from an offset of its own.

    Those of 5.x are timers and pops, and each of its kind to come.
    """
    return topic in _READ_BY_BROKER or topic.startswith(names.SYSTEM_TOPIC_PREFIX)


class RetentionHandlers:
    """Deletes what is of no use any more."""

    def __init__(self, topics: Topics, store: MessageStore, offsets: ConsumerOffsets) -> None:
        self._topics = topics
        self._store = store
        self._offsets = offsets

    @serves(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    async def clean_queues(self, command: Command, channel: Channel) -> Command:
        """Take queues off the disk whose messages have all been deleted by age.

        They begin at offset 0 again (DefaultMessageStore.cleanExpiredConsumerQueue), and their
        groups there. (Java leaves these where they were: they pass over what comes next.) Queues
        that the broker itself reads stay: how far it has come is kept as an offset. (Java spares
        those of the delay levels only, and then does not deliver what is put in the others.)
        """
        expired = [queue for queue in self._store.queues if self._is_expired(queue)]
        stuck: list[OSError] = []
        for begin in range(0, len(expired), _QUEUES_A_TURN):
            some = list(filter(self._is_expired, expired[begin : begin + _QUEUES_A_TURN]))
            stuck += self._clear(some, channel)
            await asyncio.sleep(0)
        with saving("groups may be back behind a restart where they were in what is gone; clean "
                    "once more, for their offsets cannot be saved"):  # fmt: skip
            await self._offsets.save_removals()
        with saving("not all queues can be cleaned; clean once more"):
            if stuck:
                raise stuck[0]
        return command.reply()

    def _clear(self, queues: Sequence[ConsumeQueue], channel: Channel) -> list[OSError]:
        """Returns why some cannot be cleaned; the others are.

        It is noted in the same turn: a check point that is written again in between would count.
        """
        try:
            self._store.note_cleared(queues)
        except OSError as error:
            return [error]
        stuck: list[OSError] = []
        for queue in queues:
            log.info("%s cleans %r: its messages are gone", channel.remote, queue)
            try:
                queue.clear()
            except OSError as error:
                stuck.append(error)
        self._offsets.begin_anew({(queue.topic, queue.queue_id) for queue in queues})
        # Who waits where a queue ended is moved to its beginning now: when as many messages had
        # come as there had been, it would be given what lies behind them.
        wake(queues)
        return stuck

    def _is_expired(self, queue: ConsumeQueue) -> bool:
        if not 0 < queue.appended == queue.minimum or _is_read_by_broker(queue.topic):
            return False
        return self._store.queues.get(queue.topic, queue.queue_id) is queue  # still

    @serves(RequestCode.CLEAN_UNUSED_TOPIC)
    async def clean_topics(self, command: Command, channel: Channel) -> Command:
        """Take the queues off the disk of topics that the broker does not have (any more), and
        forget the offsets in them, which a deletion may have left that failed half way."""
        there = self._store.queues.topics()
        left: list[OSError] = []
        for begin in range(0, len(there), _TOPICS_A_TURN):
            unused = []
            for topic in there[begin : begin + _TOPICS_A_TURN]:
                try:
                    if self._is_unused(topic):
                        unused.append(topic)
                except OSError as error:  # it cannot be told; it can of others
                    left.append(error)
            if unused:
                listed = ", ".join(unused)
                log.info("%s cleans the queues of topics that are not: %s", channel.remote, listed)
                with saving():
                    try:
                        self._store.delete_topics(unused)
                    except QueuesLeft as error:  # and others are gone
                        left.append(error)
                self._forget_offsets(unused)
                await asyncio.sleep(0)
        with saving("offsets in what is gone may be back behind a restart; clean once more, for "
                    "they cannot be saved"):  # fmt: skip
            await self._offsets.save_removals()
        with saving("not all queues can be taken off the disk; clean once more"):
            if left:
                raise left[0]
        return command.reply()

    def _forget_offsets(self, topics: Sequence[str]) -> None:
        known = {key.partition(SEPARATOR)[0] for key in self._offsets.table}
        for topic in filter(known.__contains__, topics):
            self._offsets.remove_topic(topic)

    def _is_unused(self, topic: str) -> bool:
        """Raises OSError."""
        if self._topics.get(topic) is not None or self._topics.is_system(topic):
            return False
        return self._store.replica is None or self._is_old(topic)

    def _is_old(self, topic: str) -> bool:
        """Whether the last message of a topic is old enough to delete its queues on a slave.

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
        """Delete log files that are older than fileReservedTime: some now, more by the next rounds
        of the cleaner (CleanCommitLogService.executeDeleteFilesManually)."""
        deleted = await self._store.retention.clean(manual=True)
        log.info("%s had %d expired log files deleted", channel.remote, deleted)
        return command.reply()
