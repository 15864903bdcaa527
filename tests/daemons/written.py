"""Connections without sockets: data written to a peer is recorded."""

from typing import TypeVar

from mq.daemons.channel import Channel
from mq.daemons.listener import Listener


class Written:
    """A transport that records the data written."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = False

    def write(self, data: bytes | memoryview) -> None:
        self.data += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 5555) if name in ("peername", "sockname") else default


W = TypeVar("W", bound=Written)


def connected(listener: Listener, transport: W) -> tuple[Channel, W]:
    """A connection that a listener has accepted; call its connection_lost at the end."""
    channel = Channel(listener, listener.dispatcher)
    channel.connection_made(transport)  # type: ignore[arg-type]  # only the needed parts
    return channel, transport
