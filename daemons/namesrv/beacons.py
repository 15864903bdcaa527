"""Receives the beacons of brokers, and notices quickly when those of one stop.

A datagram has very limited effects, because any sender may have forged it: see
docs/decisions/0020-liveness-beacons.md and `Routes.beacon`.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from mq.daemons.beacon import Beacon
from mq.daemons.namesrv.routes import Routes

if TYPE_CHECKING:
    from asyncio_dgram.aio import DatagramServer

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.25
# Seconds by which the interval between two checks may be longer before this process counts as
# suspended.
SLACK_SECONDS = 0.75
# Seconds to wait after a socket error, so that a persistent error does not block the event loop.
ERROR_PAUSE = 0.01


class BeaconListener:
    """The UDP port of a name server. A broker may be silent for `timeout` seconds."""

    def __init__(self, routes: Routes, timeout: float) -> None:
        self._routes = routes
        self._timeout = timeout
        self._stream: DatagramServer | None = None
        self.taken = 0
        self.ignored = 0

    async def open(self, host: str, port: int) -> bool:
        """Bind the port; returns False, with a warning, if another process has it."""
        import asyncio_dgram  # only if beacons are enabled

        try:
            self._stream = await asyncio_dgram.bind((host, port))
        except OSError as error:
            log.warning(
                "cannot receive beacons of brokers: UDP port %d of %s: %s",
                port,
                host,
                error.strerror,
            )
            return False
        return True

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    async def receive(self) -> None:
        """Receive datagrams until cancelled, or until the port is closed."""
        from asyncio_dgram import TransportClosed

        stream = self._stream
        assert stream is not None
        while True:
            try:
                data, source = await stream.recv()
            except TransportClosed:
                return
            except OSError as error:  # an ICMP message about a datagram: none was sent from here
                log.warning("beacons: %s", error, extra={"failure": "beacons"})
                await asyncio.sleep(ERROR_PAUSE)
                continue
            try:
                self.take(data, str(source[0]) if isinstance(source, tuple) else "")
            except Exception:  # one datagram must not prevent receiving the others
                self.ignored += 1
                log.exception("ignoring a beacon of %s", source, extra={"failure": "beacons"})

    def take(self, data: bytes, source: str) -> None:
        """Process a datagram from an IP address."""
        try:
            beacon = Beacon.decode(data)
        except ValueError:
            taken = False
        else:
            taken = self._routes.beacon(beacon.address, beacon.start, source)
        if taken:
            self.taken += 1
        else:
            self.ignored += 1

    async def check(self) -> None:
        """Remove brokers without beacons from the routes, until cancelled."""
        routes = self._routes
        before = routes.now()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = routes.now()
            stood_still = now - before - CHECK_SECONDS
            if stood_still > SLACK_SECONDS:  # beacons of this time are in the socket's buffer
                routes.forgive(stood_still)
            routes.expire_beacons(self._timeout)
            before = now
