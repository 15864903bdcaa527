"""Numbering: whether records come with the numbers that are next in their queues, on a slave.

A record with queue offset 0 of a queue that has messages begins it anew: its topic was deleted at
the master and made again, or all of it had expired. Or one bit of the offset is wrong, which no
checksum covers, and the queue would be dropped for it. So from there on what comes is only kept
(`doubt`), until the master has said where the first messages of that topic's queues are: of a queue
that has begun anew nothing is left there before this record. It is not in the log here before that,
so no start finds it undecided. Likewise a record whose queue offset leaves a gap: messages may be
missing, or one bit is wrong, and all that follow would have no place in the queue here. The master
says whether it shows this message under that number. And one that belongs before the first that is
here: that one, which was believed, or this has a wrong number.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.queues import Queues, implausible
from mq.daemons.broker.store.records import Record

log = logging.getLogger(__name__)

BeginAnew = Callable[[Mapping[tuple[str, int], int]], None]


class QueueOffsetGap(NamedTuple):
    """A record says that it is another of its queue than comes next, 0 where that begins anew, and
    may be wrong."""

    topic: str
    queue_id: int
    physical: int
    number: int

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.queue_id


class QueueOffsetGaps:
    """What the master has been asked, and has said, of records whose numbers are not the next.

    ``begin_anew`` lets queues, by topic and id, begin anew with the records at physical offsets; it
    raises OSError.
    """

    def __init__(self, commit_log: CommitLog, queues: Queues, begin_anew: BeginAnew) -> None:
        self.doubt: QueueOffsetGap | None = (
            None  # nothing more is stored before the master has been asked
        )
        self._log = commit_log
        self._queues = queues
        self._begin_anew = begin_anew
        # Where a record is of which the master says that its number is wrong, or right.
        self._misnumbered = self._believed = -1

    def forget(self) -> None:
        """What comes next comes from another connection."""
        self.doubt = None
        self._misnumbered = self._believed = -1

    # records --------------------------------------------------------------------------------------

    def is_next(self, record: Record, nexts: Mapping[tuple[str, int], int]) -> bool:
        """Whether a record is the next of its queue, behind those that came with it, or the first
        that is here; one that has the number of an older one that is here is left out later.

        ``nexts`` are the numbers behind those that came with it, by queue.
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
        """The number that comes next in its queue behind a record that is to be stored."""
        queue = self._queues.get(record.topic, record.queue_id)
        return max(record.queue_offset + 1, 0 if queue is None else queue.appended)

    def is_wrong(self, record: Record) -> bool:
        """Whether the master has said that a record has a wrong number."""
        return record.physical == self._misnumbered

    def doubts(self, record: Record) -> None:
        """Have the master asked about a record that is not the next, unless it has been."""
        if record.physical != self._believed:
            where = record.topic, record.queue_id, record.physical
            self.doubt = QueueOffsetGap(*where, record.queue_offset)

    def right(self, record: Record) -> Record:
        """A record whose number is wrong with the next one of its queue."""
        queue = self._queues.get(record.topic, record.queue_id)
        assert queue is not None
        return record._replace(queue_offset=queue.appended)

    # what the master says -------------------------------------------------------------------------

    def queues_in_doubt(self) -> list[tuple[str, int]]:
        """Of the topic that the doubt is about, by topic and id, those that have messages: where
        one begins anew, mostly all of them do."""
        assert self.doubt is not None
        queues = self._queues.of_topic(self.doubt.topic)
        return [(queue.topic, queue.queue_id) for queue in queues if queue.appended]

    def decide(self, firsts: Mapping[tuple[str, int], int | None]) -> None:
        """End a doubt: the physical offsets of the first messages that queues show at the master,
        None of one that shows none. Raises OSError.

        Java leaves the new messages out of its slave's queue as long as they have the offsets of
        old ones (ConsumeQueue.putMessagePositionInfo).
        """
        doubt = self._ended()
        # A master shows what it has in the order of its log, and not all that it has: of a queue
        # that shows nothing only older messages than what it shows elsewhere are known to be gone.
        # One that has gone unseen is in doubt itself when it begins anew.
        shown = max((first for first in firsts.values() if first is not None), default=0)
        gone = {
            key: doubt.physical
            for key, first in firsts.items()
            if (
                key == doubt.key or self._begin_of(*key) < shown
                if first is None
                else first >= doubt.physical
            )
        }
        if gone:
            log.info("%d queues of %s begin anew, as at the master", len(gone), doubt.topic)
            self._begin_anew(gone)
        if doubt.key not in gone:
            self._misnumbered = doubt.physical

    def decide_number(self, physical: int | None, end: int) -> None:
        """End a doubt about a gap: where the message lies that the master shows under that number,
        None if it shows none, and the number behind the last that it shows. Raises OSError."""
        doubt = self._ended()
        queue = self._queues.get(*doubt.key)
        assert queue is not None
        if doubt.number < queue.minimum:
            if end <= doubt.number if physical is None else physical == doubt.physical:
                log.error("%s-%d: the number of its first message here is wrong", *doubt.key)
                self._begin_anew({doubt.key: doubt.physical})
            self._believed = doubt.physical  # else it has no place
            return
        if physical is None:
            # Where it does not show the one that comes next here either, it may show both soon. Or
            # it shows all before this one, which it may show when a slave has it.
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

    def _begin_of(self, topic: str, queue_id: int) -> int:
        """Where the first message of a queue lies here."""
        queue = self._queues.get(topic, queue_id)
        entry = None if queue is None else queue.entry(queue.minimum)
        return self._log.written if entry is None else entry[0]
