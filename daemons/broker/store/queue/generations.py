"""Queue generations: decides which records of the log belong to an earlier generation of their
queue.

If a topic is deleted and created again, its queues restart at queue offset 0, and the log has the
records of both generations until retention deletes them. The list of deletions has the end of each
generation, but Java writes no such list. The first entry of a queue, if its record agrees, is the
start of the current generation.

`Deletions` is the list of deletions: which topics were deleted, and at which offset of the log.

The messages of a deleted topic stay in the log until retention deletes their files. A recovery must
not put them into queues: the topic would reappear, and if it was created again, its old messages
would take the queue offsets of the new ones. Java has no such file.

A slave does not see that its master deletes a topic, only that a queue restarts at queue offset 0.
It adds such queues to the list one by one.

The file and its backup have the same content, so damage to one of them loses nothing.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import orjson

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import LogReader
from mq.daemons.broker.store.log.records import Record, record_in
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.protocol.checksum import crc32
from mq.protocol.names import is_system_topic

log = logging.getLogger(__name__)

_MARKED = 256  # bytes of the log that a mark has the checksum of


class MarkedFile(Protocol):
    """A file of a log."""

    @property
    def start(self) -> int: ...
    def read(self, position: int, size: int) -> bytes: ...


class MarkedLog(Protocol):
    """A log. Bytes before ``flushed`` are on the disk."""

    @property
    def minimum(self) -> int: ...
    @property
    def flushed(self) -> int: ...
    def file_at(self, offset: int, /) -> MarkedFile | None: ...


class Mark(NamedTuple):
    """Identifies a log: the checksum of the bytes before an offset that no power cut can take."""

    end: int
    checksum: int

    @classmethod
    def of(cls, log: MarkedLog, end: int) -> "Mark | None":
        """None if the log has no bytes before that offset. Raises OSError."""
        file = log.file_at(end - 1) if end > log.minimum else None
        if file is None:
            return None
        position = end - file.start
        size = min(position, _MARKED)
        return cls(end, crc32(file.read(position - size, size)))

    def may_be_of(self, log: MarkedLog) -> bool:
        """False if the log has other bytes there; True also if they are deleted or unreadable."""
        try:
            return self.end <= log.minimum or Mark.of(log, self.end) == self
        except OSError:
            return True


class _Content(NamedTuple):
    """The content of the file: offsets by topic or queue, and marks by offset."""

    offsets: dict[str, int]
    marks: dict[int, Mark]


class Deletions:
    """Physical offsets by topic, or by topic and queue id: what lies before one is gone."""

    def __init__(self, root: Path) -> None:
        self._path = root / layout.DELETIONS_FILE
        self._offsets: dict[str, int] = {}
        self._marks: dict[int, Mark] = {}
        self._has_queues = False
        self._is_doubled = True
        # The list cannot be read: deletions may be missing from it.
        self.is_damaged = False

    def load(self) -> None:
        """Read the file, or its backup if the file is damaged."""
        content = read_with_backup(self._path, _decode)
        first, second = (_content(path) for path in (self._path, _backup(self._path)))
        self._is_doubled = first == second
        self.is_damaged = content is None and (first, second) != (None, None)
        self._take(content or _Content({}, {}))
        if self.is_damaged:
            log.error(
                "%s and its backup are damaged: recovery derives the deletions from queue files "
                "and log. A topic that was deleted may show old messages when it is created again; "
                "if it does, delete it again",
                self._path,
            )

    def forget_foreign(self, log_: MarkedLog) -> None:
        """Drop the offsets of another log, for example after the restore of an older backup.

        Call it before the log is truncated.
        """
        foreign = {offset for offset, mark in self._marks.items() if not mark.may_be_of(log_)}
        if not foreign:
            return
        names = sorted(name for name, offset in self._offsets.items() if offset in foreign)
        log.warning(
            "%s: ignored the deletions of %s, which belong to another log than the one here",
            *(self._path, ", ".join(names)),
        )
        kept = {name: at for name, at in self._offsets.items() if at not in foreign}
        self._take(_Content(kept, self._marks))
        self._is_doubled = False

    def covers(self, topic: str, queue_id: int, physical: int) -> bool:
        """Whether the record at an offset is of a topic, or in a queue, that was deleted after
        it."""
        if physical < self._offsets.get(topic, 0):
            return True
        return self._has_queues and physical < self._offsets.get(_key(topic, queue_id), 0)

    def last_of(self, topic: str, queue_id: int) -> int:
        """The offset of the last deletion of a queue, or of its topic; 0 if none is known."""
        own = self._offsets.get(_key(topic, queue_id), 0) if self._has_queues else 0
        return max(own, self._offsets.get(topic, 0))

    def add(self, topics: Iterable[str], physical: int, log_: MarkedLog) -> None:
        """Record that topics are deleted now, and drop the topics of which the log has no record
        any more.

        Raises OSError; the topics then do not count as deleted, and must not be deleted.
        """
        self._add(dict.fromkeys(topics, physical), log_)

    def add_queues(self, queues: Mapping[tuple[str, int], int], log_: MarkedLog) -> None:
        """Record that queues, by topic and id, restart at offsets, in one write. Raises as
        `add`."""
        self._add({_key(*queue): physical for queue, physical in queues.items()}, log_)

    def _add(self, added: dict[str, int], log_: MarkedLog) -> None:
        kept = {name: offset for name, offset in self._offsets.items() if offset > log_.minimum}
        self._save(kept | added, log_)

    def cut(self, end: int, log_: MarkedLog) -> None:
        """Lower the offsets to the end of the log, after it was truncated. An empty log needs none:
        on a slave it may restart at a lower offset.

        Raises OSError; then nothing may be appended to the log.
        """
        if end <= log_.minimum:
            if self._offsets:
                self._save({}, log_)
        elif any(offset > end for offset in self._offsets.values()):
            self._save({name: min(offset, end) for name, offset in self._offsets.items()}, log_)
        elif not self._is_doubled:
            try:
                self._save(self._offsets, log_)
            except OSError as error:  # such as a full disk; the other copy is good
                self._not_doubled(error)

    def _save(self, offsets: dict[str, int], log_: MarkedLog) -> None:
        marks: dict[int, Mark] = {}
        for offset in set(offsets.values()):
            mark = self._marks.get(offset) or _readable_mark(log_, min(offset, log_.flushed))
            if mark is not None:
                marks[offset] = mark
        content = _Content(offsets, marks)
        data = _encode(content)
        write_atomically(self._path, data)
        self._take(content)
        self._is_doubled = False
        try:
            write_atomically(self._path, data)  # its backup is the same now
            self._is_doubled = True
        except OSError as error:  # the deletions count, so the caller must not fail
            self._not_doubled(error)

    def _not_doubled(self, error: OSError) -> None:
        log.error("%s cannot be written now: %s", self._path, error)

    def _take(self, content: _Content) -> None:
        self._offsets, self._marks = content
        self._has_queues = any("/" in key for key in self._offsets)


def _key(topic: str, queue_id: int) -> str:
    """No topic has a slash in its name."""
    return f"{topic}/{queue_id}"


def _readable_mark(log_: MarkedLog, end: int) -> Mark | None:
    """As `Mark.of`, and None if the disk cannot read the bytes."""
    try:
        return Mark.of(log_, end)
    except OSError as error:
        if error.errno not in files.UNREADABLE:
            raise
        return None


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _content(path: Path) -> bytes | None:
    try:
        return files.read_bytes(path)
    except OSError:
        return None


def _checksum(entries: Mapping[str, int]) -> str:
    """The checksum of the file as a key. One wrong bit of an offset would remove all messages of a
    topic from their queues. Older readers treat the key as a topic without deletions."""
    return f"#{crc32(orjson.dumps(entries)):08x}"


def _encode(content: _Content) -> bytes:
    """Marks are entries with the key `@OFFSET:END:CHECKSUM`, which older readers accept."""
    marks = {
        f"@{offset}:{mark.end}:{mark.checksum:08x}": offset
        for offset, mark in content.marks.items()
    }
    entries = {**content.offsets, **marks}
    return orjson.dumps({**entries, _checksum(entries): 0})


def _decode(data: bytes) -> _Content:
    try:
        entries = {str(topic): int(offset) for topic, offset in orjson.loads(data).items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no offsets by topic: {error}") from None
    checksums = [name for name in entries if name.startswith("#")]
    for name in checksums:
        del entries[name]
    if checksums and checksums != [_checksum(entries)]:
        raise ValueError("its checksum is wrong")
    marks = {}
    for name in [name for name in entries if name.startswith("@")]:
        _, end, checksum = name.split(":")
        marks[entries.pop(name)] = Mark(int(end), int(checksum, 16))
    return _Content(entries, marks)


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
