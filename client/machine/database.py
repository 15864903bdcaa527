"""Databases: files of SQLite. What is committed is on the disk when `commit` returns.

A connection is used by one thread at a time, as a rule a `DiskThread`: each commit waits for the
disk. One process has a database: another finds it locked.
"""

import sqlite3
from pathlib import Path

Connection = sqlite3.Connection
Error = sqlite3.Error
OperationalError = sqlite3.OperationalError
DatabaseError = sqlite3.DatabaseError


def connect(path: Path) -> Connection:
    """Open a database, made where there is none, for this process alone.

    Raises Error: another process has it, or it is no database.
    """
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
