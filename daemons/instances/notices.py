"""Notices of a child in the protocol of systemd (sd_notify): ready, status, watchdog."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Self

from mq.client.machine import files

_MOST_BYTES = 4096


class Notices:
    """A socket at ``path`` to which one child writes; `notify` is called with each name and value.

    The folder of the path must be accessible only to this process and its children, because any
    writer could impersonate a child.
    """

    def __init__(self, path: Path, notify: Callable[[str, str], None]) -> None:
        self.path = path
        self._notify = notify
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def __enter__(self) -> Self:
        self._socket.setblocking(False)
        self._socket.bind(str(self.path))
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        files.remove(self.path)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            text = self._socket.recv(_MOST_BYTES).decode(errors="replace")
            for line in text.splitlines():
                name, equals, value = line.partition("=")
                if equals:
                    self._notify(name, value)
