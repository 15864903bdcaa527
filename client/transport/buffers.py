"""The sizes of socket buffers."""

import socket
from typing import NamedTuple, Protocol


class _Socket(Protocol):
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


class SocketBuffers(NamedTuple):
    """Buffer sizes of a connection in bytes.

    0 keeps the system's default, which is nearly always best: an explicit size disables the
    kernel's automatic tuning.
    """

    send: int = 0
    receive: int = 0

    def set_on(self, sock: _Socket) -> None:
        """Apply the sizes to a socket. On a listening socket they apply to the connections that it
        accepts.
        """
        for option, size in ((socket.SO_SNDBUF, self.send), (socket.SO_RCVBUF, self.receive)):
            if size:
                sock.setsockopt(socket.SOL_SOCKET, option, size)


SYSTEM_BUFFERS = SocketBuffers()
