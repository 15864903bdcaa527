"""The audit: a JSON line for each action, with user, time, address and result.

The file is append-only and private. A change is written before it is made, and again with its
results; if the first line cannot be written, the change is refused. To rotate the file, rename it
and send SIGHUP.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import orjson

from mq.client.machine import clock, files, threads
from mq.client.operations.errors import CannotWrite
from mq.daemons.state_file import make_private_folder

log = logging.getLogger(__name__)

# The longest line in bytes; a longer one loses its parameters.
MAX_LINE = 64 * 1024
MAX_LIST = 16 * 1024  # bytes of the plan, and of the results, in a line that is too long


class Audit:
    """The file at a path, opened for the first line. Raises CannotWrite.

    The event loop and threads, which wait for the disk, write lines. A file that was replaced stays
    open until no thread uses it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures = 0
        self._descriptor: int | None = None
        self._torn = False  # the last line is incomplete: the next one must start with a line end
        self._turn = asyncio.Lock()
        self._writing = threads.Lock()  # never held while waiting for a disk
        self._syncing: Counter[int] = Counter()  # threads that wait for the disk, by descriptor
        self._given_up: set[int] = set()

    def note(self, entry: Mapping[str, object]) -> None:
        """Append a line."""
        try:
            with self._writing:
                self._append(entry)
        except OSError as error:
            raise self._failed(error) from error

    async def record(self, entry: Mapping[str, object]) -> None:
        """Append a line and wait until it is on the disk."""
        async with self._turn:
            await asyncio.to_thread(self._append_durably, entry)

    def lost(self, entry: Mapping[str, object]) -> None:
        """Log an entry that could not be written although its action was done."""
        log.critical("audit entry lost: %s", orjson.dumps(dict(entry), default=str).decode())

    def _failed(self, error: OSError) -> CannotWrite:
        self.failures += 1
        log.error("audit %s: %s", self.path, error.strerror, extra={"failure": "audit"})
        return CannotWrite(f"cannot write the audit: {error.strerror}")

    def _append_durably(self, entry: Mapping[str, object]) -> None:
        try:
            with self._writing:
                descriptor = self._append(entry)
                self._syncing[descriptor] += 1
            try:
                files.fdatasync(descriptor)
                files.sync_folder(self.path.parent)  # the file may be new
            finally:
                with self._writing:
                    self._syncing[descriptor] -= 1
                    self._close_given_up()
        except OSError as error:
            raise self._failed(error) from error

    def _append(self, entry: Mapping[str, object]) -> int:
        line = _line({"time": clock.milliseconds(), **entry})
        descriptor = self._open()
        start = b"\n" if self._torn else b""
        self._torn = True
        # The file is in append mode: the position is irrelevant.
        files.write_all(descriptor, start + line + b"\n")
        self._torn = False
        return descriptor

    def _open(self) -> int:
        if self._descriptor is None:
            make_private_folder(self.path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = files.open(self.path, flags, 0o600)
            files.fchmod(self._descriptor, 0o600)
            self._torn = not self._ends_whole()
        return self._descriptor

    def _ends_whole(self) -> bool:
        size = files.size(self.path)
        if size == 0:
            return True
        with files.opened(self.path, os.O_RDONLY) as descriptor:
            return files.pread(descriptor, 1, size - 1) == b"\n"

    def reopen(self) -> None:
        """Continue in a new file if this one was renamed."""
        with self._writing:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                self._given_up.add(descriptor)
            self._close_given_up()

    close = reopen

    def _close_given_up(self) -> None:
        for descriptor in [one for one in self._given_up if not self._syncing[one]]:
            self._given_up.discard(descriptor)
            del self._syncing[descriptor]
            files.close(descriptor)


def _line(made: dict[str, object]) -> bytes:
    """Return an entry as JSON. One that is too long loses its parameters and shortens its lists."""
    option = orjson.OPT_NON_STR_KEYS
    line = orjson.dumps(made, default=str, option=option)
    if len(line) <= MAX_LINE:
        return line
    made["parameters"] = f"{len(line)} bytes: too long for a line"
    for name in ("plan", "results"):
        rows = made.get(name)
        if isinstance(rows, list):
            made[name] = _shortened(rows)
    return orjson.dumps(made, default=str, option=option)


def _shortened(rows: list[object]) -> list[object]:
    """Return the failures first, as many rows as fit, and the number of the others."""
    left = MAX_LIST
    kept: list[object] = []
    for row in sorted(rows, key=_is_ok):
        left -= len(orjson.dumps(row, default=str))
        if left < 0:
            kept.append(f"{len(rows) - len(kept)} more: too long for a line")
            break
        kept.append(row)
    return kept


def _is_ok(row: object) -> bool:
    return isinstance(row, dict) and bool(row.get("ok"))
