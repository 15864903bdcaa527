"""The file `timerwheel`: for each step of time, the units of the timer log that are due in it.

The wheel has two weeks of slots at a precision of one second and is overwritten as it turns. A slot
(TimerWheel and Slot of RocketMQ 5, big-endian):

    time / precision i64 | first position i64 | last position i64 | count i32 | magic i32

A position is that of a unit in the timer log; the units of a slot are chained from the last to the
first. A slot with another time than the requested one is empty.
"""

import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mq.client.machine import files
from mq.daemons.service import CannotStart

log = logging.getLogger(__name__)

SLOTS = 2 * 7 * 24 * 3600
_SLOT = struct.Struct(">qqqii")
_SIZE = SLOTS * _SLOT.size
_CHUNK = 4096 * _SLOT.size
_FIRST_TIMERS = 1_577_836_800_000  # 2020: no release before 2022 wrote such a file


class Slot(NamedTuple):
    """Positions of the first and the last unit, -1 in an empty slot, and the number of units."""

    first: int
    last: int
    units: int


EMPTY = Slot(-1, -1, 0)


def is_wheel(path: Path) -> bool:
    """Whether there is a wheel, possibly one whose creation was interrupted by a kill. A damaged
    one does not count, and is logged. Raises OSError.
    """
    if not files.exists(path):
        return False
    descriptor = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        why = _damage_of(descriptor)
    finally:
        files.close(descriptor)
    if why:
        log.error("rebuilding %s from the log: %s", path, why)
    return not why


def _damage_of(descriptor: int) -> str:
    """Return what is wrong with a wheel of any precision, or ""."""
    size = files.fstat(descriptor).st_size
    if size not in (0, _SIZE):
        return f"it has {size} bytes, but a wheel has {_SIZE}"
    for place, (step, *_) in _slots(descriptor):
        if step and step % SLOTS != place:
            return f"the slot of step {step} is where {place} belongs"
    return ""


def _slots(descriptor: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the place of each slot and its content; most slots that were never written are
    skipped."""
    empty = bytes(_CHUNK)
    for position in range(0, _SIZE, _CHUNK):
        chunk = files.pread(descriptor, _CHUNK, position)
        if chunk != empty[: len(chunk)]:  # most of the file is a hole
            yield from enumerate(_SLOT.iter_unpack(chunk), position // _SLOT.size)


class TimerWheel:
    """The wheel's file, read and written one slot at a time. ``precision`` is in ms.

    Raises OSError if it cannot be opened or created.
    """

    def __init__(self, path: Path, precision: int) -> None:
        self.precision = precision
        self._descriptor = files.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        files.ftruncate(self._descriptor, _SIZE)

    def check_precision(self, read_time: int) -> None:
        """Refuse a wheel that was written with another precision, because all its times would be
        wrong.

        ``read_time`` is the time up to which it was read, in ms. Raises CannotStart.
        """
        newest = self._newest_step() * self.precision
        ahead = read_time + SLOTS * self.precision
        if newest and not _FIRST_TIMERS <= newest <= ahead:
            raise CannotStart(
                f"timerPrecisionMs={self.precision}: the timer's files were written with another "
                "value; set the old value until no timed message is left, or remove timerwheel, "
                "timerlog and config/timercheck: then all timed messages in the log are "
                "delivered, also those that were delivered before"
            )

    def _newest_step(self) -> int:
        return max((step for _, (step, *_) in _slots(self._descriptor)), default=0)

    def times_after(self, end: int) -> list[int]:
        """The times, in ms, whose slots point into the log at or after a position.

        The counts are not reliable: Java has 0 and less in slots with units
        (TimerMessageStore.doEnqueue for those that withdraw others, TimerWheel.reviseSlot).
        """
        return [
            step * self.precision
            for _, (step, first, last, _, _) in _slots(self._descriptor)
            if step and max(first, last) >= end  # a slot without a time was never written
        ]

    def used(self, begin: int, end: int) -> list[int]:
        """The times of slots with units, from ``begin`` to before ``end``, in order."""
        first, last = begin // self.precision, end // self.precision
        steps = [
            step
            for _, (step, _, newest, _, _) in _slots(self._descriptor)
            if step and newest >= 0 and first <= step < last
        ]
        return [step * self.precision for step in sorted(steps)]

    def clear(self, begin: int, end: int) -> None:
        """Empty all slots from ``begin`` to before ``end``. Raises OSError."""
        for time in self.used(begin, end):
            self.put(time, EMPTY)

    def slot(self, time: int) -> Slot:
        """The slot of a time in ms."""
        step = time // self.precision
        raw = files.pread(self._descriptor, _SLOT.size, step % SLOTS * _SLOT.size)
        found, first, last, units, _ = _SLOT.unpack(raw)
        return Slot(first, last, units) if found == step else EMPTY

    def put(self, time: int, slot: Slot) -> None:
        """Set the slot of a time. Raises OSError."""
        step = time // self.precision
        raw = _SLOT.pack(step, slot.first, slot.last, slot.units, 0)
        files.write_all(self._descriptor, raw, step % SLOTS * _SLOT.size)

    def sync(self) -> None:
        files.fdatasync(self._descriptor)

    def close(self) -> None:
        files.close(self._descriptor)
