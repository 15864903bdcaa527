"""The lock of a store's folder: one broker at a time uses it.

Java locks a part of the file with fcntl (BrokerController's FileChannel.tryLock).
"""

import os
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreLocked


class StoreLock:
    """The lock of the store at ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._descriptor = -1

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def take(self) -> None:
        """Create the folder if it is missing, and lock it. Raises StoreLocked or OSError."""
        files.make_folders(self._root)
        path = self._root / layout.LOCK_FILE
        self._descriptor = files.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            files.lock(self._descriptor)
        except OSError:
            raise StoreLocked(
                f"{self._root} is in use by another broker: stop it, or set storePathRootDir"
            ) from None
        try:
            files.pwrite(self._descriptor, b"lock", 0)
        except OSError as error:  # the lock is held without the content
            if error.errno not in files.FULL:
                raise

    def release(self) -> None:
        files.close(self._descriptor)
        self._descriptor = -1


def is_in_use(root: Path) -> bool:
    """Whether a broker runs on a store."""
    try:
        descriptor = files.open(root / layout.LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        files.lock(descriptor)
        files.unlock(descriptor)
    except OSError:
        return True
    finally:
        files.close(descriptor)
    return False
