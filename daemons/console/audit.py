"""The audit: who did what, when, from where, and what came of it; a line of JSON each.

The file only grows, and is its owner's alone. A change is written down before it is made, and again
with its results: where the first line cannot be written the change is refused. It is rotated by
renaming it and SIGHUP.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import orjson

from mq.client.machine import clock, files
from mq.client.operations.errors import CannotWrite
from mq.daemons.state_file import make_folder

log = logging.getLogger(__name__)

#: Bytes of one line at most; what is longer loses its parameters.
MOST_LINE = 64 * 1024


class Audit:
    """The file at a path; opened when the first line is written. Raises CannotWrite."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures = 0
        self._descriptor: int | None = None
        self._torn = False  # the last line was not written whole: the next begins a line
        self._turn = asyncio.Lock()

    def note(self, entry: Mapping[str, object]) -> None:
        """Write a line."""
        self._append(entry)

    async def record(self, entry: Mapping[str, object]) -> None:
        """Write a line, and have it on the disk before this returns."""
        async with self._turn:
            await asyncio.to_thread(self._append, entry, sync=True)

    def lost(self, entry: Mapping[str, object]) -> None:
        """What could not be written, and was done: the log has it then."""
        log.critical("not in the audit: %s", orjson.dumps(dict(entry), default=str).decode())

    def _append(self, entry: Mapping[str, object], *, sync: bool = False) -> None:
        made = {"time": clock.milliseconds(), **entry}
        line = orjson.dumps(made, default=str, option=orjson.OPT_NON_STR_KEYS)
        if len(line) > MOST_LINE:
            made["parameters"] = f"{len(line)} bytes: too long for a line"
            line = orjson.dumps(made, default=str, option=orjson.OPT_NON_STR_KEYS)
        try:
            descriptor = self._open()
            start = b"\n" if self._torn else b""
            self._torn = True
            # The file is opened to append: the position says nothing.
            files.write_all(descriptor, start + line + b"\n")
            self._torn = False
            if sync:
                files.fdatasync(descriptor)
        except OSError as error:
            self.failures += 1
            log.error("audit %s: %s", self.path, error.strerror, extra={"failure": "audit"})
            raise CannotWrite(f"the audit cannot be written: {error.strerror}") from error

    def _open(self) -> int:
        if self._descriptor is None:
            make_folder(self.path.parent)
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
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            files.close(descriptor)

    close = reopen
