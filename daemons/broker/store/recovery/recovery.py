"""Recovery: restores a store after a clean stop, kill -9, a power failure, or use by Java.

The commit log is the truth; queues and index are rebuilt from it where they may be wrong. In order:

 1. Choose the offset at which to start reading. Everything before it is known to be on disk in
    log, queues and index; if nothing is known, Java's rule decides by timestamps
    (`_start_by_timestamps`).
 2. Lower the checkpoint on the disk to that offset. It covers entries that the next step removes,
    and if the process or machine died before the next checkpoint, the next start would trust it.
 3. Truncate queues and index to that offset, so that every entry from there on is rebuilt.
 4. Read records forward, verifying each. The first bad one is the end of the log: the bytes after
    it are copied to `damaged/` for an administrator, reported, and truncated; if they cannot be
    copied, the store does not start. Each good record is dispatched to its queue and the index.
 5. Truncate queue entries that point past the end; rebuild queues whose files turned out to
    disagree with the log, by reading the whole log once more for them.
 6. fsync the part that was read, and the names of files: they may be only in the page cache, if
    the last process was killed before it could fsync them.

After this the new queue entries are only in memory: the lowered checkpoint stays until the first
checkpoint of the running store.

A record refused in step 4 was never acknowledged by a broker with sync flush, unless the disk
damaged it later. A queue entry is dispatched at the queue offset of its record, so a message can
neither be lost nor appear twice, whatever the queue files contain.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.errors import Damage, StoreLoadError
from mq.daemons.broker.store.index.index import Index, IndexFile
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.records import BadRecord, Record, is_last, is_torn
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.daemons.broker.store.queue.generations import Deletions, QueueGenerations
from mq.daemons.broker.store.queue.queues import Queues, implausible
from mq.daemons.broker.store.recovery import quarantine
from mq.daemons.broker.store.recovery.known_topics import known_topics
from mq.daemons.broker.store.recovery.rebuild import rebuild_queues
from mq.daemons.broker.store.recovery.replay import Replay

log = logging.getLogger(__name__)

# After a crash this many bytes before the checkpoint are verified too, if the last file is not
# longer: small stores are verified whole, large ones from the checkpoint on. Python takes 30 us a
# record, the native path one or two.
VERIFY_BACK = 128 * 1024 * 1024

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class Report:
    """The result of a recovery."""

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
    """One recovery of a loaded store. ``delays`` are milliseconds by delay level.

    ``checkpoint`` is the one on the disk; `run` may lower it. ``is_verified``: all records were
    verified before, and stay even if they look torn. ``has_all_topics``: the store's configuration
    has each topic that has messages in the log. ``is_read_only``: the disk is full. Then nothing is
    written, and truncation is done in memory only: no message may be appended and no checkpoint
    saved before `finish` or the next start.
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
        # safe offset of the last broker's checkpoint; not lowered
        self._covered = checkpoint.safe_offset
        self._suspect_index_files = 0
        self._why = ""  # why the bytes after the end of the log are not a record
        self._generations: QueueGenerations
        self.report = Report()

    def run(self) -> Report:
        """Run the recovery.

        Raises OSError if the disk cannot be read or fsynced, StoreLoadError if the bytes to be
        truncated cannot be kept.
        """
        began = clock.monotonic()
        report = self.report
        report.crashed = files.exists(self._root / layout.ABORT_FILE)
        report.machine_crashed = machine_has_crashed(self._root)
        if not self._log.files:
            self._reset_without_log()
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
            self._truncate_derived(report.start)
            self._replay(report.start)
            self._report_missing(known_end)
        if report.crashed:
            self._sync_names()
        report.end = self._log.position
        report.seconds = clock.monotonic() - began
        return report

    def _reset_without_log(self) -> None:
        """Empty queues and index, which refer to nothing without a log (Java: recoverNormally, no
        files).

        Raises StoreLoadError if the checkpoint says that there was a log: then probably its disk is
        missing.
        """
        if self.checkpoint.safe_offset > 0:
            raise StoreLoadError(
                f"there is no log in {', '.join(map(str, self._log.paths))}, but there was one up "
                f"to offset {self.checkpoint.safe_offset}: mount its disk or restore its files; "
                f"to start with an empty store, move {self._root} away"
            )
        for queue in list(self._queues):
            if queue.appended:
                self._damaged(self._queues.folder(queue), 0, queue.appended * 20, "no commit log")
            queue.clear()
        if self._index is not None:
            self._index.cut(0)
        self._log.set_end(0)

    # where to start -------------------------------------------------------------------------

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
        # A clean stop of a Java broker: everything is on disk, and the queues show up to which
        # offset.
        indexed = max((queue.last_physical_end() for queue in self._queues), default=0)
        return indexed if first <= indexed <= last.end else first

    def _before_unreadable(self, start: int) -> int:
        """Return an earlier start if the block that holds the start cannot be read.

        A part of the record before the start is in that block. The record is lost, too, and has to
        be found.
        """
        file = self._log.file_at(start)
        within = 0 if file is None else start - file.start
        if file is None or within % files.BLOCK == 0 or file.read_part(within, 1):
            return start
        return file.start

    def _start_by_timestamps(self) -> int:
        """Java's rule (CommitLog.isMappedFileMatchedRecover): start at the newest file whose first
        record is not newer than the timestamp of the checkpoint, else at the oldest file.
        """
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
        """Return an earlier start if index files have to be rebuilt.

        Their pages reach the disk in any order. So after the machine crashed, or possibly crashed,
        which a Java broker does not record, index files that were in use since the checkpoint
        cannot be trusted. Java drops them, too, and with them the keys of all messages before the
        replayed part.
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
        """Whether an index file was full, and on the disk, when the checkpoint was saved."""
        if not file.full:
            return False
        if self.checkpoint.safe_offset:
            return file.end_offset < self.checkpoint.safe_offset
        return file.end_timestamp <= self.checkpoint.index_timestamp

    def _log_file_start(self, offset: int) -> int:
        file = self._log.file_at(offset)
        return file.start if file is not None else self._log.minimum

    def _lower_checkpoint(self, start: int) -> None:
        """Lower the checkpoint so that it does not cover anything that is rebuilt.

        Java uses the timestamps: zeros make it read the whole log.
        """
        checkpoint = self.checkpoint
        by_timestamps = checkpoint.safe_offset == 0 and checkpoint.message_timestamp > 0
        is_before = self._suspect_index_files or start < self.report.start
        if checkpoint.safe_offset > start or (by_timestamps and is_before):
            self.checkpoint = checkpoint.moved(0, 0, start)
            self.checkpoint.save()

    def _drop_deleted(self) -> None:
        """Delete queues of deleted topics, also if a power failure restored their files."""
        for topic in self._queues.topics():
            queues = self._queues.of_topic(topic)
            deleted = [queue for queue in queues if self._is_deleted(queue)]
            for queue in deleted:
                self._drop(queue)
            if len(deleted) == len(queues):
                self._queues.delete_topic(topic)

    def _drop(self, queue: ConsumeQueue) -> None:
        """Delete a queue, or rename its folders if its files cannot be deleted, so that the other
        topics need not wait for them. Raises OSError if it cannot be renamed, either: its files
        must not count again.
        """
        try:
            self._queues.delete_queue(queue)
        except OSError as error:
            left = ", ".join(map(str, self._queues.rename_deleted(queue)))
            log.error("%r was deleted, but its files remain; delete %s: %s", queue, left, error)

    def _is_deleted(self, queue: ConsumeQueue) -> bool:
        end = queue.last_physical_end()
        return 0 < end and self._deletions.covers(queue.topic, queue.queue_id, end - 1)

    def _topics_if_unlisted(self) -> frozenset[str] | None:
        """The existing topics if the list of deletions is damaged and the configuration has the
        topics, else None.
        """
        if not self._deletions.is_damaged or not self._has_all_topics:
            return None
        known = known_topics(self._root)
        return None if known is None else known.union(self._queues.topics())

    # reading --------------------------------------------------------------------------------

    def _truncate_derived(self, start: int) -> None:
        self._generations = QueueGenerations(self._log, self._deletions, self._topics_if_unlisted())
        self._generations.find(self._queues, start)
        for queue in self._queues:
            queue.set_back(start)
            if self.report.machine_crashed and not self._is_read_only:
                queue.clear_after_end()
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
        """Create the replay that reads the log into these queues and this index."""
        return Replay(
            self._log,
            queues,
            index,
            self._delays,
            self._generations,
            self._check_torn,
            self._skipped,
            self._note,
        )

    def _cut_log(self, end: int, why: str) -> None:
        for damage in quarantine.keep_after(self._root, self._log.files, end, why):
            self._note(damage)
        if not self.report.crashed and self._log.reaches(end):
            # before the truncation: during it the store is not a closed one
            mark_running(self._root)
        self._note_generations()  # before queue files with the evidence are removed
        self._log.cut(end)

    def _sync_log(self, start: int) -> None:
        for file in self._log.files:
            if file.end > start:
                file.sync()

    def finish(self) -> None:
        """Do the steps that a read-only recovery has skipped; may lower `checkpoint`.

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
                queue.clear_after_end()
        if self._index is not None:
            self._cut_index(start)
            nowhere = self._root / "none"  # the real queues are complete: these stay in memory
            queues = Queues(nowhere, layout.ENTRY_SIZE, nowhere, 1)
            self._scan(queues, self._index).run(start)
            self._index.save_headers()
        self._sync_log(start)
        if self.report.crashed:
            self._sync_names()

    def _end_in_memory(self, replay: Replay, why: str) -> None:
        """End log and queues after the last record that was read, without changing files."""
        self._why = why
        if replay.suspect:
            names = ", ".join(sorted(f"{queue.topic}-{queue.queue_id}" for queue in replay.suspect))
            raise StoreLoadError(
                f"queue files disagree with the log, and the disk has no space to rebuild them: "
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
        """Raise BadRecord for a record of which a power failure, or a full disk, lost a part."""
        if self._may_be_torn(record) and is_torn(self._log, record):
            raise BadRecord("one of its sectors was not written")

    def _may_be_torn(self, record: Record) -> bool:
        """Whether a record may be torn. After a machine crash: all that the checkpoint does not
        cover. After a kill: the last record if it ends in zeros, because a full disk loses whole
        blocks, and a kill loses whole pages. After a clean stop: none.
        """
        if self.report.machine_crashed and not self._is_verified:
            return record.physical >= self._covered
        ends_in_zeros = (record.properties or record.topic).endswith("\0")
        return self.report.crashed and ends_in_zeros and is_last(self._log, record)

    def _rebuild_suspects(self, suspects: Collection[ConsumeQueue]) -> None:
        """Rebuild queues whose files disagree with the log, reading all of it."""
        if not suspects:
            return
        if not self.report.crashed:
            mark_running(self._root)
        # their files are deleted, and a crash may lose the reason
        self._lower_checkpoint(self._log.minimum)
        names = sorted(f"{queue.topic}-{queue.queue_id}" for queue in suspects)
        self.report.rebuilt_queues = names
        log.warning("queue files disagree with the log; rebuilding them: %s", ", ".join(names))
        end = self._log.position
        self._generations.find(suspects, 0)
        for queue in suspects:
            if (birth := self._generations.born(queue)) > self._log.minimum:
                self._generations.starts[queue.topic, queue.queue_id] = birth
        self._note_generations()
        self._generations.starts |= rebuild_queues(
            self._log,
            self._queues,
            suspects,
            end,
            self._delays,
            self._is_left_out,
            self._skipped,
        )
        self._note_generations()
        self._log.set_end(end)

    def _is_left_out(self, record: Record) -> bool:
        where = record.topic, record.queue_id, record.physical
        if self._generations.covers(*where):
            self._generations.skipped(*where)
            return True
        return bool(implausible(record.topic, record.queue_id, record.queue_offset))

    def _note_generations(self) -> None:
        """Save the deletions found. An error, such as a full disk, is not fatal: the next start
        finds the same.
        """
        try:
            self._generations.note()
        except OSError as error:
            log.error("cannot save the list of deletions: %s", error)

    def _sync_names(self) -> None:
        """Sync the folders of log and index: new data in an existing file must not be lost with its
        name.

        The folders of queues need no sync here: queue files that the checkpoint does not cover are
        synced with the next checkpoint (ConsumeQueue.set_back).
        """
        for path in self._log.paths:
            files.sync_folder(path)
        if self._index is not None:
            self._index.sync_names()

    # damage ---------------------------------------------------------------------------------

    def _report_missing(self, known_end: int) -> None:
        """Report messages that queues or checkpoint know after the end of the log: a log that ends
        in zeros looks complete.
        """
        end = self._log.position
        if end < known_end and not any(damage.offset >= end for damage in self.report.damages):
            path = self._log.files[-1].path
            why = "queues or checkpoint refer to messages that the log does not have"
            self._damaged(path, end, known_end - end, why)

    def _damaged(self, path: Path, offset: int, dropped: int, why: str) -> None:
        self._note(Damage(str(path), offset, dropped, why))

    def _skipped(self, physical: int, why: str) -> None:
        self._damaged(self._root, physical, 0, why)

    def _note(self, damage: Damage) -> None:
        self.report.damages.append(damage)
        log.error("%s", damage)


def machine_has_crashed(root: Path) -> bool:
    """Whether unsynced writes of the last run may be lost: the machine was restarted, the store was
    mounted again, or it is a copy.

    True also if that is unknown, as with the empty file of a Java broker. Raises OSError.
    """
    abort = root / layout.ABORT_FILE
    if not files.exists(abort):
        return False
    found = files.read_bytes(abort)
    return not found or found != page_cache_id(abort)


def page_cache_id(abort: Path) -> bytes:
    """Identifies the page cache that has the unsynced writes to a store: boot, device and inode of
    its abort file, and mount. b"" if the kernel has no boot id. Raises OSError.
    """
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
    """Write and fsync the abort file, which a clean stop deletes. Raises OSError."""
    abort = root / layout.ABORT_FILE
    files.write_new(abort, b"")  # created first, because its content includes its inode
    files.write_new(abort, page_cache_id(abort))
    files.sync_folder(root)
