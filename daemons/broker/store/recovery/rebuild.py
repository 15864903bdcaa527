"""Rebuilds queues whose files disagree with the log, by reading the whole log.

The queue offsets of a queue's messages increase by one. No checksum covers them, and one wrong bit
can put a record far after its place; the following messages would then have no place. So a record
that leaves a gap is kept back until the next record of its queue shows whether the gap is real:
messages may be missing, or retention has deleted the older ones. A queue that starts with a queue
offset far too low would have no place for the following messages either.

If the queue offsets of a queue restart at 0, a new queue generation starts (see
`queue_generations`), and only the last generation counts. A queue offset 0 may also have a wrong
bit: the next record of the queue decides.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import LogReader
from mq.daemons.broker.store.log.records import (
    BadRecord,
    EndOfLog,
    Record,
    RecordSearch,
    queue_tags_code,
    read_file,
    record_in,
)
from mq.daemons.broker.store.queue.consume_queue import MOST_FILLED, ConsumeQueue
from mq.daemons.broker.store.queue.queues import Queues
from mq.protocol.properties import decode

log = logging.getLogger(__name__)

_WRONG_NUMBER = "a record was not put into its queue: its queue offset, {}, is not the next one"


class _Candidate(NamedTuple):
    """A record: the queue offset that it claims, its entry, and its physical offset."""

    number: int
    entry: bytes
    physical: int


def rebuild_queues(
    commit_log: CommitLog,
    queues: Queues,
    suspects: Iterable[ConsumeQueue],
    end: int,
    delays: dict[int, int],
    is_left_out: Callable[[Record], bool],
    on_damage: Callable[[int, str], None],
) -> dict[tuple[str, int], int]:
    """Rebuild queues from the records before the physical offset ``end``.

    Records for which ``is_left_out`` is true are in no queue. For each other record without a place
    in its queue, ``on_damage`` is called with its physical offset and the reason. Returns, by topic
    and queue id, the physical start of each queue that has an earlier generation in the log. Raises
    OSError.
    """
    wanted = set()
    for queue in suspects:
        queue.clear()
        wanted.add((queue.topic, queue.queue_id))

    last_damage = -1

    def damaged(physical: int, why: str) -> None:
        nonlocal last_damage
        last_damage = physical
        on_damage(physical, why)

    made: dict[ConsumeQueue, _QueueRebuild] = {}
    for record in _records(commit_log, end, damaged):
        if (record.topic, record.queue_id) not in wanted or not record.is_queued:
            continue
        if is_left_out(record):
            continue
        properties = decode(record.properties) if record.properties else {}
        code = queue_tags_code(record.topic, properties, record.store_timestamp, delays)
        entry = layout.ENTRY.pack(record.physical, record.size, code)
        queue = queues.get_or_make(record.topic, record.queue_id)
        if queue not in made:
            made[queue] = _QueueRebuild(queue, on_damage)
        made[queue].add(_Candidate(record.queue_offset, entry, record.physical), last_damage)
    for remake in made.values():
        remake.finish()
    return {
        (queue.topic, queue.queue_id): remake.begin
        for queue, remake in made.items()
        if remake.begin
    }


def _records(
    commit_log: CommitLog, end: int, on_damage: Callable[[int, str], None]
) -> Iterator[Record]:
    """Yield the records before a physical offset; report damage by offset. This part lies before
    the part that a start verifies, so damage must not end the log here: a record whose body
    alone is damaged is yielded, too, and reading continues after any other damage at the next
    whole record.
    """
    position = commit_log.minimum
    while position < end and (file := commit_log.file_at(position)) is not None:
        reader = LogReader(file)
        heads = RecordSearch(reader)
        while position < file.end:
            try:
                for record in read_file(reader, position - file.start):
                    if record.physical >= end:
                        return
                    yield record
                    position = record.physical + record.size
                position = file.end
                break
            except EndOfLog:
                damaged, why = None, "zeros where a record should be"
            except BadRecord as error:
                damaged, why = record_in(reader, position), str(error)
            if position >= end:
                return
            on_damage(position, why)
            if damaged is not None:
                yield damaged
                position += damaged.size
            else:
                found = heads.next_record(position - file.start + 1)
                position = file.end if found is None else file.start + found


class _QueueRebuild:
    """The rebuild of one queue."""

    def __init__(self, queue: ConsumeQueue, on_damage: Callable[[int, str], None]) -> None:
        self._queue = queue
        self._on_damage = on_damage
        self._kept: list[_Candidate] = []  # records that leave a gap before them
        self._newer: _Candidate | None = None  # a record that may start a new generation
        self._is_whole = True  # no damage since the last record that was placed
        self._last = -1  # physical offset of the last record
        self._doubles = 0
        self.begin = 0  # physical start of the current generation; 0 if it is the first

    def add(self, one: _Candidate, last_damage: int) -> None:
        """Add the next record of the queue. ``last_damage`` is the physical offset of the last
        damage before it.
        """
        if last_damage > self._last:
            self._is_whole = False
        self._last = one.physical
        self._decide(one.number)
        queue = self._queue
        if self._newer is not None and one.number == self._newer.number + 1:
            self._start_generation()
        if self._kept or one.number > queue.appended or not queue.appended:
            self._drop_newer()
            self._kept.append(one)
        else:
            self._place(one)

    def finish(self) -> None:
        """Place the records that are still kept back."""
        kept = self._kept
        if len(kept) > 1 and 0 < kept[1].number <= kept[0].number:
            self._wrong(kept.pop(0))
        for one in kept:
            self._place(one)
        newer, end = self._newer, self._queue.appended
        # If the expected queue offset is a power of two, one wrong bit turns it into 0.
        if newer is not None and newer.number == 0 and end & (end - 1):
            self._start_generation()
        self._drop_newer()
        if self._doubles:
            text = "%r: skipped %d records whose queue offsets the queue already has"
            log.error(text, self._queue, self._doubles)

    def _place(self, one: _Candidate) -> None:
        """Place a record whose queue offset is no longer in doubt."""
        if self._queue.restore(one.number, one.entry):
            self._is_whole = True
            self._drop_newer()
        elif one.number >= self._queue.appended:
            self._wrong(one)
        elif self._newer is not None and self._newer.number < one.number:
            self._start_generation()
            self._place(one)
        else:
            self._drop_newer()
            if one.number == 0 or not self._is_whole:
                self._newer = one
            else:
                self._doubles += 1

    def _drop_newer(self) -> None:
        if self._newer is not None:
            self._newer = None
            self._doubles += 1

    def _start_generation(self) -> None:
        """Drop the earlier generation: `_newer` is the first record of a new one."""
        newer, self._newer = self._newer, None
        assert newer is not None
        self._queue.clear()
        self._kept.clear()
        self._doubles = 0
        self.begin = newer.physical
        log.warning(
            "%r was deleted and created again: it has only messages from log offset %d on",
            *(self._queue, newer.physical),
        )
        self._place(newer)

    def _wrong(self, one: _Candidate) -> None:
        self._is_whole = False
        self._on_damage(one.physical, _WRONG_NUMBER.format(one.number))

    def _decide(self, following: int) -> None:
        """Place the kept records that agree with the queue offset of the next record, and report
        the others. If two disagree, the one whose queue offset is farther from that of the next
        record is wrong.
        """
        kept = self._kept
        while kept:
            if len(kept) > 1:
                if kept[1].number == 0 and following == 1:  # a new generation starts
                    self._place(kept.pop(0))
                    continue
                first, second = (_missing(one.number, following) for one in kept)
                # The second one also wins a tie: its place is free.
                is_second = first < second or 0 < first == second < math.inf
                self._wrong(kept.pop(is_second))
            elif following == self._queue.appended > 0 and following != kept[0].number + 1:
                self._wrong(kept.pop())
            elif _missing(kept[0].number, following) > MOST_FILLED:
                return
            else:
                self._place(kept.pop())


def _missing(number: int, following: int) -> float:
    """How many messages are missing between two of a queue; infinity if they cannot follow each
    other.
    """
    missing = following - number - 1
    return missing if 0 <= missing <= MOST_FILLED else math.inf
