"""Recovery: bringing a store back after a clean stop, after kill -9, after a power cut, after Java.

The commit log is the truth; queues and index are made from it again where they may be wrong. In
order:

 1. Choose where to begin reading. Everything before that offset is known to be on disk in all three
    places; where nothing is known, Java's rule decides by timestamps (`_start_by_timestamps`).
 2. Lower the checkpoint on the disk to there. It vouched for what the next step takes away, and a
    process or machine that dies before the next checkpoint would be believed.
 3. Cut queues and index back to there, so that every entry from there on is made anew.
 4. Read records forward, verifying each. The first bad one is the end of the log: what follows is
    moved to `damaged/` for a human, reported, and cut; if it cannot be kept, the store does not
    start. Each good one is dispatched.
 5. Cut queue entries that point behind the end; fill in queues whose files turned out to disagree
    with the log, by reading all of it once more for them.
 6. fsync what was read, and the names of files: they may have come from the memory of a kernel
    whose process was killed before it could.

The queues' new entries are in memory only when this is done: the lowered checkpoint stands until
the first one of the running store.

A record refused in step 4 was never acknowledged by a broker with sync flush unless the disk
damaged it later. A queue entry is dispatched at the queue offset that its record says, so a message
can neither be lost nor appear twice whatever the queue files said.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.broker.store import layout, quarantine
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.deletions import Deletions
from mq.daemons.broker.store.errors import Damage, StoreLoadError
from mq.daemons.broker.store.index import Index, IndexFile
from mq.daemons.broker.store.known_topics import known_topics
from mq.daemons.broker.store.queue_generations import QueueGenerations
from mq.daemons.broker.store.queues import Queues, implausible
from mq.daemons.broker.store.rebuild import rebuild_queues
from mq.daemons.broker.store.records import BadRecord, Record, is_last, is_torn
from mq.daemons.broker.store.replay import Replay

log = logging.getLogger(__name__)

# After a crash this much before the checkpoint is verified too, when the last file is not longer:
# small stores are checked whole, large ones from the checkpoint on. Python takes 30 us a record,
# the native path one or two.
VERIFY_BACK = 128 * 1024 * 1024

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class Report:
    """What a recovery did."""

    crashed: bool = False
    machine_crashed: bool = False
    start: int = 0  # physical offsets
    end: int = 0
    records: int = 0
    seconds: float = 0.0
    damages: list[Damage] = field(default_factory=list)
    rebuilt_queues: list[str] = field(default_factory=list)

    def summary(self) -> str:
        how = "a crash" if self.crashed else "a clean stop"
        return (
            f"recovered after {how}: read {self.records} records from offset {self.start} to "
            f"{self.end} in {self.seconds:.2f} s, {len(self.damages)} damaged places"
        )


class Recovery:
    """One run over a loaded store. ``delays`` are milliseconds by delay level.

    ``checkpoint`` is the one on the disk; after `run` it may be a lower one. ``is_verified``: all
    records were read before, and are to stay; those that only look torn are not.
    ``has_all_topics``: the store's configuration has each topic that has messages in the log.
    ``is_read_only``: the disk has no space. Nothing is written, and the cuts are made in memory
    only: no message may be appended and no checkpoint saved before `finish`, or the next start.
    """

    def __init__(
        self,
        root: Path,
        commit_log: CommitLog,
        queues: Queues,
        index: Index | None,
        checkpoint: Checkpoint,
        delays: dict[int, int],
        deletions: Deletions,
        *,
        is_verified: bool = False,
        has_all_topics: bool = False,
        is_read_only: bool = False,
    ) -> None:
        self._root = root
        self._log = commit_log
        self._queues = queues
        self._index = index
        self.checkpoint = checkpoint
        self._delays = delays
        self._deletions = deletions
        self._is_verified = is_verified
        self._has_all_topics = has_all_topics
        self._is_read_only = is_read_only
        self._vouched = checkpoint.safe_offset  # by the last broker; not lowered
        self._suspect_index_files = 0
        self._why = ""  # why the bytes after the end of the log are not a record
        self._lives: QueueGenerations
        self.report = Report()

    def run(self) -> Report:
        """Do all of it.

        Raises OSError if the disk cannot be read or fsynced, StoreLoadError if what has to be cut
        cannot be kept.
        """
        began = clock.monotonic()
        report = self.report
        report.crashed = files.exists(self._root / layout.ABORT_FILE)
        report.machine_crashed = machine_has_crashed(self._root)
        if not self._log.files:
            self._forget_everything()
        else:
            self._deletions.forget_foreign(self._log)
            report.start = self._choose_start()
            if not self._is_read_only:
                report.start = self._before_unreadable(report.start)
            known_end = max(
                self.checkpoint.safe_offset,
                max((queue.last_physical_end() for queue in self._queues), default=0),
            )
            if not self._is_read_only:
                self._lower_checkpoint(report.start)
            self._drop_deleted()
            self._cut_derived(report.start)
            self._replay(report.start)
            self._report_missing(known_end)
        if report.crashed:
            self._sync_names()
        report.end = self._log.position
        report.seconds = clock.monotonic() - began
        return report

    def _forget_everything(self) -> None:
        """Without a log, queues and index point to nothing (Java: recoverNormally, no files).

        Unless the checkpoint says that the log was there: then it is its disk that is not.
        """
        if self.checkpoint.safe_offset > 0:
            raise StoreLoadError(
                f"there is no log in {', '.join(map(str, self._log.paths))}, and there was one up "
                f"to offset {self.checkpoint.safe_offset}: mount its disk or put its files back; "
                f"to begin anew, move {self._root} away"
            )
        for queue in list(self._queues):
            if queue.appended:
                self._damaged(self._queues.folder(queue), 0, queue.appended * 20, "no commit log")
            queue.clear()
        if self._index is not None:
            self._index.cut(0)
        self._log.set_end(0)

    # where to begin -------------------------------------------------------------------------

    def _choose_start(self) -> int:
        first = self._log.minimum
        last = self._log.files[-1]
        safe = self.checkpoint.safe_offset
        if 0 < safe and first <= safe <= last.end:
            if not self.report.crashed or self._is_read_only:
                return safe
            file = self._log.file_at(safe) or last
            start = file.start if safe - file.start <= VERIFY_BACK else safe
            return self._start_for_index(start)
        if self.report.crashed:
            return self._start_for_index(self._start_by_timestamps())
        # A clean stop of a Java broker: all is on disk, and the queues tell up to where.
        indexed = max((queue.last_physical_end() for queue in self._queues), default=0)
        return indexed if first <= indexed <= last.end else first

    def _before_unreadable(self, start: int) -> int:
        """Begin earlier if the block in which the start lies cannot be read.

        The record before the start has a part in that block, is lost, too, and has to be found.
        """
        file = self._log.file_at(start)
        within = 0 if file is None else start - file.start
        if file is None or within % files.BLOCK == 0 or file.read_part(within, 1):
            return start
        return file.start

    def _start_by_timestamps(self) -> int:
        """Java's rule (CommitLog.isMappedFileMatchedRecover): the newest file whose first record is
        not younger than what the checkpoint vouches for; else the oldest."""
        limit = self.checkpoint.minimum_timestamp
        if self._index is not None:
            limit = self.checkpoint.minimum_timestamp_with_index
        for file in reversed(self._log.files):
            self._log.written = file.end
            timestamp = self._log.readable_timestamp(file.start)
            if 0 < timestamp <= limit:
                return file.start
        return self._log.minimum

    def _start_for_index(self, start: int) -> int:
        """Begin earlier if index files have to be made again.

        Their pages reach the disk in any order, so after the death of the machine, or of a Java
        broker, which does not say whether the machine died, those that were in use since the
        checkpoint cannot be trusted. Java drops them too, and with them the keys of all messages
        before the replayed part.
        """
        index = self._index
        if index is None or not self.report.machine_crashed or not index.files:
            return start
        if self._is_read_only:
            return start
        kept = sum(1 for file in index.files[:-1] if self._is_trusted(file))
        self._suspect_index_files = len(index.files) - kept
        first = index.files[kept]
        begin = first.begin_offset
        if first.count <= 1:
            begin = index.files[kept - 1].end_offset if kept else 0
        return min(start, self._log_file_start(max(begin, self._log.minimum)))

    def _is_trusted(self, file: IndexFile) -> bool:
        """Whether an index file was full, and on the disk, when the checkpoint was made."""
        if not file.full:
            return False
        if self.checkpoint.safe_offset:
            return file.end_offset < self.checkpoint.safe_offset
        return file.end_timestamp <= self.checkpoint.index_timestamp

    def _log_file_start(self, offset: int) -> int:
        file = self._log.file_at(offset)
        return file.start if file is not None else self._log.minimum

    def _lower_checkpoint(self, start: int) -> None:
        """Vouch for nothing that is about to be made again.

        Java goes by the timestamps: zeros make it read all of the log.
        """
        checkpoint = self.checkpoint
        by_timestamps = checkpoint.safe_offset == 0 and checkpoint.message_timestamp > 0
        is_before = self._suspect_index_files or start < self.report.start
        if checkpoint.safe_offset > start or (by_timestamps and is_before):
            self.checkpoint = checkpoint.moved(0, 0, start)
            self.checkpoint.save()

    def _drop_deleted(self) -> None:
        """Queues of deleted topics are gone, also if a power cut has brought back their files."""
        for topic in self._queues.topics():
            queues = self._queues.of_topic(topic)
            gone = [queue for queue in queues if self._is_deleted(queue)]
            for queue in gone:
                self._drop(queue)
            if len(gone) == len(queues):
                self._queues.delete_topic(topic)

    def _drop(self, queue: ConsumeQueue) -> None:
        """Files that cannot be taken away are left under another name: all other topics would
        wait for them. Raises OSError if that cannot be, either; they must not count again."""
        try:
            self._queues.delete_queue(queue)
        except OSError as error:
            left = ", ".join(map(str, self._queues.set_aside(queue)))
            log.error("%r was deleted, and %s is left for you to delete: %s", queue, left, error)

    def _is_deleted(self, queue: ConsumeQueue) -> bool:
        end = queue.last_physical_end()
        return 0 < end and self._deletions.covers(queue.topic, queue.queue_id, end - 1)

    def _topics_if_unlisted(self) -> frozenset[str] | None:
        """The existing topics if the list of deletions is damaged and the configuration has them,
        else None."""
        if not self._deletions.is_damaged or not self._has_all_topics:
            return None
        known = known_topics(self._root)
        return None if known is None else known.union(self._queues.topics())

    # reading --------------------------------------------------------------------------------

    def _cut_derived(self, start: int) -> None:
        self._lives = QueueGenerations(self._log, self._deletions, self._topics_if_unlisted())
        self._lives.find(self._queues, start)
        for queue in self._queues:
            queue.set_back(start)
            if self.report.machine_crashed and not self._is_read_only:
                queue.clear_behind_end()
        if not self._is_read_only:
            self._cut_index(start)

    def _cut_index(self, start: int) -> None:
        if self._index is not None:
            for _ in range(self._suspect_index_files):
                self._index.remove_last()
            self._index.cut(start)

    def _replay(self, start: int) -> None:
        replay = self._scan(self._queues, None if self._is_read_only else self._index)
        why = replay.run(start)
        self.report.records = replay.records
        if self._is_read_only:
            self._end_in_memory(replay, why)
            return
        self._cut_log(replay.end, why)
        for queue in self._queues:
            queue.cut(replay.end)
        self._rebuild_suspects(replay.suspect)
        for queue in self._queues:
            queue.set_minimum(self._log.minimum)
        if self._index is not None:
            self._index.save_headers()
        self._sync_log(start)

    def _scan(self, queues: Queues, index: Index | None) -> Replay:
        """What reads the log into these queues and this index."""
        return Replay(
            self._log,
            queues,
            index,
            self._delays,
            self._lives,
            self._check_torn,
            self._left_out,
            self._note,
        )

    def _cut_log(self, end: int, why: str) -> None:
        for damage in quarantine.put_aside(self._root, self._log.files, end, why):
            self._note(damage)
        if not self.report.crashed and self._log.reaches(end):
            mark_running(self._root)  # before: amid it the store looks like no closed one
        self._note_lives()  # before queue files with the evidence are removed
        self._log.cut(end)

    def _sync_log(self, start: int) -> None:
        for file in self._log.files:
            if file.end > start:
                file.sync()

    def finish(self) -> None:
        """Do what a read-only recovery has left out; `checkpoint` may be a lower one then.

        Raises OSError and StoreLoadError; it may be called again.
        """
        self._is_read_only = False
        end = self._log.position
        start = max(self._start_for_index(self.report.start), self._log.minimum)
        self._lower_checkpoint(start)
        self._cut_log(end, self._why)
        for queue in self._queues:
            queue.cut(end)
            if self.report.machine_crashed:
                queue.clear_behind_end()
        if self._index is not None:
            self._cut_index(start)
            nowhere = self._root / "none"  # the queues are there already: these stay in memory
            queues = Queues(nowhere, layout.ENTRY_SIZE, nowhere, 1)
            self._scan(queues, self._index).run(start)
            self._index.save_headers()
        self._sync_log(start)
        if self.report.crashed:
            self._sync_names()

    def _end_in_memory(self, replay: Replay, why: str) -> None:
        """Let log and queues end after the last record that was read, without cutting files."""
        self._why = why
        if replay.suspect:
            names = ", ".join(sorted(f"{queue.topic}-{queue.queue_id}" for queue in replay.suspect))
            raise StoreLoadError(
                f"queue files disagree with the log, and the disk has no space to make them again: "
                f"{names}; free some space and start the broker again"
            )
        self._log.set_end(replay.end)
        for queue in self._queues:
            try:
                queue.cut(replay.end)
            except OSError as error:
                if error.errno not in files.FULL:
                    raise
            queue.set_minimum(self._log.minimum)

    def _check_torn(self, record: Record) -> None:
        """Raises BadRecord for one of which a power cut, or a full disk, has kept a part away."""
        if self._may_be_torn(record) and is_torn(self._log, record):
            raise BadRecord("a sector of it was not written")

    def _may_be_torn(self, record: Record) -> bool:
        """Not what was on the disk before the power cut, nor behind a stop; behind a kill what was
        written last: a full disk takes whole blocks of it, and a kill leaves whole pages."""
        if self.report.machine_crashed and not self._is_verified:
            return record.physical >= self._vouched
        ends_in_zeros = (record.properties or record.topic).endswith("\0")
        return self.report.crashed and ends_in_zeros and is_last(self._log, record)

    def _rebuild_suspects(self, suspects: Collection[ConsumeQueue]) -> None:
        """Make queues again whose files disagree with the log, reading all of it."""
        if not suspects:
            return
        if not self.report.crashed:
            mark_running(self._root)
        self._lower_checkpoint(self._log.minimum)  # their files go, and a crash may take why
        names = sorted(f"{queue.topic}-{queue.queue_id}" for queue in suspects)
        self.report.rebuilt_queues = names
        log.warning("queue files disagree with the log and are made again: %s", ", ".join(names))
        end = self._log.position
        self._lives.find(suspects, 0)
        for queue in suspects:
            if (birth := self._lives.born(queue)) > self._log.minimum:
                self._lives.begun[queue.topic, queue.queue_id] = birth
        self._note_lives()
        self._lives.begun |= rebuild_queues(
            self._log,
            self._queues,
            suspects,
            end,
            self._delays,
            self._is_left_out,
            self._left_out,
        )
        self._note_lives()
        self._log.set_end(end)

    def _is_left_out(self, record: Record) -> bool:
        where = record.topic, record.queue_id, record.physical
        if self._lives.covers(*where):
            self._lives.left_out(*where)
            return True
        return bool(implausible(record.topic, record.queue_id, record.queue_offset))

    def _note_lives(self) -> None:
        """A failure, such as a full disk, is not fatal: the next start derives the same again."""
        try:
            self._lives.note()
        except OSError as error:
            log.error("the list of deletions cannot be saved now: %s", error)

    def _sync_names(self) -> None:
        """What this process puts into a file that it found must not lose its name.

        The names of queue files are not among these: those that the checkpoint does not vouch for
        are fsynced with the next one (ConsumeQueue.set_back).
        """
        for path in self._log.paths:
            files.sync_folder(path)
        if self._index is not None:
            self._index.sync_names()

    # damage ---------------------------------------------------------------------------------

    def _report_missing(self, known_end: int) -> None:
        """A log that ends in zeros looks whole; queues and checkpoint may know that it is not."""
        end = self._log.position
        if end < known_end and not any(damage.offset >= end for damage in self.report.damages):
            path = self._log.files[-1].path
            why = "queues or checkpoint know of messages that the log does not have"
            self._damaged(path, end, known_end - end, why)

    def _damaged(self, path: Path, offset: int, dropped: int, why: str) -> None:
        self._note(Damage(str(path), offset, dropped, why))

    def _left_out(self, physical: int, why: str) -> None:
        self._damaged(self._root, physical, 0, why)

    def _note(self, damage: Damage) -> None:
        self.report.damages.append(damage)
        log.error("%s", damage)


def machine_has_crashed(root: Path) -> bool:
    """Whether unsynced writes of the last run may be lost: the machine, or the mount of the store,
    is another than then, or the store is a copy.

    True also if that is unknown, as with the empty file of a Java broker. Raises OSError.
    """
    abort = root / layout.ABORT_FILE
    if not files.exists(abort):
        return False
    found = files.read_bytes(abort)
    return not found or found != page_cache_id(abort)


def page_cache_id(abort: Path) -> bytes:
    """Identifies the page cache that has the unsynced writes to a store: boot, device and inode of
    its abort file, and mount. b"" if the kernel has no boot id. Raises OSError."""
    boot, status = boot_id(), files.stat(abort)
    if not boot:
        return b""
    return b"%s %d:%d %d" % (boot, status.st_dev, status.st_ino, files.mount_id(abort))


def boot_id() -> bytes:
    """The id of this boot of the machine, b"" if the kernel has none."""
    try:
        return files.read_bytes(BOOT_ID).strip()
    except OSError:
        return b""


def mark_running(root: Path) -> None:
    """Write the abort file, which a clean stop removes, and fsync it. Raises OSError."""
    abort = root / layout.ABORT_FILE
    files.write_new(abort, b"")  # its content has its inode
    files.write_new(abort, page_cache_id(abort))
    files.sync_folder(root)
