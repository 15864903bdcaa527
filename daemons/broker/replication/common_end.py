"""Common end: the offset up to which a slave's log equals its master's log (docs/decisions/0049).

The replication protocol has no handshake: a slave sends the end of its log, and gets the master's
log from there on, whatever comes before. So a slave of this broker first requests the record of its
last message from the master, as tools do that search a message by its id, and compares all bytes. A
record has its own offset, its time, and the address of the broker that stored it: if one record is
equal in both logs, everything before it is.

If it differs, the last equal record is found by bisection, first among the files, then within one.
No record is equal in the store of another master, which is left alone, and in one other case: the
slave had just started with the last file of a master that then lost all of that file. Such a master
knows where it lost its end, right before that file, and stores records of the same broker there
again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from mq.daemons.broker.store import (
    CommitLog,
    ConsumeQueue,
    LogReader,
    MappedFile,
    MessageStore,
    NotReplicated,
    record_store_host,
)
from mq.protocol.record import BLANK, MAGIC_V1, MAGIC_V2, SMALLEST_RECORD

# How often, and with what pause in seconds, a master is asked again for a record that it may not
# have flushed yet.
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.2


class Bounds(NamedTuple):
    """The range of a master's log, in physical offsets."""

    begin: int
    end: int
    recovered_end: int | None = None  # set if the log may have lost its end


class Master(Protocol):
    """The queries to a master. Both raise MQError."""

    async def record_at(self, physical: int) -> bytes | None:
        """The record that starts at an offset of its log, or None."""

    async def bounds(self) -> Bounds:
        """The start, end and recovered end of its log."""


async def common_end(store: MessageStore, master: Master) -> int:
    """Return the physical offset after the last record that both logs have.

    Raises NotReplicated if the logs have nothing in common, or the master has too little left to
    decide; MQError as the queries do.
    """
    log = store.log
    if log.written <= log.minimum:
        return log.written
    # a copy, because queues may be created while a thread iterates over it
    last = await asyncio.to_thread(_last_record, store.log, list(store.queues))
    if last is not None and await _is_common(log, last, master):
        return log.written
    begin, end, recovered_end = await master.bounds()
    if last is not None and log.written <= end and await _is_shown_soon(log, last, master):
        return log.written
    if log.written < begin:
        raise NotReplicated(
            f"the master's log starts at {begin}, but this one ends at {log.written}: the part in "
            f"between has expired; to start again from the master's log, move {store.root} away"
        )
    file = await _last_common_file(log, master, begin)
    if file is None and await _has_lost_all(log, master, recovered_end):
        return log.minimum
    if file is None:
        raise NotReplicated(
            f"this store belongs to another master: its log from {max(begin, log.minimum)} on "
            f"differs from the log of this master, which ends at {end}; move {store.root} away, "
            f"or replicate from its master (haMasterAddress, brokerName)"
        )
    starts = await asyncio.to_thread(_records_of, file, log.written)

    async def holds(number: int) -> bool:
        return await _is_common(log, starts[number], master)

    number = await _last_that(holds, len(starts))
    found = log.record_at(starts[number]) if number >= 0 else None
    if found is None:  # old files have been deleted meanwhile, here or there
        raise NotReplicated("the records compared with the master have expired; comparing again")
    return starts[number] + len(found)


async def _is_common(log: CommitLog, physical: int, master: Master) -> bool:
    own = log.record_at(physical)
    return own is not None and await master.record_at(physical) == own


async def _is_shown_soon(log: CommitLog, physical: int, master: Master) -> bool:
    """Whether the master shows a record soon: with SYNC_FLUSH it shows no record that is not on its
    disk yet, although it has sent it.
    """
    for _ in range(_ATTEMPTS):
        await asyncio.sleep(_PAUSE_SECONDS)
        if await _is_common(log, physical, master):
            return True
    return False


async def _has_lost_all(log: CommitLog, master: Master, recovered_end: int | None) -> bool:
    """Whether the master has lost everything that this log has, which started with the master's
    last file.
    """
    if recovered_end is None or not 0 <= log.minimum - recovered_end <= log.file_size:
        return False
    own, now = log.record_at(log.minimum), await master.record_at(log.minimum)
    if own is None or now is None or len(now) < SMALLEST_RECORD:
        return False  # the master has not reached this offset again yet; it is asked later
    return record_store_host(own) == record_store_host(now)


async def _last_common_file(log: CommitLog, master: Master, begin: int) -> MappedFile | None:
    """The last file whose first record the master has."""
    files: Sequence[MappedFile] = [file for file in log.files if begin <= file.start < log.written]

    async def holds(number: int) -> bool:
        return await _is_common(log, files[number].start, master)

    number = await _last_that(holds, len(files))
    return files[number] if number >= 0 else None


async def _last_that(holds: Callable[[int], Awaitable[bool]], count: int) -> int:
    """The last number below ``count`` for which ``holds`` is true, if it is true for all smaller
    ones; -1 if for none.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if await holds(middle):
            low = middle + 1
        else:
            high = middle
    return low - 1


def _last_record(log: CommitLog, queues: Sequence[ConsumeQueue]) -> int | None:
    """The start of the last record of the log. Runs in a thread."""
    # Nearly every record is in a queue: start at the last of those.
    newest = -1
    for queue in queues:
        entry = queue.entry(queue.readable - 1) if queue.readable > queue.minimum else None
        if entry is not None and newest < entry[0] < log.written:
            newest = entry[0]
    if newest < 0 or log.record_at(newest) is None:
        file = log.file_at(log.written - 1)
        newest = log.minimum if file is None else file.start
    found = None
    while newest < log.written and (file := log.file_at(newest)) is not None:
        starts = _records_of(file, log.written, newest)
        found = starts[-1] if starts else found
        newest = file.end
    return found


def _records_of(file: MappedFile, end: int, begin: int | None = None) -> list[int]:
    """The starts of the records of a file, up to an end of the log. Runs in a thread. Raises
    OSError.
    """
    position = file.start if begin is None else begin
    reader, starts = LogReader(file), []
    while end - position >= BLANK.size and file.end - position >= BLANK.size:
        view, begin = reader.window(position - file.start, BLANK.size)
        size, magic = BLANK.unpack_from(view, position - file.start - begin)
        if magic not in (MAGIC_V1, MAGIC_V2) or size < SMALLEST_RECORD:
            break
        starts.append(position)
        position += size
    return starts
