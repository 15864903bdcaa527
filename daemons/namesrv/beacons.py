"""Hearing the beacons of brokers, and noticing soon when those of one stay out.

A datagram can do very little, for whoever can send one may have made it up: see
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

LOOK_SECONDS = 0.25
# Between two looks so much more may pass before it is this process that stood still.
SLACK_SECONDS = 0.75
# After an error of the socket, so that one that lasts does not take the loop.
ERROR_PAUSE = 0.01


class BeaconListener:
    """The UDP port of a name server. `timeout`, in seconds, is what a broker may stay silent."""

    def __init__(self, routes: Routes, timeout: float) -> None:
        self._routes = routes
        self._timeout = timeout
        self._stream: DatagramServer | None = None
        self.taken = 0
        self.ignored = 0

    async def open(self, host: str, port: int) -> bool:
        """Take the port; False, and a warning, if another process has it."""
        import asyncio_dgram  # only where beacons are heard

        try:
            self._stream = await asyncio_dgram.bind((host, port))
        except OSError as error:
            log.warning(
                "beacons of brokers are not heard: UDP port %d of %s: %s",
                port,
                host,
                error.strerror,
            )
            return False
        return True

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    async def hear(self) -> None:
        """Take datagrams until cancelled, or the port is closed."""
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
            except Exception:  # one datagram must not make this deaf to the others
                self.ignored += 1
                log.exception("a beacon of %s is ignored", source, extra={"failure": "beacons"})

    def take(self, data: bytes, source: str) -> None:
        """A datagram from an IP address."""
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

    async def look(self) -> None:
        """Take brokers whose beacons stay out from the routes, until cancelled."""
        routes = self._routes
        before = routes.now()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = routes.now()
            stood_still = now - before - LOOK_SECONDS
            if stood_still > SLACK_SECONDS:  # beacons came meanwhile and lie in the socket's buffer
                routes.forgive(stood_still)
            routes.expire_beacons(self._timeout)
            before = now
