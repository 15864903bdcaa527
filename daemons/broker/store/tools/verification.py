"""Verification: compares a store with its log, and reports what a broker would find wrong, and
where.

The log is the truth. Each record is verified by its checksum. Each message that consumers may see
must have an entry in its queue that points at it and has its tag's code, and each entry and each
item of the index must point at such a message. Nothing is written.

Wrong bits are not found where nothing has the right value: in a record outside its body, in the
time of a delayed message's entry, in the slots of the index.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.checkpoint import Checkpoint, damage_of
from mq.daemons.broker.store.index.index import key_hash
from mq.daemons.broker.store.log.records import Record, keys_of
from mq.daemons.broker.store.queue.generations import Deletions, first_matching
from mq.daemons.broker.store.recovery.known_topics import known_topics
from mq.daemons.broker.store.tools.offline import Hole, OfflineLog, OpenFiles, ReadOnlyFile
from mq.protocol import fastjson
from mq.protocol.names import SCHEDULE_TOPIC, is_system_topic
from mq.protocol.properties import PropertyKey, decode
from mq.protocol.tags import tags_code

Step = Callable[[int], None]

# Java's ratio of items to slots of an index file, unless both were configured.
_ITEMS_PER_SLOT = 4
# Problems of one path that are reported one by one; further ones are counted.
_MAX_REPORTED = 20


@dataclass(frozen=True)
class Problem:
    """A finding.

    Attributes:
        part: log, queue, index, checkpoint, deletions or config.
        path: the file or folder.
        offset: in the log (physical) or in the queue (entries); -1 if there is none.
        size: bytes of the log that are lost; 0 for data that can be rebuilt from the log.
    """

    part: str
    path: Path
    offset: int
    size: int
    why: str


@dataclass
class Queue:
    """The files of a queue, and the number of its messages in the log."""

    topic: str
    queue_id: int
    folder: Path
    files: list[ReadOnlyFile]
    has_extension: bool = False  # entries may have extension addresses instead of tags codes
    entries: int = 0  # those that belong to messages of the log
    _near: tuple[int, bytes] = (0, b"")  # index and bytes of the entries that were read last

    @property
    def end(self) -> int:
        """One past the index of the last entry."""
        for file in reversed(self.files):
            position = file.data_end + layout.ENTRY_SIZE - 1
            position -= position % layout.ENTRY_SIZE
            while position > 0:
                at = position - layout.ENTRY_SIZE
                if file.read_around(at, layout.ENTRY_SIZE)[0] != _NO_ENTRY:
                    return (file.start + position) // layout.ENTRY_SIZE
                position -= layout.ENTRY_SIZE
        return 0

    @property
    def begin(self) -> int:
        """The first index for which there is a file."""
        return self.files[0].start // layout.ENTRY_SIZE if self.files else 0

    def live(self, minimum: int) -> Iterator[tuple[int, int, int]]:
        """Yield (index, physical offset, size) of each entry whose record the log, which starts at
        ``minimum``, still has.
        """
        for file in self.files:
            index = file.start // layout.ENTRY_SIZE
            whole = file.data_end + layout.ENTRY_SIZE - 1
            whole = min(whole, file.size) // layout.ENTRY_SIZE * layout.ENTRY_SIZE
            for at in range(0, whole, _PIECE):
                piece, _ = file.read_around(at, min(_PIECE, whole - at))
                for physical, size, _ in layout.ENTRY.iter_unpack(piece):
                    if 0 != size != layout.FILLER_SIZE and physical >= minimum:
                        yield index, physical, size
                    index += 1

    def entry(self, index: int) -> tuple[int, int, int] | None:
        """(physical offset, size, tags code), or None if there is no entry."""
        position = index * layout.ENTRY_SIZE
        for file in reversed(self.files):
            if file.start <= position:
                if position + layout.ENTRY_SIZE > file.end:
                    return None
                begin, near = self._near
                if begin <= position < begin + len(near):
                    raw = layout.ENTRY.unpack_from(near, position - begin)
                    if raw[1]:  # else a broker may have written it since
                        return raw
                self._near = position, file.read_around(position - file.start, _NEAR)[0]
                raw = layout.ENTRY.unpack_from(self._near[1])
                return raw if raw[1] else None
        return None


_NO_ENTRY = bytes(layout.ENTRY_SIZE)
# Bytes of entries that are read at once: for a whole queue; and for consecutive lookups, kept for
# each of very many queues.
_PIECE = 50_000 * layout.ENTRY_SIZE
_NEAR = 50 * layout.ENTRY_SIZE


@dataclass
class VerificationReport:
    """The problems found, and the amount of data checked."""

    problems: list[Problem] = field(default_factory=list)
    unreported: Counter[str] = field(default_factory=Counter)  # further problems by part
    records: int = 0
    record_bytes: int = 0
    queues: int = 0
    entries: int = 0
    index_items: int = 0
    of_deleted_topics: int = 0  # messages whose log file is not deleted yet
    deleted_topics: set[str] = field(default_factory=set)  # those that are in no list of deletions
    # Also not listed: by topic and queue id, the physical end of earlier generations of queues.
    restarted_queues: dict[tuple[str, int], int] = field(default_factory=dict)
    # index files whose size says nothing about their layout
    skipped: list[Path] = field(default_factory=list)
    first_timestamp: int = 0
    last_timestamp: int = 0
    _reported: Counter[Path] = field(default_factory=Counter)  # number of problems by path

    @property
    def lost_bytes(self) -> int:
        """Bytes of the log that are not records."""
        return sum(problem.size for problem in self.problems)

    def found(self, problem: Problem) -> None:
        if self._reported[problem.path] >= _MAX_REPORTED:
            self.unreported[problem.part] += 1
        else:
            self._reported[problem.path] += 1
            self.problems.append(problem)


class Verification:
    """One verification of the store in ``root``; ``log`` is its commit log."""

    def __init__(self, root: Path, log: OfflineLog) -> None:
        """Raises OSError for files that cannot be read."""
        self._root = root
        self._log = log
        self.result = VerificationReport()
        self._deletions = Deletions(root)
        self._deletions.load()
        self._deletions.forget_foreign(log)
        queues = read_queues(root, log.opened)
        self.queues = {(queue.topic, queue.queue_id): queue for queue in queues}
        self._with_queues = {topic for topic, _ in self.queues}
        self._topics = known_topics(root)
        self._firsts: dict[tuple[str, int], tuple[int, int]] = {}

    def run(self, step: Step) -> VerificationReport:
        """Run the verification; ``step`` is called with the number of bytes of the log that are
        done.
        """
        result = self.result
        known_end = end = self._log.minimum
        # before the log is read, because a broker may append to it meanwhile
        covered = self._covered_end()
        for item in self._log.walk():
            if isinstance(item, Hole):
                result.found(Problem("log", item.path, item.offset, item.size, item.why))
                step(item.size)
                end = item.offset + item.size
                continue
            known_end = end = item.physical + item.size
            result.records += 1
            result.record_bytes += item.size
            result.first_timestamp = result.first_timestamp or item.store_timestamp
            result.last_timestamp = max(result.last_timestamp, item.store_timestamp)
            if item.is_queued:
                self._check_entry(item)
            step(item.size)
        for queue in self.queues.values():
            self._check_queue(queue, known_end)
            for file in queue.files:
                self._note_unreadable(file)
        for path in index_files(self._root):
            self._check_index(path)
        self._check_checkpoint(covered, end)
        if self._deletions.is_damaged:
            path, why = self._root / layout.DELETIONS_FILE, "it and its backup are damaged"
            result.found(Problem("deletions", path, -1, 0, why))
        _check_config(self._root, result)
        return result

    def _check_entry(self, record: Record) -> None:
        """Check that a message's queue has an entry for it."""
        queue = self.queues.get((record.topic, record.queue_id))
        if self._deletions.covers(record.topic, record.queue_id, record.physical):
            self.result.of_deleted_topics += 1  # its topic may have been created again
            return
        if queue is None and self._is_deleted(record.topic):
            self.result.of_deleted_topics += 1
            self.result.deleted_topics.add(record.topic)
            return
        if queue is None:
            folder = layout.consume_queue_path(self._root) / record.topic / str(record.queue_id)
            why = f"no queue for the message at {record.physical}"
            self.result.found(Problem("queue", folder, record.queue_offset, 0, why))
            return
        entry = queue.entry(record.queue_offset)
        if entry is not None and entry[:2] == (record.physical, record.size):
            queue.entries += 1
            self._check_tags_code(queue, record, entry[2])
        elif self._is_of_earlier_generation(queue, record):
            self.result.of_deleted_topics += 1
            end = record.physical + record.size
            self.result.restarted_queues[record.topic, record.queue_id] = end
        else:
            there = "nothing" if entry is None else f"one of {entry[1]} bytes at {entry[0]}"
            why = f"{there} where the message of {record.size} bytes at {record.physical} should be"
            self.result.found(Problem("queue", queue.folder, record.queue_offset, 0, why))

    def _is_deleted(self, topic: str) -> bool:
        """Whether a topic without queues was deleted by Java, which keeps no list of deletions."""
        topics = self._topics
        if topics is None or topic in topics or is_system_topic(topic):
            return False
        return topic not in self._with_queues

    def _is_of_earlier_generation(self, queue: Queue, record: Record) -> bool:
        """Whether a message belongs to an earlier generation of its queue, whose topic was deleted
        and created again by Java, which keeps no list: it lies before the first message of its
        queue, and its queue offset is not lower.
        """
        key = queue.topic, queue.queue_id
        if key not in self._firsts:
            at, minimum = self._log.record_at, self._log.minimum
            self._firsts[key] = first_matching(queue, queue.begin, minimum, at) or (0, 0)
        number, physical = self._firsts[key]
        return record.physical < physical and record.queue_offset >= number

    def _check_tags_code(self, queue: Queue, record: Record, code: int) -> None:
        """Check that consumers which filter by the message's tag get it: a broker does not read
        messages whose entry has another code.
        """
        if record.topic == SCHEDULE_TOPIC:
            return  # there it is the delivery time
        if queue.has_extension and layout.is_extension_address(code):
            return
        tag = decode(record.properties).get(PropertyKey.TAGS)
        if code != tags_code(tag):
            what = f"tag {tag!r}" if tag else "no tag"
            why = f"has the tags code {code}; the message at {record.physical} has {what}"
            self.result.found(Problem("queue", queue.folder, record.queue_offset, 0, why))

    def _check_queue(self, queue: Queue, known_end: int) -> None:
        """Check for entries without a message, within the part that the log still has."""
        self.result.queues += 1
        self.result.entries += queue.entries
        if sum(1 for _ in queue.live(self._log.minimum)) == queue.entries:
            return  # each message has one, and there are no others
        gap: list[tuple[int, int]] = []  # entries that may fill the gap before a message
        for index, physical, _ in queue.live(self._log.minimum):
            if gap and gap[-1][1] != physical:
                self._report_entries(queue, gap, known_end)
                gap = []
            record = self._log.record_at(physical) if physical < known_end else None
            if record is None or record[:3] != (queue.topic, queue.queue_id, index):
                gap.append((index, physical))
            else:
                gap = []
        self._report_entries(queue, gap, known_end)

    def _note_unreadable(self, file: ReadOnlyFile) -> None:
        """Report the unreadable parts of a queue file; they were read as no entries."""
        if file.unreadable:
            index = (file.start + min(file.unreadable)) // layout.ENTRY_SIZE
            count = len(file.unreadable) * files.BLOCK
            why = f"{count} bytes cannot be read: the disk has failed there"
            self.result.found(Problem("queue", file.path, index, 0, why))

    def _report_entries(self, queue: Queue, entries: list[tuple[int, int]], known_end: int) -> None:
        """Report entries that do not point at their messages."""
        for index, physical in entries:
            why = f"points at {physical}, where its message is not"
            if physical >= known_end:
                why = f"points past the end of the log, at {physical}"
            self.result.found(Problem("queue", queue.folder, index, 0, why))

    def _check_index(self, path: Path) -> None:
        try:
            self._check_items(path)
        except OSError as error:
            if error.errno not in files.UNREADABLE:
                raise
            why = f"it cannot be read: {error.strerror}"
            self.result.found(Problem("index", path, -1, 0, why))

    def _check_items(self, path: Path) -> None:
        file = ReadOnlyFile(path, 0, self._log.opened)
        items_at = index_items_at(file.size)
        if items_at is None:
            self.result.skipped.append(path)
            return
        *_, count = layout.INDEX_HEADER.unpack(file.read(0, layout.INDEX_HEADER.size))
        capacity = (file.size - items_at) // layout.INDEX_ITEM.size
        for number in range(1, min(count, capacity)):
            at = items_at + number * layout.INDEX_ITEM.size
            view, begin = file.window(at, layout.INDEX_ITEM.size)
            hashed, physical, _, _ = layout.INDEX_ITEM.unpack_from(view, at - begin)
            self.result.index_items += 1
            if physical < self._log.minimum:
                continue
            record = self._log.record_at(physical)
            if record is None or not _has_key(record, hashed):
                why = f"item {number} points at {physical}, where no message has its key"
                self.result.found(Problem("index", path, number, 0, why))

    def _covered_end(self) -> int:
        """The offset up to which the checkpoint covers the log, 0 if unknown."""
        checkpoint = Checkpoint(self._root / layout.CHECKPOINT_FILE)
        checkpoint.load()
        return checkpoint.safe_offset

    def _check_checkpoint(self, covered: int, end: int) -> None:
        path = self._root / layout.CHECKPOINT_FILE
        if covered > end and not self._log.is_blank(end, covered):
            why = f"refers to messages up to {covered}, but the log ends at {end}"
            self.result.found(Problem("checkpoint", path, end, covered - end, why))
        try:
            raw = files.read_bytes(path)
        except FileNotFoundError:
            if self.result.records:
                why = "missing: the next start reads the whole log"
                self.result.found(Problem("checkpoint", path, -1, 0, why))
            return
        if len(raw) < layout.CHECKPOINT.size:
            why = f"{len(raw)} bytes long: the next start reads the whole log"
            self.result.found(Problem("checkpoint", path, -1, 0, why))
        for place in damage_of(raw):
            why = f"a wrong checksum at byte {place}: the data that it covers is ignored"
            self.result.found(Problem("checkpoint", path, -1, 0, why))


def read_queues(root: Path, opened: OpenFiles) -> Iterator[Queue]:
    """The existing queues, with their files in ``opened``. Raises OSError."""
    base = layout.consume_queue_path(root)
    if not files.is_folder(base):
        return
    for topic in files.children(base):
        children = files.children(topic) if files.is_folder(topic) else ()
        for folder in sorted(children, key=lambda child: (len(child.name), child.name)):
            if folder.name.isascii() and folder.name.isdigit() and files.is_folder(folder):
                starts = {layout.file_offset(path.name): path for path in files.children(folder)}
                kept = [
                    ReadOnlyFile(starts[start], start, opened)
                    for start in sorted(start for start in starts if start is not None)
                ]
                extension = layout.queue_extension_path(root) / topic.name / folder.name
                yield Queue(topic.name, int(folder.name), folder, kept, files.is_folder(extension))


def index_files(root: Path) -> list[Path]:
    """The files of the index, the oldest first."""
    folder = layout.index_path(root)
    if not files.is_folder(folder):
        return []
    return [path for path in files.children(folder) if path.name.isdigit() and len(path.name) == 17]


def index_items_at(size: int) -> int | None:
    """Where the items of an index file of a size start; None if that is unknown."""
    per_slot = layout.INDEX_SLOT.size + _ITEMS_PER_SLOT * layout.INDEX_ITEM.size
    slots, rest = divmod(size - layout.INDEX_HEADER.size, per_slot)
    return layout.INDEX_HEADER.size + slots * layout.INDEX_SLOT.size if slots > 0 == rest else None


def _has_key(record: Record, hashed: int) -> bool:
    if not record.is_indexed:
        return False
    keys = keys_of(decode(record.properties))
    return any(key_hash(record.topic, key) == hashed for key in keys)


def _check_config(root: Path, result: VerificationReport) -> None:
    folder = layout.config_path(root)
    for path in files.children(folder) if files.is_folder(folder) else ():
        if path.suffix != ".json":
            continue
        try:
            fastjson.loads(files.read_bytes(path))
        except ValueError as error:
            backup = path.with_name(path.name + ".bak")
            use = "its .bak is used" if files.exists(backup) else "it counts as empty"
            result.found(Problem("config", path, -1, 0, f"{error}; at a start {use}"))
