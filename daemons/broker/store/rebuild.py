"""Making queues again whose files disagree with the log, by reading all of it.

The numbers of a queue's messages go up by one. No checksum covers them, and one wrong bit lets a
record claim a place far behind its own: the messages that follow would have no place of theirs any
more. So a record that leaves a gap before it is kept back until the next one of its queue shows
whether there is a gap: messages may be missing, or the older ones be gone with their files.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.queues import Queues
from mq.daemons.broker.store.records import Record, queue_tags_code, read_log
from mq.protocol.properties import decode

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
    that gets no place, by its physical offset and the reason. Raises BadRecord, OSError.
    """
    wanted = set()
    for queue in suspects:
        queue.clear()
        wanted.add((queue.topic, queue.queue_id))
    kept: dict[ConsumeQueue, _Kept] = {}
    doubles: Counter[ConsumeQueue] = Counter()  # as of a topic that Java deleted and made again
    for record in read_log(commit_log, commit_log.minimum):
        if record.physical >= end:
            break
        if (record.topic, record.queue_id) not in wanted or not record.is_queued:
            continue
        if is_left_out(record):
            continue
        properties = decode(record.properties) if record.properties else {}
        code = queue_tags_code(record.topic, properties, record.store_timestamp, delays)
        entry = layout.ENTRY.pack(record.physical, record.size, code)
        queue = queues.get_or_make(record.topic, record.queue_id)
        before = kept.pop(queue, None)
        if before is not None:
            is_gap = record.queue_offset > before.number
            if not (is_gap and queue.restore(before.number, before.entry)):
                on_damage(before.physical, _WRONG_NUMBER.format(before.number))
        if record.queue_offset > queue.appended:
            kept[queue] = _Kept(record.queue_offset, entry, record.physical)
        elif not queue.restore(record.queue_offset, entry):
            doubles[queue] += 1
    for queue, last in kept.items():
        if not queue.restore(last.number, last.entry):
            on_damage(last.physical, _WRONG_NUMBER.format(last.number))
    for queue, count in doubles.items():
        log.error("%r: %d records are left out, the queue has their offsets already", queue, count)
