"""Databases on a simulated disk: SQLite in memory, and an image of it that is replaced at commits.

An image has the guarantees of SQLite with a journal and `synchronous = EXTRA`: a transaction counts
as a whole from the change of one name on (SQLite: removal of the journal; here: renaming of the
image), and survives a power cut once the folder is synced, which is when `COMMIT` returns. A kill
or failure before that change leaves the previous state. After it the transaction is there although
`COMMIT` has failed, as with SQLite.

Not simulated: damaged databases, several connections to one database, statements that wait for the
disk.
"""

import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mq.client.machine import files

_MODE = 0o644
_CHANGES = ("ALTER", "CREATE", "DELETE", "DROP", "INSERT", "REPLACE", "UPDATE")


class Connection:
    """The parts of sqlite3.Connection that are used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CREAT
        self._lock = _io(files.open, f"{path}-lock", flags, _MODE)
        try:
            try:
                files.lock(self._lock)
            except BlockingIOError:
                raise sqlite3.OperationalError("database is locked") from None
            self._memory = sqlite3.connect(":memory:", isolation_level=None)
            image = _io(_read, path)
            if image:
                _load(self._memory, image)
        except BaseException:
            files.close(self._lock)
            raise

    @property
    def in_transaction(self) -> bool:
        return self._memory.in_transaction

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Raises sqlite3.Error."""
        if statement == "COMMIT" and self.in_transaction:
            self._keep()
        elif not self.in_transaction and statement.startswith(_CHANGES):
            return self._change_alone(statement, parameters)
        return self._memory.execute(statement, parameters)

    def _change_alone(self, statement: str, parameters: Sequence[Any]) -> sqlite3.Cursor:
        """A change outside of a transaction is a transaction."""
        self._memory.execute("BEGIN")
        try:
            cursor = self._memory.execute(statement, parameters)
            self.execute("COMMIT")
        finally:
            if self.in_transaction:
                self._memory.execute("ROLLBACK")
        return cursor

    def close(self) -> None:
        self._memory.close()
        files.close(self._lock)

    def _keep(self) -> None:
        """Replace the image by the state within the transaction."""
        new = f"{self._path}-new"
        _io(_write, new, self._memory.serialize())  # with the open transaction
        try:
            files.replace(new, self._path)
        except OSError as error:
            raise _failure(error) from None
        try:
            files.sync_folder(self._path.parent)
        except OSError as error:
            self._memory.execute("COMMIT")  # its name has changed: it counts
            raise _failure(error) from None


def _load(memory: sqlite3.Connection, image: bytes) -> None:
    """By a copy: `serialize` of a database that was loaded from an image leaves out the open
    transaction.
    """
    with closing(sqlite3.connect(":memory:")) as found:
        found.deserialize(image)
        found.backup(memory)


def _write(path: str, image: bytes) -> None:
    with files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE) as descriptor:
        files.write_all(descriptor, image)
        files.fsync(descriptor)


def _read(path: Path) -> bytes:
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        return b""


def _io(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except OSError as error:
        raise _failure(error) from None


def _failure(error: OSError) -> sqlite3.Error:
    """In SQLite's words."""
    if error.errno == errno.ENOSPC:
        return sqlite3.OperationalError("database or disk is full")
    return sqlite3.OperationalError("disk I/O error")
