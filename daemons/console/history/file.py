"""The file of the history: its content, reads and writes. It is used in a separate thread.

    series   a number for each key, and the hour of its last write
    log      the points of all series, a row for each batch, until their hour is over
    fine     the points of a series and an hour, for a day
    coarse   the same per five minutes: lowest, highest, mean, for 30 days

Rows of an hour are adjacent, so writes append and deletes remove the oldest rows. An hour is
written from the log and then deleted from it: after a kill in between, it is written again.
"""

import contextlib
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mq.client.machine import clock, database, files
from mq.daemons.console.history.points import (
    HOUR,
    Damaged,
    Key,
    Point,
    Points,
    coarse,
    pack_coarse,
    unpack_coarse,
)
from mq.daemons.service import CannotStart, InUse
from mq.daemons.state_file import make_private_folder

SCHEMA = 1
FINE_HOURS = 25  # with the whole hour of a day ago
COARSE_HOURS = 30 * 24 + 1
# Rows that one step deletes, which takes a few milliseconds.
STEP_ROWS = 2000

#: The column `figure` is the metric of a series.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, "
    "kind TEXT NOT NULL, subject TEXT NOT NULL, figure TEXT NOT NULL, hour INTEGER NOT NULL, "
    "UNIQUE (cluster, kind, subject, figure))",
    "CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, until INTEGER NOT NULL, "
    "points BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS fine (hour INTEGER, series INTEGER, points BLOB NOT NULL, "
    "PRIMARY KEY (hour, series)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS coarse (hour INTEGER, series INTEGER, points BLOB NOT NULL, "
    "PRIMARY KEY (hour, series)) WITHOUT ROWID",
)


class Batch(NamedTuple):
    """Points of several series: numbers of the series, times in s, values."""

    series: "array[int]"
    times: "array[int]"
    values: "array[float]"


class HistoryFile:
    """The database file, for one process. All methods block and are for one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: database.Connection

    def open(self) -> None:
        """Open or create the file. Raises InUse, CannotStart; Damaged if it is not readable."""
        make_private_folder(self.path.parent)
        with (
            contextlib.suppress(FileNotFoundError, PermissionError),
            files.opened(self.path, os.O_RDONLY) as descriptor,
        ):
            files.fchmod(descriptor, 0o600)  # earlier releases made it readable for all users
        try:
            self._connection = database.connect_to_log(self.path)
        except database.OperationalError as error:
            if "locked" in str(error):
                raise InUse(f"{self.path}: another console uses it") from None
            raise CannotStart(f"{self.path}: {error}") from None
        except database.DatabaseError as error:
            raise Damaged(str(error)) from None
        try:
            (schema,) = self._connection.execute("PRAGMA user_version").fetchone()
            if schema > SCHEMA:
                raise CannotStart(
                    f"{self.path} has schema {schema} of a later release; this one supports "
                    f"{SCHEMA}"
                )
            with self._transaction():
                for table in _TABLES:
                    self._connection.execute(table)
                self._connection.execute(f"PRAGMA user_version = {SCHEMA}")
        except database.OperationalError as error:
            self._connection.close()
            raise CannotStart(f"{self.path}: {error}") from None
        except database.DatabaseError as error:
            self._connection.close()
            raise Damaged(str(error)) from None
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def quarantine(self) -> Path:
        """Rename an unreadable file, replacing an earlier one of this kind."""
        for old in files.children(self.path.parent):
            if old.name.startswith(f"{self.path.name}.damaged-"):
                files.remove(old)
        target = self.path.with_name(f"{self.path.name}.damaged-{clock.milliseconds()}")
        if files.exists(self.path):
            files.rename(self.path, target)
        # they belong to the old file, and would be applied to the next one
        for ending in ("-wal", "-shm"):
            files.remove(self.path.with_name(self.path.name + ending))
        files.sync_folder(self.path.parent)
        return target

    def load(self) -> tuple[dict[Key, int], list[Batch]]:
        """Return the number of every series, and the batches of the log. Raises Damaged."""
        rows = self._connection.execute("SELECT id, cluster, kind, subject, figure FROM series")
        series = {Key(*key): number for number, *key in rows}
        blobs = self._connection.execute("SELECT points FROM log ORDER BY id").fetchall()
        return series, [_unpack(blob) for (blob,) in blobs]

    def keep(self, new: Mapping[Key, int], batch: Batch, now: int) -> None:
        """Write new series and a batch of points; they are on the disk at return."""
        with self._transaction():
            self._connection.executemany(
                "INSERT OR REPLACE INTO series VALUES (?, ?, ?, ?, ?, ?)",
                [(number, *key, now // HOUR) for key, number in new.items()],
            )
            if batch.series:
                self._connection.execute(
                    "INSERT INTO log (until, points) VALUES (?, ?)",
                    (max(batch.times), _pack(batch)),
                )

    def fold(self, hour: int, points: Sequence[tuple[int, Points]]) -> None:
        """Write the points of an hour by series, merged with existing ones."""
        do = self._connection.execute
        with self._transaction():
            for series, some in points:
                found = do(
                    "SELECT points FROM fine WHERE hour = ? AND series = ?", (hour, series)
                ).fetchone()
                if found is not None:
                    some = _joined(Points.unpacked(found[0]), some)
                row = hour, series
                do("INSERT OR REPLACE INTO fine VALUES (?, ?, ?)", (*row, some.packed()))
                sums = pack_coarse(coarse(some))
                do("INSERT OR REPLACE INTO coarse VALUES (?, ?, ?)", (*row, sums))
                do("UPDATE series SET hour = ? WHERE id = ?", row)

    def forget_log(self, before: int) -> None:
        """Delete batches whose points are all before a time in s, and were folded."""
        with self._transaction():
            self._connection.execute("DELETE FROM log WHERE until < ?", (before,))

    def prune(self, now: int) -> tuple[int, list[int]]:
        """Delete some of the expired rows; returns their number, and the deleted series."""
        hour = now // HOUR
        with self._transaction():
            gone = 0
            for table, hours in (("fine", FINE_HOURS), ("coarse", COARSE_HOURS)):
                last = self._connection.execute(
                    f"SELECT hour, series FROM {table} WHERE hour < ? "
                    f"ORDER BY hour, series LIMIT 1 OFFSET {STEP_ROWS - 1}",
                    (hour - hours,),
                ).fetchone()
                where, values = ("hour < ?", (hour - hours,))
                if last is not None:
                    where, values = ("(hour, series) <= (?, ?)", last)
                cursor = self._connection.execute(f"DELETE FROM {table} WHERE {where}", values)
                gone += cursor.rowcount
            old = self._connection.execute(
                "SELECT id FROM series WHERE hour < ?", (hour - COARSE_HOURS,)
            ).fetchall()
            self._connection.executemany("DELETE FROM series WHERE id = ?", old)
        return gone, [number for (number,) in old]

    def fine(self, series: int, begin: int, end: int) -> list[Point]:
        """Return points of a series from `begin` to before `end`, in s. Raises Damaged."""
        rows = self._rows("fine", series, begin, end)
        return [p for blob in rows for p in Points.unpacked(blob).between(begin, end).all()]

    def coarse(self, series: int, begin: int, end: int) -> list[Point]:
        """Return the same per five minutes."""
        rows = self._rows("coarse", series, begin, end)
        return [p for blob in rows for p in unpack_coarse(blob) if begin <= p.at < end]

    def _rows(self, table: str, series: int, begin: int, end: int) -> Iterable[bytes]:
        for hour in range(begin // HOUR, -(-end // HOUR)):
            found = self._connection.execute(
                f"SELECT points FROM {table} WHERE hour = ? AND series = ?", (hour, series)
            ).fetchone()
            if found is not None:
                yield found[0]

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._connection)


class _Transaction:
    """A transaction: commits, or rolls back after an error."""

    def __init__(self, connection: database.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._connection.execute("COMMIT")
                return
            except BaseException:
                self._roll_back()
                raise
        self._roll_back()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _joined(old: Points, new: Points) -> Points:
    """Merge both; from the first new time on only the new ones, as the clock may have been set
    back.
    """
    found = old.between(0, new.times[0]) if new else old
    found.times.extend(new.times)
    found.values.extend(new.values)
    return found


def _pack(batch: Batch) -> bytes:
    count = len(batch.series)
    return count.to_bytes(4, "big") + b"".join(part.tobytes() for part in batch)


def _unpack(data: bytes) -> Batch:
    count = int.from_bytes(data[:4], "big")
    if len(data) != 4 + 16 * count:
        raise Damaged(f"a batch of {count} points in {len(data)} bytes")
    batch = Batch(array("I"), array("I"), array("d"))
    batch.series.frombytes(data[4 : 4 + 4 * count])
    batch.times.frombytes(data[4 + 4 * count : 4 + 8 * count])
    batch.values.frombytes(data[4 + 8 * count :])
    return batch
