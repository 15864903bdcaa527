"""Overload protection: connections above the limit."""

import asyncio
from typing import cast

from mq.daemons.overload.busy_reply import BusyReply, opaque_in

CONNECTIONS_SETTING = "maxConnections"
# Seconds that a connection above the limit may take to send its request, and the limit of such
# connections; more are closed without a reply.
REJECT_SECONDS = 1.0
MOST_REJECTED = 100


class RejectedConnection(asyncio.Protocol):
    """A connection above the limit: its first request is answered with SYSTEM_BUSY, then it is
    closed.
    """

    waiting = 0  # in all listeners of this process

    def __init__(self, limit: int) -> None:
        self._reply = BusyReply(
            f"[OVERLOAD]the broker has {limit} connections, which is the limit "
            f"({CONNECTIONS_SETTING}); try again later"
        )
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of it
        self._transport = cast(asyncio.Transport, transport)
        RejectedConnection.waiting += 1
        if RejectedConnection.waiting > MOST_REJECTED:
            transport.close()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(REJECT_SECONDS, transport.close)

    def connection_lost(self, error: Exception | None) -> None:
        RejectedConnection.waiting -= 1
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        opaque = opaque_in(self._data[:4096])
        if opaque is not None:
            self._transport.write(self._reply.frame(opaque))
            self._transport.close()
            return
        if len(self._data) > 4096:
            self._transport.close()
