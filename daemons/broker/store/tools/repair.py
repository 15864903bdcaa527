"""Repairs a store that no broker serves, so that both this broker and Java's can start on it.

For a recovery, damage in the middle of the log ends the log: it would truncate everything after it.
So each hole is filled with records of its length that no consumer sees: they are rollbacks of
transactions, which are in no queue and no index, and their bodies are the damaged bytes. Then a
recovery, the one of a broker's start, rebuilds queues and index from the whole log.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log.records import Record
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.queue.generations import Deletions
from mq.daemons.broker.store.recovery import quarantine
from mq.daemons.broker.store.tools.offline import Hole, OfflineLog, ReadOnlyFile
from mq.daemons.broker.store.tools.verification import (
    VerificationReport,
    index_files,
    index_items_at,
)
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.protocol.checksum import crc32
from mq.protocol.flags import SysFlag
from mq.protocol.record import (
    BLANK,
    CRC_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    RECORD_HEAD,
    SMALLEST_RECORD,
)

DAMAGED_TOPIC = b"MQ_DAMAGED"
_OVERHEAD = RECORD_HEAD.size + 1 + len(DAMAGED_TOPIC) + layout.SHORT.size
_SMALLEST = SMALLEST_RECORD + 1  # with as much of the topic as fits
_LARGEST_BODY = 1 << 20
_NO_HOST = bytes(8)


@dataclass(frozen=True)
class Repair:
    """One repair step. ``offset`` and ``size`` are those of the place in the log, -1 and 0 for
    none.
    """

    path: Path
    offset: int
    size: int
    what: str
    do: Callable[[], None]


def plan(root: Path, log: OfflineLog, verified: VerificationReport) -> list[Repair]:
    """Return the repair steps for a verified store; none for one without problems."""
    repairs = list(_log_repairs(log))
    parts = {problem.part for problem in verified.problems} | set(verified.unreported)
    if "index" in parts:
        repairs += [
            Repair(path, -1, 0, "rebuilt from the log", _nothing) for path in index_files(root)
        ]
    deleted = verified.deleted_topics | {topic for topic, _ in verified.restarted_queues}
    if deleted and parts & {"log", "queue", "index", "checkpoint", "deletions"}:
        # The recovery that follows reads the whole log and would restore these topics, even in
        # place of messages stored since.
        end = max(file.end for file in log.files)
        path = root / layout.DELETIONS_FILE
        what = f"record that {', '.join(sorted(deleted))} were deleted"
        restarted = verified.restarted_queues
        note = _RecordDeletions(root, sorted(verified.deleted_topics), end, restarted, log)
        repairs.append(Repair(path, -1, 0, what, note))
    elif "deletions" in parts:
        path = root / layout.DELETIONS_FILE
        repairs.append(Repair(path, -1, 0, "rebuilt from the queues and the log", _nothing))
    if parts & {"queue", "log"}:
        folder = layout.consume_queue_path(root)
        repairs.append(Repair(folder, -1, 0, "rebuilt from the log", _nothing))
    if "checkpoint" in parts:
        path = root / layout.CHECKPOINT_FILE
        repairs.append(Repair(path, -1, 0, "rebuilt", _nothing))
    return repairs


async def recover(root: Path, config: MessageStoreConfig) -> None:
    """Rebuild queues, index and checkpoint from the whole log.

    Raises StoreLocked, StoreLoadError, OSError.
    """
    fitted = fit(root, config)
    # Without a checkpoint, and as after a power failure, recovery starts at the first byte and
    # trusts no existing queue or index.
    files.write_new(root / layout.ABORT_FILE, b"")
    files.remove(root / layout.CHECKPOINT_FILE)
    files.sync_folder(root)
    for path in index_files(root):
        if index_items_at(files.size(path)) is not None:  # else their sizes are unknown
            files.unlink(path)
    logging.disable(logging.ERROR)  # the damage was reported before, and is repaired
    try:
        store = MessageStore(lambda: fitted, _NO_HOST, is_verified=True)
        await store.start()
        await store.close()
    finally:
        logging.disable(logging.NOTSET)


def fit(root: Path, config: MessageStoreConfig) -> MessageStoreConfig:
    """Return the settings with the file sizes that the store has."""
    config = config.replace(store_path_root_dir=str(root))
    log_files = _sizes(layout.commit_log_path(root), 0)
    if log_files:
        config = config.replace(mapped_file_size_commit_log=max(log_files))
    queue_files = _sizes(layout.consume_queue_path(root), 2)
    # A file that was cut short is damaged, and rebuilt.
    if longest := max((n for n in queue_files if n % layout.ENTRY_SIZE == 0), default=0):
        config = config.replace(mapped_file_size_consume_queue=longest)
    for path in index_files(root)[:1]:
        size = files.size(path)
        if (items_at := index_items_at(size)) is not None:
            config = config.replace(
                max_hash_slot_num=(items_at - layout.INDEX_HEADER.size) // layout.INDEX_SLOT.size,
                max_index_num=(size - items_at) // layout.INDEX_ITEM.size,
            )
    return config


def copy_store(root: Path, target: Path, step: Callable[[int], None]) -> None:
    """Copy a store, keeping holes. Raises OSError, and FileExistsError if the target exists."""
    files.make_folders(target.parent)
    _copy_folder(root, target, (root / layout.LOCK_FILE,), (), step)


def _copy_folder(
    folder: Path,
    target: Path,
    left: Collection[Path],
    above: Collection[tuple[int, int]],
    step: Callable[[int], None],
) -> None:
    """Copy a folder. ``above`` are the folders that contain it, by device and inode, because a link
    may lead back to one of them.
    """
    status = files.stat(folder)
    here = status.st_dev, status.st_ino
    if here in above:
        return
    files.mkdir(target)
    for path in files.children(folder):
        if path in left:
            continue
        if files.is_folder(path):
            _copy_folder(path, target / path.name, left, (*above, here), step)
        else:
            _copy_file(path, target / path.name, step)


def _copy_file(source: Path, target: Path, step: Callable[[int], None]) -> None:
    create = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with files.opened(source, os.O_RDONLY) as old, files.opened(target, create) as new:
        size = files.fstat(old).st_size
        files.ftruncate(new, size)
        try:
            files.copy_data(old, 0, size, new, 0, step)
        except OSError as error:
            if error.errno not in files.UNREADABLE:
                raise
            files.copy_around(old, 0, size, new, 0)
        files.fsync(new)


def _sizes(folder: Path, depth: int) -> list[int]:
    """The sizes of the log or queue files that lie ``depth`` folders below this one."""
    if not files.is_folder(folder):
        return []
    below = files.children(folder)
    if depth:
        return [size for path in below for size in _sizes(path, depth - 1)]
    return [files.size(path) for path in below if layout.file_offset(path.name) is not None]


def _nothing() -> None:
    """Do nothing: the final recovery does this step."""


@dataclass(frozen=True)
class _RecordDeletions:
    """Records that topics were deleted before the end of the log, and where earlier queues
    ended."""

    root: Path
    topics: list[str]
    end: int
    restarted_queues: Mapping[tuple[str, int], int]
    log: OfflineLog

    def __call__(self) -> None:
        deletions = Deletions(self.root)
        deletions.load()
        deletions.forget_foreign(self.log)
        deletions.add(self.topics, self.end, self.log)
        deletions.add_queues(self.restarted_queues, self.log)


# the log --------------------------------------------------------------------------------------


def _log_repairs(log: OfflineLog) -> Iterator[Repair]:
    """Yield how each hole is closed. A hole too small for a record is joined with the next
    record."""
    timestamp = 0
    hole: Hole | None = None
    for item in log.walk():
        if isinstance(item, Hole):
            if hole is not None:
                yield _close(log, hole, timestamp)
            hole = item
        elif hole is not None and hole.size < _SMALLEST and _adjacent(log, hole, item):
            hole = Hole(hole.path, hole.offset, hole.size + item.size, hole.why)
        else:
            timestamp = timestamp or item.store_timestamp
            if hole is not None:
                yield _close(log, hole, timestamp)
                hole = None
            timestamp = item.store_timestamp
    if hole is not None:
        yield _close(log, hole, timestamp)


def _adjacent(log: OfflineLog, hole: Hole, record: Record) -> bool:
    """Whether a record follows a hole in the same file; the next file starts with its own
    record."""
    file = log.file_at(record.physical)
    is_first = file is not None and file.start == record.physical
    return hole.offset + hole.size == record.physical and not is_first


def _close(log: OfflineLog, hole: Hole, timestamp: int) -> Repair:
    file = log.file_at(hole.offset)
    do: Callable[[], None]
    if file is None:
        return _close_without_file(log, hole)
    is_last = not any(later.data_end for later in log.files if later.start > file.start)
    if is_last and hole.offset + hole.size >= file.start + file.data_end:
        what = "truncated, kept in damaged/"  # as a recovery does after the last record
        return Repair(hole.path, hole.offset, hole.size, what, _nothing)
    pieces = list(_zeros(file, hole))
    if hole.offset + hole.size == file.end:
        room = file.start + log.file_size - hole.offset  # also in a file that is extended later
        if room < BLANK.size:
            what = "unchanged: no room to end the file"
            return Repair(hole.path, hole.offset, hole.size, what, _nothing)
        pieces += [(hole.offset - file.start, BLANK.pack(room, MAGIC_BLANK))]
        what = "replaced by a blank to the end of the file"
    else:
        pieces += _fillers(file, hole, timestamp)
        what = "filled with records that no consumer sees"
    position = hole.offset - file.start
    do = _Write(hole.path, tuple(pieces), hole.offset, position, position + hole.size)
    return Repair(hole.path, hole.offset, hole.size, what + ", the bytes kept in damaged/", do)


def _close_without_file(log: OfflineLog, hole: Hole) -> Repair:
    """As `_close`, for holes of shortened and missing files."""
    size, end = log.file_size, hole.offset + hole.size
    short = next((f for f in log.files if f.end == hole.offset and f.size < size), None)
    parts: list[Callable[[], None]] = []
    what = []
    start = hole.offset
    if short is not None:
        start = short.start + size
        ending = BLANK.pack(size - short.size, MAGIC_BLANK) if short is not log.files[-1] else b""
        parts.append(_Extend(short.path, size, ending))
        what.append("extended to the size of the others")
    if starts := tuple(range(start, end, size)):
        parts.append(_Fill(hole.path.parent, starts, size))
        what.append(f"{len(starts)} empty files created for missing ones")
    path = hole.path if short is not None else hole.path.parent
    return Repair(path, hole.offset, hole.size, ", ".join(what), _Sequence(tuple(parts)))


def _zeros(file: ReadOnlyFile, hole: Hole) -> Iterator[tuple[int, bytes]]:
    """Yield (position in the file, zeros to write) for the unreadable blocks of a hole.

    They are written first, because a disk can write such a block only as a whole. No record touches
    one, so each lies in the hole.
    """
    begin, end = hole.offset - file.start, hole.offset - file.start + hole.size
    for position in range(begin, end, _LARGEST_BODY):
        _, unreadable = file.read_around(position, min(_LARGEST_BODY, end - position))
        for block in unreadable:
            if begin <= block and min(block + files.BLOCK, file.size) <= end:
                yield block, bytes(min(files.BLOCK, file.size - block))


def _fillers(file: ReadOnlyFile, hole: Hole, timestamp: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position in the file, bytes to write) of heads and tails of records that fill a hole.

    The bytes between head and tail of each record, its body, stay unchanged.
    """
    position = hole.offset - file.start
    left = hole.size
    while left:
        size = left
        if left > _OVERHEAD + _LARGEST_BODY:
            size = min(_OVERHEAD + _LARGEST_BODY, left - _OVERHEAD)
        body_at = position + RECORD_HEAD.size
        topic = DAMAGED_TOPIC[: size - SMALLEST_RECORD]
        body_size = size - SMALLEST_RECORD - len(topic)
        body, _ = file.read_around(body_at, body_size)
        head = RECORD_HEAD.pack(
            *(size, MAGIC_V1, crc32(body) & CRC_MASK, 0, 0, 0, file.start + position),
            *(
                SysFlag.TRANSACTION_ROLLBACK,
                timestamp,
                _NO_HOST,
                timestamp,
                _NO_HOST,
                0,
                0,
                body_size,
            ),
        )
        tail = bytes((len(topic),)) + topic + layout.SHORT.pack(0)
        yield position, head
        yield body_at + body_size, tail
        position += size
        left -= size


@dataclass(frozen=True)
class _Sequence:
    """Does several steps."""

    parts: tuple[Callable[[], None], ...]

    def __call__(self) -> None:
        for part in self.parts:
            part()


@dataclass(frozen=True)
class _Write:
    """Keeps the bytes of a hole in damaged/ and overwrites them.

    Raises StoreLoadError if they cannot be kept; nothing was overwritten then.
    """

    path: Path
    pieces: tuple[tuple[int, bytes], ...]
    offset: int
    position: int  # of the hole in the file; `end` is the position after it
    end: int

    def __call__(self) -> None:
        folder = self.path.parent.parent / quarantine.DAMAGED_FOLDER
        with files.opened(self.path, os.O_RDWR) as descriptor:
            quarantine.keep_part(folder, descriptor, self.position, self.end, self.offset)
            for position, data in self.pieces:
                files.write_all(descriptor, data, position)
            files.fsync(descriptor)


@dataclass(frozen=True)
class _Extend:
    """Restores the size of a shortened file."""

    path: Path
    size: int
    ending: bytes

    def __call__(self) -> None:
        with files.opened(self.path, os.O_WRONLY) as descriptor:
            end = files.fstat(descriptor).st_size
            if len(self.ending) <= self.size - end:
                files.write_all(descriptor, self.ending, end)
            files.ftruncate(descriptor, self.size)
            files.fsync(descriptor)


@dataclass(frozen=True)
class _Fill:
    """Creates log files that contain nothing but a blank."""

    folder: Path
    starts: tuple[int, ...]
    size: int

    def __call__(self) -> None:
        for start in self.starts:
            path = self.folder / layout.file_name(start)
            with files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
                files.write_all(descriptor, BLANK.pack(self.size, MAGIC_BLANK))
                files.ftruncate(descriptor, self.size)
                files.fsync(descriptor)
        files.sync_folder(self.folder)
