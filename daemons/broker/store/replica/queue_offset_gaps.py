"""Queue offset gaps: checks on a slave that each record has the next queue offset of its queue.

A record with queue offset 0 for a queue that has messages restarts the queue: its topic was deleted
and created again at the master, or all its messages have expired. Or one bit of the offset is
wrong, which no checksum covers, and the queue would be dropped for that. So from such a record on,
received data is only buffered (`doubt`), until the master has reported where the first messages of
that topic's queues are: a queue that has restarted has nothing before this record there. The record
is not in the log here before that, so no start finds it undecided.

The same holds for a record whose queue offset leaves a gap: messages may be missing, or one bit is
wrong, and no later record would fit in the queue here. The master reports whether it has this
message at that queue offset. And it holds for a record that belongs before the first one here:
either that one, which was accepted, or this one has a wrong queue offset.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.records import Record
from mq.daemons.broker.store.queue.queues import Queues, implausible

log = logging.getLogger(__name__)

RestartQueues = Callable[[Mapping[tuple[str, int], int]], None]


class QueueOffsetGap(NamedTuple):
    """A record whose queue offset is not the next one of its queue, 0 if the queue restarts, and
    which may be wrong.
    """

    topic: str
    queue_id: int
    physical: int
    number: int

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.queue_id


class QueueOffsetGaps:
    """Keeps the question to the master about a record with an unexpected queue offset, and its
    answer.

    ``restart_queues`` restarts queues, by topic and id, with the records at physical offsets; it
    raises OSError.
    """

    def __init__(
        self, commit_log: CommitLog, queues: Queues, restart_queues: RestartQueues
    ) -> None:
        # Set while nothing more may be stored before the master has answered.
        self.doubt: QueueOffsetGap | None = None
        self._log = commit_log
        self._queues = queues
        self._restart_queues = restart_queues
        # The physical offset of a record whose queue offset is wrong, or right, according to the
        # master.
        self._misnumbered = self._believed = -1

    def forget(self) -> None:
        """Forget everything, because the next records come from another connection."""
        self.doubt = None
        self._misnumbered = self._believed = -1

    # records --------------------------------------------------------------------------------------

    def is_next(self, record: Record, nexts: Mapping[tuple[str, int], int]) -> bool:
        """Whether a record is the next of its queue, after those received with it, or the first one
        here. Also True for the queue offset of an older record here: that record is skipped
        later.

        ``nexts`` are the queue offsets after the records received with it, by queue.
        """
        key = record.topic, record.queue_id
        if not record.is_queued or implausible(*key, record.queue_offset):
            return True
        if key in nexts:
            return record.queue_offset == nexts[key]
        queue = self._queues.get(*key)
        if queue is None or not queue.appended:
            return True
        return max(1, queue.minimum) <= record.queue_offset <= queue.appended

    def next_of(self, record: Record) -> int:
        """The next queue offset of its queue after a record that is to be stored."""
        queue = self._queues.get(record.topic, record.queue_id)
        return max(record.queue_offset + 1, 0 if queue is None else queue.appended)

    def is_wrong(self, record: Record) -> bool:
        """Whether the master has reported that the queue offset of a record is wrong."""
        return record.physical == self._misnumbered

    def doubts(self, record: Record) -> None:
        """Have the master asked about a record that is not the next, unless it already was."""
        if record.physical != self._believed:
            where = record.topic, record.queue_id, record.physical
            self.doubt = QueueOffsetGap(*where, record.queue_offset)

    def right(self, record: Record) -> Record:
        """Return a record with the next queue offset of its queue instead of a wrong one."""
        queue = self._queues.get(record.topic, record.queue_id)
        assert queue is not None
        return record._replace(queue_offset=queue.appended)

    # what the master says -------------------------------------------------------------------------

    def queues_in_doubt(self) -> list[tuple[str, int]]:
        """The queues, by topic and id, of the topic in doubt that have messages: if one restarts,
        usually all of them do.
        """
        assert self.doubt is not None
        queues = self._queues.of_topic(self.doubt.topic)
        return [(queue.topic, queue.queue_id) for queue in queues if queue.appended]

    def decide(self, firsts: Mapping[tuple[str, int], int | None]) -> None:
        """Resolve a doubt. ``firsts`` are the physical offsets of the first messages that queues
        show at the master, None for a queue that shows none. Raises OSError.

        Java's slave leaves the new messages out of its queue while they have the queue offsets of
        old ones (ConsumeQueue.putMessagePositionInfo).
        """
        doubt = self._ended()
        # A master shows its messages in the order of its log, and not all that it has. So for a
        # queue that shows nothing, only messages before those shown by another queue are known to
        # be deleted. A queue whose restart goes unnoticed here is in doubt itself later.
        shown = max((first for first in firsts.values() if first is not None), default=0)
        gone = {
            key: doubt.physical
            for key, first in firsts.items()
            if (
                key == doubt.key or self._start_of(*key) < shown
                if first is None
                else first >= doubt.physical
            )
        }
        if gone:
            log.info("%d queues of %s restart, as at the master", len(gone), doubt.topic)
            self._restart_queues(gone)
        if doubt.key not in gone:
            self._misnumbered = doubt.physical

    def decide_number(self, physical: int | None, end: int) -> None:
        """Resolve a doubt about a gap. ``physical`` is the offset of the message that the master
        shows at that queue offset, None if it shows none; ``end`` is one past the last queue
        offset that it shows. Raises OSError.
        """
        doubt = self._ended()
        queue = self._queues.get(*doubt.key)
        assert queue is not None
        if doubt.number < queue.minimum:
            if end <= doubt.number if physical is None else physical == doubt.physical:
                log.error("%s-%d: the queue offset of its first message is wrong", *doubt.key)
                self._restart_queues({doubt.key: doubt.physical})
            self._believed = doubt.physical  # else it has no place in the queue
            return
        if physical is None:
            # If the master does not show the next queue offset of this slave either, it may show
            # both soon. Or it shows everything before this message, and shows the message itself
            # only when a slave has it.
            is_right = end <= queue.appended or end == doubt.number
        else:
            is_right = physical == doubt.physical
        if is_right:
            self._believed = doubt.physical
        else:
            self._misnumbered = doubt.physical

    def _ended(self) -> QueueOffsetGap:
        doubt, self.doubt = self.doubt, None
        assert doubt is not None
        return doubt

    def _start_of(self, topic: str, queue_id: int) -> int:
        """The physical offset of the first message of a queue here."""
        queue = self._queues.get(topic, queue_id)
        entry = None if queue is None else queue.entry(queue.minimum)
        return self._log.written if entry is None else entry[0]
