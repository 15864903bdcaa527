"""The sizes of a socket's buffers."""

import socket
from typing import NamedTuple, Protocol


class _Socket(Protocol):
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


class SocketBuffers(NamedTuple):
    """Bytes that the system keeps for a connection; 0 leaves it to the system, which is best nearly
    always: a size of one's own ends its own adaptation."""

    send: int = 0
    receive: int = 0

    def set_on(self, sock: _Socket) -> None:
        """Set them on a socket; on one that listens, for the connections that it accepts."""
        for option, size in ((socket.SO_SNDBUF, self.send), (socket.SO_RCVBUF, self.receive)):
            if size:
                sock.setsockopt(socket.SOL_SOCKET, option, size)


SYSTEM_BUFFERS = SocketBuffers()
