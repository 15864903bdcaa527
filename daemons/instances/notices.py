"""What a child tells of itself, as a daemon tells systemd (sd_notify): ready, status, watchdog."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Self

from mq.client.machine import files

_MOST_BYTES = 4096


class Notices:
    """A socket at ``path`` that one child writes to; `told` gets each name with its value.

    The folder of the path is for this process and its children alone: whoever can write there could
    speak for a child.
    """

    def __init__(self, path: Path, told: Callable[[str, str], None]) -> None:
        self.path = path
        self._told = told
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
                    self._told(name, value)
