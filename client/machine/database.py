"""Databases: files of SQLite. What is committed is on the disk when `commit` returns.

A connection is used by one thread at a time, as a rule a `DiskThread`: each commit waits for the
disk. One process has a database: another finds it locked.
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

    Raises Error: another process has it, or it is not a database.
    """
    _make_private(path)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = DELETE")
        # EXTRA: the folder, too, is synchronised when the journal is deleted. With FULL a power
        # cut then could bring the journal back, and it undo what was committed.
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("BEGIN EXCLUSIVE")  # takes the lock, which stays
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_log(path: Path) -> Connection:
    """Open a database as `connect` does, for much that is written a little at a time.

    Changes go to a log beside the file (WAL) and into the file later: a commit is one write and one
    fsync. Raises Error likewise.
    """
    _make_private(path)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # so WAL needs no shared memory
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
        return  # it exists, or SQLite says better why it cannot be made
