"""Keeps series of metrics: in memory until their hour is over, in a file for a day and for 30.

    a minute   points since the last batch are written: a kill loses up to a minute
    an hour    when it is over, its points move from memory to rows of their own
    a day      after it points are deleted; their sums of five minutes stay for 30 days

If the file cannot be read, it is reported and quarantined, and the points in memory go to a new
file. While the file cannot be written, points stay in memory, up to a limit. After the clock is set
back, points from that time on are overwritten; after a jump of the clock nothing is deleted for an
hour, so that a wrong clock does not delete the history.
"""

import asyncio
import logging
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from mq.client.machine import clock, database
from mq.client.machine.threads import DiskThread
from mq.daemons.console.history.file import STEP_ROWS, Batch, HistoryFile
from mq.daemons.console.history.points import (
    COARSE,
    HOUR,
    Damaged,
    Key,
    Point,
    Points,
    merged,
)
from mq.daemons.service import CannotStart
from mq.daemons.supervision import Tasks

log = logging.getLogger(__name__)

T = TypeVar("T")

KEEP_SECONDS = 60
FINE_SECONDS = 24 * HOUR
# The number of series; each takes 2 KB of memory and up to 100 KB of the disk.
MOST_SERIES = 8_000
RESERVED = 2_000
# Points that wait for a full disk: 12 MB.
MOST_WAITING = 500_000
# Points in memory while the disk cannot be written: 24 MB, hours for the maximum of series.
MOST_IN_MEMORY = 2_000_000
_FOLDED_AT_ONCE = 200  # series per step, which takes about 20 ms of the thread
_JUMP_SECONDS = 60.0
_CALM_SECONDS = 3600.0
_END_OF_TIME = 1 << 32  # s since 1970, limited by the file's format


class History:
    """An async context manager; entering raises CannotStart, InUse.

    Attributes:
        problem: why data are not kept, in a line; None without a problem. left_out: points of
        series over the limit. lost: points that waited for the disk too long.
    """

    def __init__(self, path: Path, *, most_series: int = MOST_SERIES) -> None:
        self.problem: str | None = None
        self.left_out = 0
        self.lost = 0
        self._file = HistoryFile(path)
        self._most_series = most_series
        self._thread: DiskThread
        self._tasks = Tasks()
        self._numbers: dict[Key, int] = {}
        self._memory: dict[int, Points] = {}  # by number of the series
        self._new: dict[Key, int] = {}
        self._waiting = _empty()
        self._next_number = 1
        self._writing = asyncio.Lock()
        self._offset = 0.0  # from the monotonic clock to the time of day
        self._prune_from = 0.0  # monotonic
        self._open = False

    async def __aenter__(self) -> Self:
        self._thread = DiskThread("history")
        try:
            await self._begin()
        except BaseException:
            self._thread.stop()
            raise
        self._offset = clock.time() - clock.monotonic()
        self._tasks.spawn(self._keep_on, "console history")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()
        try:
            await self.keep()
        finally:
            if self._open:
                self._thread.submit(self._file.close, lambda *_: None)
            self._thread.stop()

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self._numbers)

    def __contains__(self, key: Key) -> bool:
        return key in self._numbers

    def add(self, key: Key, value: float, at: int | None = None) -> None:
        """Add a value for now, or for a time in s since 1970."""
        number = self._numbers.get(key)
        if number is None:
            # Brokers and clusters are few and important. They have reserved places, because any
            # client that may create topics and groups can create thousands.
            room = RESERVED if key.kind in ("broker", "cluster") else 0
            if len(self._numbers) >= self._most_series + room:
                self.left_out += 1
                return
            number = self._numbers[key] = self._new[key] = self._next_number
            self._next_number += 1
        when = int(clock.time()) if at is None else at
        points = self._memory.get(number)
        if points is None:
            points = self._memory[number] = Points()
        points.add(when, value)
        if len(self._waiting.series) >= MOST_WAITING:
            self.lost += 1
            return
        self._waiting.series.append(number)
        self._waiting.times.append(when)
        self._waiting.values.append(value)

    async def read(self, key: Key, begin: int, end: int) -> list[Point]:
        """Return points from `begin` to before `end` (s): all of the last day, else per five
        minutes.

        Unknown series are empty. Unreadable data are left out, and reported.
        """
        number = self._numbers.get(key)
        if number is None:
            return []
        memory = self._memory.get(number, Points()).between(begin, end)
        until = min(memory.times[0], end) if memory else end
        fine = begin >= int(clock.time()) - FINE_SECONDS
        read = self._file.fine if fine else self._file.coarse
        try:
            stored = await self._run(lambda: read(number, begin, until))
        except (Damaged, database.Error) as error:
            self._report(str(error))
            stored = []
        found = stored + memory.all()
        return found if fine else merged(found, COARSE)

    async def keep(self, now: int | None = None) -> None:
        """Write new points, and the rows of hours that are over. `now` is in s."""
        moment = int(clock.time()) if now is None else now
        async with self._writing:
            try:
                await self._write(moment)
                await self._fold(moment // HOUR)
                await self._prune(moment)
            except database.OperationalError as error:  # a full or read-only disk
                self._report(str(error))
                self._evict()
            except (Damaged, database.DatabaseError) as error:
                await self._recreate(error)
            else:
                self._report_success()

    async def _keep_on(self) -> None:
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            await self.keep()

    def _evict(self) -> None:
        """Remove the oldest hours while too many points are in memory."""
        while sum(map(len, self._memory.values())) > MOST_IN_MEMORY:
            end = (self._oldest_hour() + 1) * HOUR
            for points in self._memory.values():
                removed = len(points) - len(points.between(end, _END_OF_TIME))
                points.cut(0, removed)
                self.lost += removed

    async def _write(self, now: int) -> None:
        batch, self._waiting = self._waiting, _empty()
        new, self._new = self._new, {}
        try:
            await self._run(lambda: self._file.keep(new, batch, now))
        # also after a cancellation: it is written with the next one, at worst twice
        except BaseException:
            batch.series.extend(self._waiting.series)
            batch.times.extend(self._waiting.times)
            batch.values.extend(self._waiting.values)
            self._waiting = batch
            self._new = new | self._new
            raise

    async def _fold(self, hour: int) -> None:
        """Move points of hours before this one to rows of their own."""
        while (oldest := self._oldest_hour()) < hour:
            await self._fold_hour(oldest)

    async def _fold_hour(self, hour: int) -> None:
        begin, end = hour * HOUR, (hour + 1) * HOUR
        numbers = [n for n, p in self._memory.items() if p and p.times[0] < end]
        for first in range(0, len(numbers), _FOLDED_AT_ONCE):
            some = [
                (number, part)
                for number in numbers[first : first + _FOLDED_AT_ONCE]
                if (part := self._memory[number].between(begin, end))
            ]
            await self._run(partial(self._file.fold, hour, some))
        await self._run(lambda: self._file.forget_log(end))
        for number in numbers:
            points = self._memory[number]
            points.cut(0, len(points) - len(points.between(end, _END_OF_TIME)))

    def _oldest_hour(self) -> int:
        oldest = min((p.times[0] for p in self._memory.values() if p), default=_END_OF_TIME)
        return oldest // HOUR

    async def _prune(self, now: int) -> None:
        monotonic = clock.monotonic()
        offset = clock.time() - monotonic
        if abs(offset - self._offset) > _JUMP_SECONDS:
            log.warning("the clock was set by %.0f s; deleting no history for an "
                        "hour", offset - self._offset)  # fmt: skip
            self._prune_from = monotonic + _CALM_SECONDS
        self._offset = offset
        if monotonic < self._prune_from:
            return
        while True:
            gone, series = await self._run(lambda: self._file.prune(now))
            self._forget(set(series))
            if gone < STEP_ROWS:
                return

    def _forget(self, numbers: set[int]) -> None:
        for key in [key for key, number in self._numbers.items() if number in numbers]:
            self._memory.pop(self._numbers.pop(key), None)

    async def _begin(self) -> None:
        try:
            await self._open_file()
        except Damaged as error:
            await self._quarantine(error)
            await self._open_file()

    async def _open_file(self) -> None:
        def load() -> tuple[dict[Key, int], list[Batch]]:
            self._file.open()
            try:
                return self._file.load()
            except database.DatabaseError as error:
                self._file.close()
                raise Damaged(str(error)) from None
            except BaseException:
                self._file.close()
                raise

        self._numbers, batches = await self._run(load)
        self._open = True
        self._next_number = max(self._numbers.values(), default=0) + 1
        known = set(self._numbers.values())
        for batch in batches:
            for number, at, value in zip(*batch, strict=True):
                if number in known:
                    self._memory.setdefault(number, Points()).add(at, value)

    async def _quarantine(self, error: Exception) -> None:
        path = await self._run(self._file.quarantine)
        log.error("cannot read the history (%s); quarantined as %s", error, path)
        self._report(f"could not be read ({error}); it was quarantined as {path.name}")

    async def _recreate(self, error: Exception) -> None:
        """Start a new file with the points in memory: the current hour."""
        numbers, memory = self._numbers, self._memory
        self._memory = {}
        try:
            if self._open:
                self._open = False
                await self._run(self._file.close)
                await self._quarantine(error)
            # Otherwise it was quarantined before, and the next one could not be created: the
            # current file must not replace the quarantined one with its 30 days.
            await self._open_file()
        except Damaged as again:
            await self._quarantine(again)
        except (CannotStart, OSError) as again:
            self._report(f"cannot be recreated: {again}")
        finally:
            self._numbers, self._memory = numbers, memory
        self._next_number = max(numbers.values(), default=0) + 1
        self._new = dict(numbers)
        self._waiting = _empty()
        for number, points in memory.items():
            self._waiting.series.extend([number] * len(points))
            self._waiting.times.extend(points.times)
            self._waiting.values.extend(points.values)

    def _report(self, problem: str) -> None:
        if self.problem is None:
            log.error("the history is not kept: %s", problem)
        self.problem = problem

    def _report_success(self) -> None:
        self.problem = None
        if self.left_out:
            self.problem = (
                f"the limit of {self._most_series} series is reached: "
                f"{self.left_out} points of others were dropped"
            )

    async def _run(self, work: Callable[[], T]) -> T:
        found: T = await self._thread.run(work)
        return found


def _empty() -> Batch:
    return Batch(array("I"), array("I"), array("d"))
