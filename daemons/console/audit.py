"""The audit: who did what, when, from where, and what came of it; a line of JSON each.

The file only grows, and is its owner's alone. A change is written down before it is made, and again
with its results: where the first line cannot be written the change is refused. It is rotated by
renaming it and SIGHUP.
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

#: Bytes of one line at most; what is longer loses its parameters.
MOST_LINE = 64 * 1024


MOST_OF_LIST = 16 * 1024  # bytes of the plan and of the results in a line that is too long


class Audit:
    """The file at a path; opened when the first line is written. Raises CannotWrite.

    The loop writes lines, and so do threads, which wait for the disk too. A file that was given up
    stays open until none of them has to do with it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures = 0
        self._descriptor: int | None = None
        self._torn = False  # the last line was not written whole: the next begins a line
        self._turn = asyncio.Lock()
        self._writing = threads.Lock()  # never held while a disk is waited for
        self._syncing: Counter[int] = Counter()  # threads that wait for the disk, by descriptor
        self._given_up: set[int] = set()

    def note(self, entry: Mapping[str, object]) -> None:
        """Write a line."""
        try:
            with self._writing:
                self._append(entry)
        except OSError as error:
            raise self._failed(error) from error

    async def record(self, entry: Mapping[str, object]) -> None:
        """Write a line, and have it on the disk before this returns."""
        async with self._turn:
            await asyncio.to_thread(self._append_durably, entry)

    def lost(self, entry: Mapping[str, object]) -> None:
        """What could not be written, and was done: the log has it then."""
        log.critical("not in the audit: %s", orjson.dumps(dict(entry), default=str).decode())

    def _failed(self, error: OSError) -> CannotWrite:
        self.failures += 1
        log.error("audit %s: %s", self.path, error.strerror, extra={"failure": "audit"})
        return CannotWrite(f"the audit cannot be written: {error.strerror}")

    def _append_durably(self, entry: Mapping[str, object]) -> None:
        try:
            with self._writing:
                descriptor = self._append(entry)
                self._syncing[descriptor] += 1
            try:
                files.fdatasync(descriptor)
                files.sync_folder(self.path.parent)  # the file may be a new one
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
        # The file is opened to append: the position says nothing.
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
        """Go on in a new file where this one was renamed."""
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
    """An entry as JSON. What is too long loses its parameters, and the rest of its lists."""
    option = orjson.OPT_NON_STR_KEYS
    line = orjson.dumps(made, default=str, option=option)
    if len(line) <= MOST_LINE:
        return line
    made["parameters"] = f"{len(line)} bytes: too long for a line"
    for name in ("plan", "results"):
        rows = made.get(name)
        if isinstance(rows, list):
            made[name] = _shortened(rows)
    return orjson.dumps(made, default=str, option=option)


def _shortened(rows: list[object]) -> list[object]:
    """What failed first, as much as fits, and how many there are more."""
    left = MOST_OF_LIST
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
