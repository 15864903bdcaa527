"""One store of a topic: appending, and the readable end.

    append()    a record gets its position; nothing is in the files yet
    write       once per turn of the event loop: one write for its data, one for the index
    readable    exactly the part that fulfils the flush mode (FlushMode): readers see it, senders
                get their answers then

Invariant: the index is never written before the data that it points to, and `readable` never passes
the written data, nor, with `sync`, the data on the disk. A failed write leaves both files
unchanged; if that is impossible, and after a failed fsync, the store accepts nothing more (`halt`)
until it is opened again: the kernel may have dropped unwritten data.

All of this runs on the event loop; only fsyncs run in threads, on the files of `flushing`.
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

# Bytes that may wait for a disk that is slower than the senders; beyond that senders get 419.
MAX_WAITING = 64 * 1024 * 1024

# Called with the refusal of a record, or None, its message id, time and offset in the index.
Done = Callable[[Refused | None, int, int, int], None]


@dataclass
class FlushSettings:
    """The conditions for flushes (topic settings of the master, times in ms, sizes in bytes).

    Those of the cache are for flush mode `memory`.
    """

    threshold: int = 1000  # unflushThreshold, messages
    interval: int = 10_000  # unflushInterval
    data_hold: int = 0  # 0: any number of bytes
    cache_bytes: int = 1024 * 1024  # memCacheMsgSizeInMB, in its unit of 512 KiB
    cache_count: int = 5 * 1024  # memCacheMsgCntInK, in its unit of 512
    cache_interval: int = 20_000  # memCacheFlushIntvl


class TopicStore:
    """An open store. ``request_flush`` is called when its data is to be flushed."""

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
        self.halt: Refused | None = None  # the reason if nothing is accepted any more
        self.is_broken = False  # permanently: a write or an fsync failed. Also set by threads
        self.closed = False
        self.checkpoint = recovered.checkpoint
        self.max_data = self.data.end  # the end of the readable data
        self.max_index = self.index.end
        self.messages = 0  # appended since the start, and readable
        self.bytes = 0
        self.failures = 0  # failed writes and fsyncs
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
        """Bytes that are accepted but not acknowledged yet."""
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
        """Append a message; ``done`` is called when the flush mode is fulfilled, or with the
        refusal.

        Raises Refused: it was not accepted.
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
            self._done.append((_ignore, 0, 0, 0))
            if self._timer is None:
                self._write_later(self.settings.cache_interval)
            done(None, message_id, now, at_index)
            return
        self._done.append((done, message_id, now, at_index))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().call_soon(self._write_now)

    def write_cached(self) -> None:
        """Write the cache of flush mode `memory`: a reader has reached the end of the files."""
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
        """Begin new files if the last are full. Raises Refused."""
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
        """Write the appended records. Raises nothing: waiting senders get the error."""
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
            if self._timer is None:  # these were acknowledged: they are kept, and tried again
                self._write_later(1000)
            return
        self._refuse_all(of_error(error))

    def _refuse_all(self, refused: Refused) -> None:
        """Refuse the appended records that are not written."""
        done, self._done = self._done, []
        self._parts, self._entries = [], []
        self._next_data, self._next_index = self.data.end, self.index.end
        for one, *_ in done:
            _call(one, refused, 0, 0, 0)

    def _publish(self, data: int, index: int, done: list[tuple[Done, int, int, int]]) -> None:
        self.messages += len(done)
        self.bytes += data - self.max_data
        self.max_data, self.max_index = data, index
        for one, message_id, now, at_index in done:
            _call(one, None, message_id, now, at_index)

    def _stop(self, why: str) -> None:
        text = f"{self.key} takes no messages until the broker is restarted: {why}"
        self.is_broken = True
        self.halt = Refused(UNAVAILABLE, text)
        log.critical("%s", text)
        self._refuse_unflushed(Refused(FAILED, f"the store cannot be flushed: {why}"))

    def _refuse_unflushed(self, refused: Refused) -> None:
        """Refuse all records that wait for an fsync: none will cover them."""
        unflushed, self._unflushed = self._unflushed, []
        for _, _, done in unflushed:
            for one, *_ in done:
                _call(one, refused, 0, 0, 0)

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
        """Return the files for a flush that begins now, and the end of the data that it makes
        durable.
        """
        self._unflushed_count = 0
        return self.data.end, self.data.unsynced()

    def flushed(self, upto: int, segments: list[tuple[Segment, int]], error: Any) -> None:
        """Process the end of a flush; ``error`` is its failure, None without one."""
        if error is not None:
            self.failures += 1
            self._stop(f"an fsync failed: {error}")
            return
        if self.is_broken:  # this fsync does not cover the data that another one failed to write
            return
        for segment, end in segments:
            segment.synced = max(segment.synced, end)
        self._flushed_data = max(self._flushed_data, upto)
        while self._unflushed and self._unflushed[0][0] <= upto:
            self._publish(*self._unflushed.pop(0))
        if self._unflushed:
            self._request_flush(self)

    def checkpointing(self) -> tuple[Checkpoint, list[tuple[Segment, int]]] | None:
        """Return a checkpoint of the present state, and the files to fsync; None if unchanged."""
        reached = Checkpoint(self.data.end, self.index.end)
        if self.is_broken or self.closed or reached == self.checkpoint:
            return None
        return reached, self.data.unsynced() + self.index.unsynced()

    def checkpointed(
        self, reached: Checkpoint, segments: list[tuple[Segment, int]], error: Any
    ) -> None:
        """Process the end of a checkpoint."""
        if error is not None:
            self.flushed(0, [], error)
            return
        self.flushed(reached.data, segments, None)
        if not self.is_broken:
            self.checkpoint = reached

    def finish(self) -> None:
        """Write held data; nothing is accepted any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._write_now()
        if self.halt is None:
            self.halt = Refused(UNAVAILABLE, "the broker stops")

    def close(self) -> None:
        """Close the files. Idempotent. Unanswered records are refused."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._refuse_unflushed(Refused(UNAVAILABLE, "the store is closed"))
        self.data.close()
        self.index.close()


def _call(done: Done, refused: Refused | None, message_id: int, now: int, at_index: int) -> None:
    try:
        done(refused, message_id, now, at_index)
    except Exception:
        log.exception("answering a send failed")


def _ignore(refused: Refused | None, message_id: int, now: int, at_index: int) -> None:
    """Does nothing: for a sender that was already answered."""


class MessageIds:
    """Ids that are unique for this broker: the time, and numbers in between.

    63 bits of them are the milliseconds since the epoch of Java's IdWorker, shifted left by 22
    bits.
    """

    _EPOCH = 1_350_282_310_830

    def __init__(self) -> None:
        self._last = 0

    def next(self, now: int) -> int:
        self._last = max(self._last + 1, (now - self._EPOCH) << 22)
        return self._last


def now_ms() -> int:
    return clock.milliseconds()
