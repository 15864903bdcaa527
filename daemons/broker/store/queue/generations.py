"""Queue generations: decides which records of the log belong to an earlier generation of their
queue.

If a topic is deleted and created again, its queues restart at queue offset 0, and the log has the
records of both generations until retention deletes them. The list of deletions has the end of each
generation, but Java writes no such list. The first entry of a queue, if its record agrees, is the
start of the current generation.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.records import Record, record_in
from mq.daemons.broker.store.log.windows import LogReader
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.daemons.broker.store.queue.deletions import Deletions
from mq.protocol.names import is_system_topic

_SEARCHED = 1024  # entries of a queue that are searched for the first valid one


class Entries(Protocol):
    """A queue."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    def entry(self, index: int, /) -> tuple[int, int, int] | None: ...


def first_matching(
    queue: Entries, begin: int, minimum: int, record_at: Callable[[int], Record | None]
) -> tuple[int, int] | None:
    """Index and physical offset of the first entry from ``begin`` on whose record agrees with it.

    None if there is none among the next entries, or if the log, which starts at ``minimum``, no
    longer has the record of an entry before it.
    """
    for index in range(begin, begin + _SEARCHED):
        entry = queue.entry(index)
        if entry is None:
            continue
        if entry[0] < minimum:
            return None
        record = record_at(entry[0])
        if record is not None and record[:3] == (queue.topic, queue.queue_id, index):
            return index, record.physical
    return None


class QueueGenerations:
    """The generations of all queues, from the list of deletions and the queue files.

    ``known`` is None, or the existing topics if the list is damaged: then records of other topics
    count as deleted.
    """

    def __init__(
        self, commit_log: CommitLog, deletions: Deletions, known: frozenset[str] | None
    ) -> None:
        self._log = commit_log
        self._deletions = deletions
        self._known = known
        self._births: dict[tuple[str, int], int] = {}
        # Start of the current generation by topic and queue id, if the log has an earlier one.
        self.starts: dict[tuple[str, int], int] = {}
        # Topics whose records were skipped because they are not in ``known``.
        self.skipped_topics: set[str] = set()

    def find(self, queues: Iterable[ConsumeQueue], start: int) -> None:
        """Read where queues start. Call it before their entries for records at or after the
        physical offset ``start`` are removed.
        """
        for queue in queues:
            key = queue.topic, queue.queue_id
            if queue.minimum or key in self._births or queue.last_physical_end() <= start:
                continue
            first = first_matching(queue, 0, self._log.minimum, self._record_at)
            if first is not None and first[0] == 0:
                self._births[key] = first[1]

    def _record_at(self, physical: int) -> Record | None:
        file = self._log.file_at(physical)
        return None if file is None else record_in(LogReader(file), physical)

    def born(self, queue: ConsumeQueue) -> int:
        """The physical offset at which a queue starts, 0 if unknown."""
        return self._births.get((queue.topic, queue.queue_id), 0)

    def covers(self, topic: str, queue_id: int, physical: int) -> bool:
        """Whether the record at an offset belongs to an earlier generation or to a deleted
        topic."""
        return (
            self._deletions.covers(topic, queue_id, physical)
            or physical < self._births.get((topic, queue_id), 0)
            or (self._known is not None and self._is_unknown(topic))
        )

    def _is_unknown(self, topic: str) -> bool:
        assert self._known is not None
        return topic not in self._known and not is_system_topic(topic)

    def skipped(self, topic: str, queue_id: int, physical: int) -> None:
        """Record why a covered record was skipped, for `note`."""
        if self._deletions.covers(topic, queue_id, physical):
            return
        birth = self._births.get((topic, queue_id), 0)
        if physical < birth:
            self.starts[topic, queue_id] = birth
        else:
            self.skipped_topics.add(topic)

    def note(self) -> None:
        """Add the results to the list of deletions. Raises OSError."""
        last = self._deletions.last_of
        news = {key: begin for key, begin in self.starts.items() if last(*key) < begin}
        if news:
            self._deletions.add_queues(news, self._log)
        if self.skipped_topics:
            self._deletions.add(self.skipped_topics, self._log.position, self._log)
            self.skipped_topics.clear()
