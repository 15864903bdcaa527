"""The message store, as the rest of the broker uses it.

It composes components that do one thing each; this module starts them in order, stops them in
reverse, and answers questions about the stored messages. Messages come in through `appender`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.checkpointer import Checkpointer
from mq.daemons.broker.store.errors import QueuesLeft, StoreLoadError, StoreRefused
from mq.daemons.broker.store.index.index import Index
from mq.daemons.broker.store.index.indexing import Indexing
from mq.daemons.broker.store.lock import StoreLock
from mq.daemons.broker.store.log.append import Appender
from mq.daemons.broker.store.log.batch import Batch, Extend, wake
from mq.daemons.broker.store.log.commit_log import CommitLog, record_store_host
from mq.daemons.broker.store.log.flush import Flusher
from mq.daemons.broker.store.log.preallocation import Allocation, NextFile, Prefault
from mq.daemons.broker.store.log.publishing import PutTimes
from mq.daemons.broker.store.log.residency import Residency
from mq.daemons.broker.store.queue.confirm_offset import ConfirmOffset
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.daemons.broker.store.queue.entry_verifier import EntryVerifier
from mq.daemons.broker.store.queue.extension import Unit
from mq.daemons.broker.store.queue.generations import Deletions
from mq.daemons.broker.store.queue.queues import Queues
from mq.daemons.broker.store.recovery.recovered_end import note_recovered_end
from mq.daemons.broker.store.recovery.recovery import Recovery, Report, mark_running
from mq.daemons.broker.store.replica.replica import Replica
from mq.daemons.broker.store.retention import Retention
from mq.daemons.broker.store_config import (
    BrokerRole,
    FlushDiskType,
    MessageStoreConfig,
    delay_levels,
)
from mq.daemons.supervision import Work
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

# The cause for which a slave refuses messages.
SLAVE_CAUSE = "slave"

FULL_DISK_SECONDS = 1.0  # between two attempts to write what the start could not write


class MessageStore:
    """The messages of one broker.

    ``config`` returns the current settings. ``store_host`` is the broker's address and port as in
    records. ``extender`` creates the `extend` function of an Appender from the store's queues. Used
    as an async context manager: entering recovers and starts the store, leaving stops it. ``bound``
    hides messages from consumers that other brokers do not have yet. ``is_verified``: see
    `Recovery`.
    """

    def __init__(
        self,
        config: Callable[[], MessageStoreConfig],
        store_host: bytes,
        extender: Callable[[Queues], Extend] | None = None,
        bound: ConfirmOffset | None = None,
        *,
        is_verified: bool = False,
    ) -> None:
        settings = config()
        self._config = config
        self._store_host = store_host
        self._extender = extender
        self._is_verified = is_verified
        self.bound = bound
        self.root = Path(settings.store_path_root_dir)
        self._read_only: StoreRefused | None = None  # the disk was full at the start
        self._make_files()
        self.report = Report()
        self.put_times = PutTimes()
        self.boot_timestamp = clock.milliseconds()
        self.replica: Replica | None = None  # of a slave
        # Called with the queues, by topic and id, that have restarted; callers that keep a
        # reference to a queue must fetch it again.
        self.on_queues_restarted: list[Callable[[Collection[tuple[str, int]]], None]] = []
        self._lock = StoreLock(self.root)
        self._parts = AsyncExitStack()

    def _make_files(self) -> None:
        """Create the log, the queues, the index and the checkpoint, without opening files."""
        settings = self._config()
        self.log = CommitLog(
            self._commit_log_folders(settings), settings.mapped_file_size_commit_log
        )
        self.queues = Queues(
            layout.consume_queue_path(self.root),
            -(-settings.mapped_file_size_consume_queue // layout.ENTRY_SIZE) * layout.ENTRY_SIZE,
            layout.queue_extension_path(self.root),
            settings.mapped_file_size_consume_queue_ext,
        )
        self.key_index: Index | None = None
        if settings.message_index_enable:
            self.key_index = Index(
                layout.index_path(self.root), settings.max_hash_slot_num, settings.max_index_num
            )
        #: Admits records to reads through the mapping, waiting for the disk.
        self.present = Residency(self.log, waits=True)
        self._checkpoint = Checkpoint(self.root / layout.CHECKPOINT_FILE)
        self._lowered_checkpoint = self._checkpoint  # as recovery left it
        self._deletions = Deletions(self.root)
        self.entries = EntryVerifier(self.log, self.queues, self._deletions, self._delays)

    def _commit_log_folders(self, settings: MessageStoreConfig) -> list[Path]:
        if not settings.store_path_commit_log:
            return [layout.commit_log_path(self.root)]
        return [Path(part) for part in settings.store_path_commit_log.split(",") if part]

    def _delays(self) -> dict[int, int]:
        return delay_levels(self._config().message_delay_level)

    # starting and stopping ------------------------------------------------------------------

    async def __aenter__(self) -> "MessageStore":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Lock, load, recover, and start to accept messages.

        Raises StoreLocked, StoreLoadError or OSError; nothing of the store is open then.
        """
        try:
            self._lock.take()
            self._recover_or_read_only()
            await self._start_parts()
        except BaseException:
            await self.close()
            raise

    def _recover_or_read_only(self) -> None:
        """Recover; if the disk is full, do it again without writing."""
        try:
            self._recover()
        except (OSError, StoreLoadError) as error:
            if not self._begin_read_only(error):
                raise
            if self.key_index is not None:
                self.key_index.close()
            self.queues.close()
            self.log.close()
            self._make_files()
            self._recover()

    def _begin_read_only(self, error: OSError | StoreLoadError) -> bool:
        """Return whether an error at the start is that of a full disk. If so, the store becomes
        read-only: it serves readers and refuses messages until `_leave_read_only`.

        Returns False on a slave and in a replica set with controllers, where another replica can
        serve.
        """
        cause = error if isinstance(error, OSError) else error.__cause__
        is_master = self._config().broker_role is not BrokerRole.SLAVE
        if not isinstance(cause, OSError) or cause.errno not in files.FULL:
            return False
        if not is_master or self.bound is not None or not self.log.files:
            return False
        self._read_only = StoreRefused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"store refused: it is read-only, because the disk was full at the start: {error}",
        )
        log.critical("%s; free some space to leave this state", self._read_only)
        return True

    def _recover(self) -> None:
        crashed = files.exists(self.root / layout.ABORT_FILE)
        if crashed:
            # The name of the abort file may not be on the disk yet. Without this sync, a power
            # failure could lose the file after recovery has removed something, and the next start
            # would assume a clean stop.
            files.sync_folder(self.root)
        self.log.load(crashed=crashed)
        self.queues.load()
        self._checkpoint.load()
        if self.key_index is not None:
            self.key_index.load()
        self._deletions.load()
        recovery = Recovery(
            self.root,
            self.log,
            self.queues,
            self.key_index,
            self._checkpoint,
            self._delays(),
            self._deletions,
            is_verified=self._is_verified,
            has_all_topics=self._config().broker_role is not BrokerRole.SLAVE,
            is_read_only=self._read_only is not None,
        )
        self._recovery = recovery
        self.report = recovery.run()
        self._lowered_checkpoint = recovery.checkpoint
        if self._read_only is None:
            self._deletions.cut(self.log.position, self.log)
        log.info("%s", self.report.summary())

    async def _start_parts(self) -> None:
        settings = self._config()
        extend = None if self._extender is None else self._extender(self.queues)
        self.appender = Appender(self.log, self._store_host, extend)
        self.appender.publisher.on_published = self._published
        self.indexing = Indexing(self.key_index, self.appender)
        if self.log.position > self.log.minimum:
            self.appender.publisher.last_timestamp = max(
                self._checkpoint.message_timestamp,
                self.log.readable_timestamp(self.queues.newest()),
            )
        allocation = Allocation(self.log)
        self.next_file = NextFile(self.log, allocation)
        self._parts.callback(self.next_file.close)
        prefault = Prefault(self.log)
        self._parts.callback(prefault.close)
        self.appender.on_growth = lambda: min(self.next_file.check(), prefault.check())
        is_master = settings.broker_role is not BrokerRole.SLAVE
        note_recovered_end(
            self._lowered_checkpoint,
            self.report,
            self.log.written,
            lambda: is_master and self._was_anothers(),
        )
        timeout = settings.sync_flush_timeout / 1000
        between = (allocation.due,)
        self.flusher = Flusher(self.log, self.appender, timeout, between)
        self._parts.push_async_callback(self.flusher.close)
        if settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            self.appender.await_flush = self.flusher.await_flush
        self.checkpointer = Checkpointer(
            self.log,
            self.key_index,
            self._lowered_checkpoint,
            self.flusher,
            settings.flush_interval_consume_queue / 1000,
        )
        self.checkpointer.last_timestamp = lambda: self.appender.publisher.last_timestamp
        self.checkpointer.is_indexed = lambda: not (self._read_only or self.indexing.is_behind)
        self.checkpointer.dirty.update(dict.fromkeys(self.queues))
        self.queues.on_deleted = self._queue_deleted
        if self.bound is not None:
            self._show_confirmed(self.bound)
        self._parts.push_async_callback(self.checkpointer.close)
        self.retention = Retention(
            self._config,
            self.root,
            self.log,
            self.queues,
            self.key_index,
            self.appender,
            self.checkpointer,
        )
        if settings.broker_role is BrokerRole.SLAVE:
            self._become_replica()
        self._begin_to_take()
        # From here on the abort file shows the next start whether the store was closed.
        self._parts.callback(self.stop_taking)

    def _was_anothers(self) -> bool:
        """Whether another broker stored the newest message. Then this broker was a slave of it, and
        offsets of groups may be past the end of this log.
        """
        try:
            record = self.log.record_at(self.queues.newest())
        except OSError:  # it has been counted and logged
            return False
        return record is not None and record_store_host(record) != self._store_host

    def _show_confirmed(self, bound: ConfirmOffset) -> None:
        saved = self._lowered_checkpoint.confirm_offset
        bound.begin(self.queues, self.log.written, saved, self.appender.publisher.show)
        self.appender.publisher.bound = bound
        self.checkpointer.confirmed = lambda: bound.offset

    def _become_replica(self) -> None:
        """Refuse messages that are not from a master."""
        self.appender.refuse(
            SLAVE_CAUSE,
            StoreRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "store refused: this broker is a slave (brokerRole); send to its master",
            ),
        )
        self.replica = Replica(
            self.log,
            self.queues,
            self.appender,
            self.flusher,
            self._delays(),
            self._restart_queues,
            makes_index=self.key_index is not None,
        )

    def _begin_to_take(self) -> None:
        """Mark the store as running and accept messages, unless the disk is full."""
        if self._read_only is None:
            try:
                self._mark_running()
                return
            except OSError as error:
                if not self._begin_read_only(error):
                    raise
        assert self._read_only is not None
        self.appender.refuse("start", self._read_only)
        self.checkpointer.dirty.clear()

    def _mark_running(self) -> None:
        """Create the abort file, which a clean stop deletes.

        The file and the names of the folders are on the disk before a message is accepted: a power
        failure before the first checkpoint must not leave a store that looks closed, or none at
        all.
        """
        mark_running(self.root)
        for folder in {self.root.parent, *(path.parent for path in self.log.paths)} - {self.root}:
            # A folder that this user may enter but not list was created by an administrator, long
            # before this start.
            with contextlib.suppress(PermissionError):
                files.sync_folder(folder)

    def stop_taking(self) -> None:
        """Append deferred messages, write all, and refuse messages from now on, because the store
        stops.
        """
        self.appender.end_turn()
        self.appender.clear_again()  # else the next start would find refused messages
        self.appender.refuse(
            "stopped",
            StoreRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "store refused: it is being stopped"),
        )

    async def _take_again(self) -> None:
        """Leave the read-only state of a start on a full disk as soon as there is space."""
        last = ""
        while self._read_only is not None:
            await asyncio.sleep(FULL_DISK_SECONDS)
            try:
                self._leave_read_only()
            except (OSError, StoreLoadError) as error:
                if str(error) != last:
                    log.error("the store is still read-only: %s", error)
                last = str(error)

    def _leave_read_only(self) -> None:
        """Write what the start could not write, and accept messages. Raises OSError,
        StoreLoadError.
        """
        self._recovery.finish()
        self._deletions.cut(self.log.position, self.log)
        self._mark_running()
        self._lowered_checkpoint = self._recovery.checkpoint
        self.checkpointer.resume(self._lowered_checkpoint)
        self.checkpointer.dirty.update(dict.fromkeys(self.queues))
        self._read_only = None
        self.appender.accept("start")
        log.warning("the disk has space again; accepting messages")

    def works(self) -> Iterator[tuple[Work, str]]:
        """The store's tasks, each of which runs until cancelled, and their names."""
        yield self._flush_log, "store: flush"
        yield self.checkpointer.run, "store: checkpoint"
        yield self.retention.run, "store: cleaning"
        if self._read_only is not None:
            yield self._take_again, "store: full disk"

    async def _flush_log(self) -> None:
        while True:
            await asyncio.sleep(self._config().flush_interval_commit_log / 1000)
            self.appender.clear_again()
            self.flusher.start()
            self.indexing.put_rest()

    async def close(self) -> None:
        """Flush everything and close. Idempotent."""
        started = hasattr(self, "checkpointer")
        await self._parts.aclose()
        clean = (
            started
            and self._read_only is None
            and self.log.flushed == self.log.written == self.checkpointer.safe_offset
            and not self.indexing.is_behind
        )
        if self.key_index is not None:
            self.key_index.close()
        self.queues.close()
        self.log.close()
        if self._lock.is_open:
            if clean:
                files.remove(self.root / layout.ABORT_FILE)
            self._lock.release()

    # what happens to the log --------------------------------------------------------------------

    def _published(self, batch: Batch) -> None:
        if self.replica is None:
            self.put_times.add(clock.milliseconds() - batch.timestamp, batch.messages)
        self.checkpointer.dirty.update(batch.touched)
        self.indexing.put(batch)

    def truncated_at(self, end: int) -> None:
        """Adapt the store after the log was truncated at an offset."""
        self._deletions.cut(end, self.log)
        self.checkpointer.lost_after(end)
        self.appender.growth_mark = 0
        if self.replica is not None:
            self.replica.begin()

    # questions --------------------------------------------------------------------------------

    @property
    def min_physical_offset(self) -> int:
        return self.log.minimum

    @property
    def max_physical_offset(self) -> int:
        return self.log.written

    @property
    def flushed_offset(self) -> int:
        return self.log.flushed

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, created in memory if it is missing."""
        return self.queues.get_or_make(topic, queue_id)

    def queue_counts(self) -> dict[str, int]:
        """The topics that have queues, each with its highest queue id plus one."""
        counts: dict[str, int] = {}
        for queue in self.queues:
            counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
        return counts

    def queues_of(self, topic: str) -> list[int]:
        return [queue.queue_id for queue in self.queues.of_topic(topic)]

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last message that can be read, 0 for a missing queue."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else queue.readable

    def end_offset(self, topic: str, queue_id: int) -> int:
        """One past the last message, even if that cannot be read yet."""
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else queue.appended

    def all_in_sight(self) -> AbstractContextManager[None]:
        """As `ConfirmOffset.all_in_sight`; does nothing without a bound."""
        return contextlib.nullcontext() if self.bound is None else self.bound.all_in_sight()

    def end_before(self, queue: ConsumeQueue) -> int:
        """The queue offset at which a consumer continues whose offset is past the end of a queue.

        If the queue was deleted or cleaned since, this is its minimum: the consumer's offset is of
        an earlier queue generation, so it has seen none of the new messages. Otherwise it is the
        queue's end at the recovered end of the log: where the log ended when the store was opened
        after a crash that may have lost the end of the log, or when this broker stopped being a
        slave. Without a recovered end it is the current end; so, too, on a slave that has not
        crashed, because that lags its master without having lost anything.
        """
        found = self.checkpointer.recovered_end
        if self._has_begun_anew(queue.topic, queue.queue_id):
            return queue.minimum
        if found is None or (self.replica is not None and not self.report.crashed):
            return queue.readable
        return queue.first_at_or_after(found)

    def reached(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The offset that a group has reached, which it reports as ``offset``.

        If the end of the queue may have been lost, the offset is limited to the end, so that the
        group does not skip the next messages. Returns None for an offset of an earlier queue
        generation.
        """
        end = self.end_offset(topic, queue_id)
        if offset <= end:
            return offset
        if self._has_begun_anew(topic, queue_id):
            return None
        return offset if self.checkpointer.recovered_end is None else end

    def _has_begun_anew(self, topic: str, queue_id: int) -> bool:
        """Whether a queue that is shorter than a reported offset was deleted or cleaned, as far as
        is known, and has not lost its end since then.
        """
        last = self._deletions.last_of(topic, queue_id)
        return self.replica is None and last > 0 and last >= (self.checkpointer.recovered_end or 0)

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get(topic, queue_id)
        return 0 if queue is None else queue.minimum

    def queue_unit(self, topic: str, queue_id: int, address: int) -> Unit | None:
        """The unit at an address of the queue's extension, or None."""
        queue = self.queues.get(topic, queue_id)
        extension = None if queue is None else queue.extension
        return None if extension is None else extension.unit(address)

    def record_at(self, physical: int) -> bytes | None:
        """A whole record as stored, or None if no record starts at that offset. Raises OSError."""
        if not self.log.minimum <= physical < self.readable_end:
            return None
        return self.log.record_at(physical)

    @property
    def readable_end(self) -> int:
        """With sync flush no reader sees anything past the flushed offset."""
        return self.log.written if self.appender.await_flush is None else self.log.flushed

    def delete_topic(self, topic: str) -> None:
        """Delete one topic, as `delete_topics`."""
        self.delete_topics([topic])

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete the queues of topics and their files, with the messages in flight to them.

        Raises OSError if the deletion cannot be recorded; the queues then still exist. Raises
        QueuesLeft if files cannot be deleted; their queues exist until they are deleted again.
        """
        self.appender.commit()
        self._deletions.add(topics, self.log.position, self.log)
        stuck: OSError | None = None
        for topic in topics:
            try:
                self.queues.delete_topic(topic)
            except OSError as error:
                stuck = error
        if stuck is not None:
            raise QueuesLeft(stuck.errno, stuck.strerror) from stuck

    def note_cleared(self, queues: Iterable[ConsumeQueue]) -> None:
        """Record that all messages that the log has for these queues now are deleted from them,
        also for later replays of the log: the queues restart at offset 0. Raises OSError.
        """
        self.appender.commit()
        cleared = {(queue.topic, queue.queue_id): self.log.position for queue in queues}
        if cleared:
            self._deletions.add_queues(cleared, self.log)

    def _queue_deleted(self, queue: ConsumeQueue) -> None:
        self.checkpointer.dirty.pop(queue, None)
        if queue.waiting:
            # No message will come that ends their wait. Called later in the event loop, because
            # callers that remember the queue have to forget it first.
            asyncio.get_running_loop().call_soon(wake, [queue])

    def was_deleted(self, topic: str, queue_id: int, physical: int) -> bool:
        """Whether the record at an offset is older than the last deletion of a queue."""
        return self._deletions.covers(topic, queue_id, physical)

    def _restart_queues(self, began: Mapping[tuple[str, int], int]) -> None:
        """Restart queues of a slave, by topic and id, with the messages at physical offsets, as at
        its master, where their topic was deleted and created again. Raises OSError.
        """
        self._deletions.add_queues(began, self.log)
        try:
            for topic, queue_id in began:
                queue = self.queues.get(topic, queue_id)
                if queue is not None:
                    self.queues.delete_queue(queue)
        finally:
            for callback in self.on_queues_restarted:
                callback(began.keys())
