"""Common end: up to where the log of a slave is that of its master (docs/decisions/0049).

The wire of replication has no handshake: a slave says where its log ends, and gets what its master
has from there on, whatever stands before it. So before it says so, a slave of ours asks its master
for the last message that it has, as tools do that look for a message by its id, and compares all
bytes. A record has its own place, its time, and the address of the broker that took it: where one
is the same in both logs, all that is before it is.

Where it is not, the last that is the same is found by halving, first among the files, then within
one. Nothing is the same in the store of another master, which is left alone, and where a slave had
just begun with the last file of a master that then lost all of it: such a master knows where it
lost its end, right before that file, and the same broker's records are there again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from mq.daemons.broker.store.commit_log import CommitLog, record_store_host
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.mapped_file import MappedFile
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.replica import NotReplicated
from mq.daemons.broker.store.windows import LogReader
from mq.protocol.record import BLANK, MAGIC_V1, MAGIC_V2, SMALLEST_RECORD

# How often, and after how long, a master is asked again for what may be on its way to its disk.
_LOOKS = 5
_LOOK_SECONDS = 0.2


class Bounds(NamedTuple):
    """What the log of a master has: physical offsets."""

    begin: int
    end: int
    recovered_end: int | None = None  # where it ended when it may have lost what came behind


class Master(Protocol):
    """What is asked of a master. Both raise MQError."""

    async def record_at(self, physical: int) -> bytes | None:
        """The record that begins at an offset of its log, None if none does."""

    async def bounds(self) -> Bounds:
        """Where its log begins and ends, and may have lost its end."""


async def common_end(store: MessageStore, master: Master) -> int:
    """The physical offset behind the last record that both have.

    Raises NotReplicated where nothing is common, or the master has too little left to tell; MQError
    as the master's answers do.
    """
    log = store.log
    if log.written <= log.minimum:
        return log.written
    # What is made here by the way while a thread looks is not this list.
    last = await asyncio.to_thread(_last_record, store.log, list(store.queues))
    if last is not None and await _is_common(log, last, master):
        return log.written
    begin, end, recovered_end = await master.bounds()
    if last is not None and log.written <= end and await _is_shown_soon(log, last, master):
        return log.written
    if log.written < begin:
        raise NotReplicated(
            f"the master's log begins at {begin}, this one ends at {log.written}: what is between "
            f"is gone; to begin anew with what the master has, move {store.root} away"
        )
    file = await _last_common_file(log, master, begin)
    if file is None and await _has_lost_all(log, master, recovered_end):
        return log.minimum
    if file is None:
        raise NotReplicated(
            f"this store is of another master: its log from {max(begin, log.minimum)} on is not "
            f"the one of this master, which ends at {end}; move {store.root} away, or find its "
            f"master (haMasterAddress, brokerName)"
        )
    starts = await asyncio.to_thread(_records_of, file, log.written)

    async def holds(number: int) -> bool:
        return await _is_common(log, starts[number], master)

    number = await _last_that(holds, len(starts))
    found = log.record_at(starts[number]) if number >= 0 else None
    if found is None:  # old files have been deleted meanwhile, here or there
        raise NotReplicated("what was compared with the master is gone: it is compared again")
    return starts[number] + len(found)


async def _is_common(log: CommitLog, physical: int, master: Master) -> bool:
    own = log.record_at(physical)
    return own is not None and await master.record_at(physical) == own


async def _is_shown_soon(log: CommitLog, physical: int, master: Master) -> bool:
    """With SYNC_FLUSH a master shows nobody what is not on its disk yet, and has sent that."""
    for _ in range(_LOOKS):
        await asyncio.sleep(_LOOK_SECONDS)
        if await _is_common(log, physical, master):
            return True
    return False


async def _has_lost_all(log: CommitLog, master: Master, recovered_end: int | None) -> bool:
    """Whether the master has lost all that this log has, which began with its last file then."""
    if recovered_end is None or not 0 <= log.minimum - recovered_end <= log.file_size:
        return False
    own, now = log.record_at(log.minimum), await master.record_at(log.minimum)
    if own is None or now is None or len(now) < SMALLEST_RECORD:
        return False  # it has not come so far again, and is asked again
    return record_store_host(own) == record_store_host(now)


async def _last_common_file(log: CommitLog, master: Master, begin: int) -> MappedFile | None:
    """The last file of which the master has the first record."""
    files: Sequence[MappedFile] = [file for file in log.files if begin <= file.start < log.written]

    async def holds(number: int) -> bool:
        return await _is_common(log, files[number].start, master)

    number = await _last_that(holds, len(files))
    return files[number] if number >= 0 else None


async def _last_that(holds: Callable[[int], Awaitable[bool]], count: int) -> int:
    """The last number below a count for which something holds that holds for all before it; -1 if
    for none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if await holds(middle):
            low = middle + 1
        else:
            high = middle
    return low - 1


def _last_record(log: CommitLog, queues: Sequence[ConsumeQueue]) -> int | None:
    """Where the last record of the log begins. In a thread."""
    # Nearly each record is in a queue: begin at the last of those.
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
    """Where the records of a file begin, up to an end of the log. In a thread. Raises OSError."""
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
