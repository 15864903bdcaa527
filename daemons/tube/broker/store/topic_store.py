"""One store of a topic: what is appended, and from where on it may be read.

    append()    a record gets its place; nothing is in the files yet
    write       once a turn of the event loop: one write for the data of the turn, one for the index
    readable    what the flush mode promises (FlushMode) and no more: readers see that, and senders
                are answered then

Invariant: the index is never written before the data that it points to, and `readable` never passes
what has been written, nor, with `sync`, what is on the disk. A write that fails leaves both files
as they were; where that is impossible, and after an fsync that failed, the store takes nothing more
(`halt`) until it is opened again: the kernel may have dropped what it could not write.

All of this runs on the event loop; only fsyncs run in threads, on what `flushing` has named.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mq.client.machine import clock
from mq.daemons.tube.broker.store.checkpoint import Checkpoint
from mq.daemons.tube.broker.store.errors import (
    FAILED,
    OVERFLOW,
    UNAVAILABLE,
    FlushMode,
    Refused,
    of_error,
)
from mq.daemons.tube.broker.store.layout import HEAD, HEAD_SIZE, INDEX, INDEX_SIZE, PREFIX, TOKEN
from mq.daemons.tube.broker.store.recovery import RecoveredStore
from mq.daemons.tube.broker.store.segments import Segment, Unrestored

log = logging.getLogger(__name__)

# Bytes that may wait for a disk that is slower than the senders; then they are told 419.
MAX_WAITING = 64 * 1024 * 1024

#: Told of a record: why it was refused, or None, its message id, time and offset in the index.
Done = Callable[[Refused | None, int, int, int], None]


@dataclass
class FlushSettings:
    """When what is written is flushed (topic settings of the master, times in ms, sizes in bytes).

    The cache's are of flush mode `memory`.
    """

    threshold: int = 1000  # unflushThreshold, messages
    interval: int = 10_000  # unflushInterval
    data_hold: int = 0  # unflushDataHold; 0: no matter how many bytes
    cache_bytes: int = 1024 * 1024  # memCacheMsgSizeInMB, in its unit of 512 KiB
    cache_count: int = 5 * 1024  # memCacheMsgCntInK, in its unit of 512
    cache_interval: int = 20_000  # memCacheFlushIntvl


class TopicStore:
    """A store that is open. ``request_flush`` is called when it wants its data flushed."""

    def __init__(
        self,
        key: str,
        folder: Path,
        recovered: RecoveredStore,
        mode: FlushMode,
        settings: FlushSettings,
        request_flush: Callable[["TopicStore"], None],
    ) -> None:
        self.key = key
        self.folder = folder
        self.data = recovered.data
        self.index = recovered.index
        self.mode = mode
        self.settings = settings
        self.halt: Refused | None = None  # why nothing is taken any more
        self.is_broken = False  # for good: a write or an fsync failed. Also set by threads
        self.closed = False
        self.checkpoint = recovered.checkpoint
        self.max_data = self.data.end  # what may be read ends here
        self.max_index = self.index.end
        self.messages = 0  # appended since the start, and readable
        self.bytes = 0
        self.failures = 0  # writes and fsyncs that failed
        self.last_append_ms = 0
        self._request_flush = request_flush
        self._next_data = self.data.end
        self._next_index = self.index.end
        self._parts: list[bytes] = []
        self._entries: list[bytes] = []
        self._done: list[tuple[Done, int, int, int]] = []
        self._writing: asyncio.Handle | None = None
        self._unflushed: list[tuple[int, int, list[tuple[Done, int, int, int]]]] = []
        self._unflushed_count = 0
        self._flushed_data = self.data.end
        self._timer: asyncio.TimerHandle | None = None

    @property
    def min_data(self) -> int:
        return self.data.start

    @property
    def min_index(self) -> int:
        return self.index.start

    @property
    def waiting(self) -> int:
        """Bytes that were taken and are not promised yet."""
        return self._next_data - self.max_data

    # appending --------------------------------------------------------------------------------

    def append(
        self,
        partition: int,
        payload: bytes,
        checksum: int,
        address: int,
        key_code: int,
        flag: int,
        message_id: int,
        now: int,
        done: Done,
    ) -> None:
        """Take a message; ``done`` is told when what the flush mode promises is so, or why not.

        Raises Refused: it was not taken.
        """
        if self.halt is not None:
            raise self.halt
        if self._next_data - self.max_data > MAX_WAITING:
            raise Refused(OVERFLOW, "the disk is slower than the senders")
        data, index = self.data, self.index
        if (
            self._next_data - data.segments[-1].start >= data.size
            or self._next_index - index.segments[-1].start >= index.size
        ):
            self._roll()
        at, at_index = self._next_data, self._next_index
        size = HEAD_SIZE + len(payload)
        if self.mode is FlushMode.memory:
            self._make_room(size)
            at, at_index = self._next_data, self._next_index
        head = HEAD.pack(
            PREFIX + len(payload),
            TOKEN,
            checksum,
            partition,
            at_index,
            now,
            address,
            key_code,
            message_id,
            flag,
        )
        self._parts += (head, payload)
        self._entries.append(INDEX.pack(partition, at, size, key_code, now))
        self._next_data = at + size
        self._next_index = at_index + INDEX_SIZE
        self.last_append_ms = now
        if self.mode is FlushMode.memory:
            self._done.append((_nobody, 0, 0, 0))
            if self._timer is None:
                self._write_later(self.settings.cache_interval)
            done(None, message_id, now, at_index)
            return
        self._done.append((done, message_id, now, at_index))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().call_soon(self._write_now)

    def write_cached(self) -> None:
        """Write what flush mode `memory` holds: a reader has come to the end of the files."""
        if self.mode is FlushMode.memory and self._parts:
            self._write_now()

    def _make_room(self, size: int) -> None:
        held, settings = self._next_data - self.data.end, self.settings
        if held and (
            held + size > settings.cache_bytes or len(self._entries) >= settings.cache_count
        ):
            self._write_now()
            if self._parts:
                raise Refused(OVERFLOW, "the cache is full, and the store cannot be written")

    def _write_later(self, milliseconds: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(milliseconds / 1000, self._timed_write)

    def _timed_write(self) -> None:
        self._timer = None
        self._write_now()

    def _roll(self) -> None:
        """Begin new files where the last are full. Raises Refused."""
        self._write_now()
        if self._parts:
            raise Refused(OVERFLOW, "the cache is full, and the store cannot be written")
        if self.halt is not None:
            raise self.halt
        for one in (self.data, self.index):
            if one.is_full:
                try:
                    one.roll()
                except OSError as error:
                    self.failures += 1
                    log.error("%s: no new file: %s", self.key, error,
                              extra={"failure": f"files of {self.key}"})  # fmt: skip
                    raise of_error(error) from error

    # writing ----------------------------------------------------------------------------------

    def _write_now(self) -> None:
        """Write what was appended. Nothing is raised: whoever waits is told."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if not self._parts:
            return
        if self.is_broken:
            self._refuse_all(self.halt or Refused(UNAVAILABLE, "the store is broken"))
            return
        before = self.data.end
        try:
            self.data.write(b"".join(self._parts))
            try:
                self.index.write(b"".join(self._entries))
            except OSError:
                self.data.take_back(before)
                raise
        except OSError as error:
            self._write_failed(error)
            return
        done, self._done = self._done, []
        self._parts, self._entries = [], []
        self._unflushed_count += len(done)
        if self.mode is FlushMode.sync:
            self._unflushed.append((self.data.end, self.index.end, done))
            self._request_flush(self)
            return
        self._publish(self.data.end, self.index.end, done)
        self._flush_when_due()

    def _write_failed(self, error: OSError) -> None:
        self.failures += 1
        if isinstance(error, Unrestored):
            self._stop(f"a write failed and could not be taken back: {error}")
        log.error("%s cannot be written: %s", self.key, error,
                  extra={"failure": f"writes of {self.key}"})  # fmt: skip
        if self.mode is FlushMode.memory and self.halt is None:
            if self._timer is None:  # these were answered: they are kept, and tried again
                self._write_later(1000)
            return
        self._refuse_all(of_error(error))

    def _refuse_all(self, refused: Refused) -> None:
        """Forget what was appended and not written."""
        done, self._done = self._done, []
        self._parts, self._entries = [], []
        self._next_data, self._next_index = self.data.end, self.index.end
        for one, *_ in done:
            _tell(one, refused, 0, 0, 0)

    def _publish(self, data: int, index: int, done: list[tuple[Done, int, int, int]]) -> None:
        self.messages += len(done)
        self.bytes += data - self.max_data
        self.max_data, self.max_index = data, index
        for one, message_id, now, at_index in done:
            _tell(one, None, message_id, now, at_index)

    def _stop(self, why: str) -> None:
        text = f"{self.key} takes no messages until the broker is restarted: {why}"
        self.is_broken = True
        self.halt = Refused(UNAVAILABLE, text)
        log.critical("%s", text)
        self._refuse_unflushed(Refused(FAILED, f"the store cannot be flushed: {why}"))

    def _refuse_unflushed(self, refused: Refused) -> None:
        """Tell all who wait for an fsync that there will be none that says anything of theirs."""
        unflushed, self._unflushed = self._unflushed, []
        for _, _, done in unflushed:
            for one, *_ in done:
                _tell(one, refused, 0, 0, 0)

    # flushing ---------------------------------------------------------------------------------

    def _flush_when_due(self) -> None:
        settings = self.settings
        held = self.data.end - self._flushed_data
        if self._unflushed_count >= settings.threshold or 0 < settings.data_hold <= held:
            self._request_flush(self)
        elif self._timer is None and self.mode is FlushMode.os:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(settings.interval / 1000, self._interval_over)

    def _interval_over(self) -> None:
        self._timer = None
        if self._flushed_data < self.data.end:
            self._request_flush(self)

    def flushing(self) -> tuple[int, list[tuple[Segment, int]]]:
        """What a flush that begins now has to fsync, and up to where it makes the data durable."""
        self._unflushed_count = 0
        return self.data.end, self.data.unsynced()

    def flushed(self, upto: int, segments: list[tuple[Segment, int]], error: Any) -> None:
        """A flush has ended; ``error`` is what went wrong, None if nothing did."""
        if error is not None:
            self.failures += 1
            self._stop(f"an fsync failed: {error}")
            return
        if self.is_broken:  # what another fsync did not write, this one knows nothing of
            return
        for segment, end in segments:
            segment.synced = max(segment.synced, end)
        self._flushed_data = max(self._flushed_data, upto)
        while self._unflushed and self._unflushed[0][0] <= upto:
            self._publish(*self._unflushed.pop(0))
        if self._unflushed:
            self._request_flush(self)

    def checkpointing(self) -> tuple[Checkpoint, list[tuple[Segment, int]]] | None:
        """What a checkpoint that begins now would say, and has to fsync; None if nothing is new."""
        reached = Checkpoint(self.data.end, self.index.end)
        if self.is_broken or self.closed or reached == self.checkpoint:
            return None
        return reached, self.data.unsynced() + self.index.unsynced()

    def checkpointed(
        self, reached: Checkpoint, segments: list[tuple[Segment, int]], error: Any
    ) -> None:
        """A checkpoint has ended."""
        if error is not None:
            self.flushed(0, [], error)
            return
        self.flushed(reached.data, segments, None)
        if not self.is_broken:
            self.checkpoint = reached

    def finish(self) -> None:
        """Write what is held; nothing is taken any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._write_now()
        if self.halt is None:
            self.halt = Refused(UNAVAILABLE, "the broker stops")

    def close(self) -> None:
        """Close the files. Idempotent. What was not answered is refused."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._refuse_unflushed(Refused(UNAVAILABLE, "the store is closed"))
        self.data.close()
        self.index.close()


def _tell(done: Done, refused: Refused | None, message_id: int, now: int, at_index: int) -> None:
    try:
        done(refused, message_id, now, at_index)
    except Exception:
        log.exception("answering a send failed")


def _nobody(refused: Refused | None, message_id: int, now: int, at_index: int) -> None:
    """In place of a sender that was answered already."""


class MessageIds:
    """Ids that no other message of this broker has: the time, and numbers in between.

    63 bits of them are the milliseconds since the epoch of Java's IdWorker, 22 bits further left.
    """

    _EPOCH = 1_350_282_310_830

    def __init__(self) -> None:
        self._last = 0

    def next(self, now: int) -> int:
        self._last = max(self._last + 1, (now - self._EPOCH) << 22)
        return self._last


def now_ms() -> int:
    return clock.milliseconds()
