"""SQLite databases. Committed changes are on the disk when `commit` returns.

A connection is used by one thread at a time, usually a `DiskThread`, because each commit waits for
the disk. Only one process can open a database; others find it locked.
"""

import os
import sqlite3
from pathlib import Path

from mq.client.machine import files

Connection = sqlite3.Connection
Error = sqlite3.Error
OperationalError = sqlite3.OperationalError
DatabaseError = sqlite3.DatabaseError


def connect(path: Path) -> Connection:
    """Open a database for this process alone; a new file is readable by its owner only.

    Raises Error if another process has opened it, or it is not a database.
    """
    _make_private(path)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = DELETE")
        # EXTRA also syncs the folder when the journal is deleted. With FULL, a power failure then
        # could restore the journal, which would undo committed changes.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("BEGIN EXCLUSIVE")  # acquires the lock, which stays
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_log(path: Path) -> Connection:
    """Open a database like `connect`, optimized for many small writes.

    Changes go to a write-ahead log next to the file (WAL) and later into the file: a commit is one
    write and one fsync. Raises Error as `connect` does.
    """
    _make_private(path)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # then WAL needs no shared memory
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _make_private(path: Path) -> None:
    """Create an empty file, unless it exists. SQLite gives its journals the mode of the file."""
    try:
        with files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600):
            pass
    except OSError:
        return  # it exists, or SQLite reports the reason better
