"""Making queues again whose files disagree with the log, by reading all of it.

The numbers of a queue's messages go up by one. No checksum covers them, and one wrong bit lets a
record claim a place far behind its own: the messages that follow would have no place of theirs any
more. So a record that leaves a gap before it is kept back until the next one of its queue shows
whether there is a gap: messages may be missing, or the older ones be gone with their files. A queue
that begins with a number far too low would have no place for those behind it, either.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.consume_queue import MOST_FILLED, ConsumeQueue
from mq.daemons.broker.store.heads import Heads
from mq.daemons.broker.store.mapped_file import MappedFile
from mq.daemons.broker.store.queues import Queues
from mq.daemons.broker.store.records import (
    BadRecord,
    EndOfLog,
    Record,
    queue_tags_code,
    read_file,
    read_record,
)
from mq.protocol.properties import decode
from mq.protocol.record import SMALLEST_RECORD

log = logging.getLogger(__name__)

_WRONG_NUMBER = "a record left out of its queue: its queue offset, {}, is not the next one"


class _Kept(NamedTuple):
    """A record that is kept back: the number that it claims, its entry, and where it lies."""

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
) -> None:
    """Make queues again from the records before a physical offset.

    ``is_left_out`` says which are not to be in any queue; ``on_damage`` is told of each other one
    that gets no place, by its physical offset and the reason. Raises OSError.
    """
    wanted = set()
    for queue in suspects:
        queue.clear()
        wanted.add((queue.topic, queue.queue_id))

    def on_wrong(one: _Kept) -> None:
        on_damage(one.physical, _WRONG_NUMBER.format(one.number))

    kept: dict[ConsumeQueue, list[_Kept]] = {}
    doubles: Counter[ConsumeQueue] = Counter()  # as of a topic that Java deleted and made again
    for record in _records(commit_log, end, on_damage):
        if (record.topic, record.queue_id) not in wanted or not record.is_queued:
            continue
        if is_left_out(record):
            continue
        properties = decode(record.properties) if record.properties else {}
        code = queue_tags_code(record.topic, properties, record.store_timestamp, delays)
        entry = layout.ENTRY.pack(record.physical, record.size, code)
        queue = queues.get_or_make(record.topic, record.queue_id)
        claimed = _Kept(record.queue_offset, entry, record.physical)
        rest = kept.setdefault(queue, [])
        _decide(queue, rest, claimed.number, on_wrong)
        if rest or claimed.number > queue.appended or not queue.appended:
            rest.append(claimed)
        elif not queue.restore(claimed.number, entry):
            doubles[queue] += 1
    for queue, rest in kept.items():
        if len(rest) > 1 and rest[1].number <= rest[0].number:
            on_wrong(rest.pop(0))
        for last in rest:
            if not queue.restore(last.number, last.entry):
                on_wrong(last)
    for queue, count in doubles.items():
        log.error("%r: %d records are left out, the queue has their offsets already", queue, count)


def _records(
    commit_log: CommitLog, end: int, on_damage: Callable[[int, str], None]
) -> Iterator[Record]:
    """The records before a physical offset, each damage told by its offset. It lies before what a
    start verifies, and all behind it would be gone with it: a record of which only the body is
    damaged is among them, and behind another one the next that is whole."""
    position = commit_log.minimum
    while position < end and (file := commit_log.file_at(position)) is not None:
        heads = Heads(file)
        while position < file.end:
            try:
                for record in read_file(file, position - file.start):
                    if record.physical >= end:
                        return
                    yield record
                    position = record.physical + record.size
                position = file.end
                break
            except EndOfLog:
                damaged, why = None, "zeros where a record should be"
            except BadRecord as error:
                damaged, why = _without_body(file, position), str(error)
            if position >= end:
                return
            on_damage(position, why)
            if damaged is not None:
                yield damaged
                position += damaged.size
            else:
                found = heads.next_record(position - file.start + 1)
                position = file.end if found is None else file.start + found


def _without_body(file: MappedFile, physical: int) -> Record | None:
    """The record at a physical offset if it may be but for its body."""
    position = physical - file.start
    if file.size - position < SMALLEST_RECORD:
        return None
    try:
        return read_record(file.view, position, physical, check_body=False)
    except BadRecord:
        return None


def _decide(
    queue: ConsumeQueue, kept: list[_Kept], following: int, on_wrong: Callable[[_Kept], None]
) -> None:
    """Restore those kept back that the number of the next record agrees with, and take out those
    that it shows to be wrong. Of two that do not agree the one is wrong that is farther from the
    third."""
    while kept:
        if len(kept) > 1:
            first, second = (_missing(one.number, following) for one in kept)
            is_second = first < second or 0 < first == second < math.inf  # its own place is free
            on_wrong(kept.pop(is_second))
        elif following == queue.appended > 0:
            on_wrong(kept.pop())
        elif _missing(kept[0].number, following) > MOST_FILLED:
            return
        else:
            one = kept.pop()
            if not queue.restore(one.number, one.entry):
                on_wrong(one)


def _missing(number: int, following: int) -> float:
    """How many messages are missing between two of a queue; infinity where they cannot follow each
    other."""
    missing = following - number - 1
    return missing if 0 <= missing <= MOST_FILLED else math.inf
