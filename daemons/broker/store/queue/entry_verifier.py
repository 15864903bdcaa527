"""Compares queue entries with the log, and repairs damaged ones from it."""

import logging
from collections.abc import Callable

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.records import find_entry
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.daemons.broker.store.queue.generations import Deletions
from mq.daemons.broker.store.queue.queues import Queues
from mq.protocol.record import MAGIC_V1, MAGIC_V2, RECORD_IDENTITY

log = logging.getLogger(__name__)

# The longest run of damaged entries that is repaired here: five pages of a file. A longer run is
# repaired by the next start.
MOST_DAMAGED = 1024


class EntryVerifier:
    """Verifies the queue entries of one store. ``delays`` returns the current delay levels in
    ms."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: Queues,
        deletions: Deletions,
        delays: Callable[[], dict[int, int]],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._deletions = deletions
        self._delays = delays

    def at(self, topic: str, queue_id: int, index: int) -> tuple[int, int, int] | None:
        """(physical offset, size, tags code) of a message, or None."""
        queue = self._queues.get(topic, queue_id)
        entry = None if queue is None else queue.entry(index)
        if queue is None or entry is None:
            return None
        if not self.matches_log(queue, index, entry[0], entry[1]):
            return self.repair(queue, index)
        return entry

    def matches_log(self, queue: ConsumeQueue, index: int, physical: int, size: int) -> bool:
        """Whether the log has at a physical offset the very message that an entry describes."""
        head = self._log.read(physical, RECORD_IDENTITY.size)
        if head is None:
            return False
        found_size, magic, queue_id, offset = RECORD_IDENTITY.unpack(head)
        return (found_size, queue_id, offset) == (size, queue.queue_id, index) and magic in (
            MAGIC_V1,
            MAGIC_V2,
        )

    def repair(self, queue: ConsumeQueue, index: int) -> tuple[int, int, int] | None:
        """Find the message of a damaged queue entry in the log, and repair the entry.

        Reads only the log between the messages of the nearest valid entries. Returns None if the
        message no longer exists.
        """
        entry = queue.entry(index)
        if entry is not None and self._is_filling(queue, index, entry[0], entry[1]):
            return None
        deleted = self._deletions.last_of(queue.topic, queue.queue_id)
        # records before it are of an earlier queue generation
        start = max(self._log.minimum, deleted)
        for before in range(index - 1, max(index - MOST_DAMAGED, queue.minimum) - 1, -1):
            entry = queue.entry(before)
            if entry and self.matches_log(queue, before, entry[0], entry[1]):
                start = entry[0] + entry[1]
                break
        where = queue.topic, queue.queue_id, index
        entry = find_entry(self._log, start, self._next_valid(queue, index), *where, self._delays())
        if entry is None:
            log.error("%r: entry %d is damaged and its message is not in the log", queue, index)
            return None
        log.error("%r: entry %d was damaged; repaired from the log", queue, index)
        try:
            queue.mend(index, layout.ENTRY.pack(*entry))
        except OSError as error:  # the message can be read nevertheless
            log.error("%r: cannot repair entry %d: %s", queue, index, error)
        return entry

    def _next_valid(self, queue: ConsumeQueue, index: int) -> int:
        """The physical offset of the nearest valid entry after an index, or the end of the log."""
        for after in range(index + 1, min(index + MOST_DAMAGED, queue.readable)):
            entry = queue.entry(after)
            if entry and self.matches_log(queue, after, entry[0], entry[1]):
                return entry[0]
        return self._log.written

    def _is_filling(self, queue: ConsumeQueue, index: int, physical: int, size: int) -> bool:
        """Whether an entry fills the gap of a lost message: it repeats the entry of the next
        message.
        """
        head = self._log.read(physical, RECORD_IDENTITY.size)
        if head is None:
            return False
        *_, its_index = RECORD_IDENTITY.unpack(head)
        if not index < its_index < queue.readable:
            return False
        entry = queue.entry(its_index)
        return (
            entry is not None
            and entry[:2] == (physical, size)
            and self.matches_log(queue, its_index, physical, size)
        )
