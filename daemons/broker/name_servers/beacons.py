"""UDP beacons, which show name servers every second that this broker is alive."""

import asyncio
import logging
from typing import TYPE_CHECKING

from mq.daemons.beacon import Beacon
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.name_server_link import NameServerLink
from mq.daemons.broker.name_servers.registration import Registration

if TYPE_CHECKING:
    from asyncio_dgram.aio import DatagramClient

log = logging.getLogger(__name__)

# Pause in seconds after a name could not be resolved: an attempt may take long, and the failure may
# last.
PATIENCE = 5.0


class Beacons:
    """The beacons of one broker, to every name server with which it registers."""

    def __init__(self, settings: BrokerSettings, registration: Registration) -> None:
        self._settings = settings
        self._registration = registration
        self._streams: dict[str, DatagramClient] = {}
        self._not_before: dict[str, float] = {}

    async def run(self) -> None:
        """Send until cancelled. A datagram that cannot be sent is skipped."""
        broker = self._settings.broker
        data = Beacon(
            broker.broker_cluster_name,
            broker.broker_name,
            broker.broker_id,
            self._registration.address,
            self._registration.start,
        ).encode()
        try:
            while True:
                await asyncio.sleep(self._settings.operation.liveness_beacon_interval_millis / 1000)
                await asyncio.gather(
                    *(self._send(link, data) for link in self._registration.links())
                )
                self._drop_unused()
        finally:
            for stream in self._streams.values():
                stream.close()
            self._streams.clear()

    async def _send(self, link: NameServerLink, data: bytes) -> None:
        if not link.answers or not link.session.is_connected(link.address):
            return
        from asyncio_dgram import TransportClosed

        try:
            stream = await self._stream(link.address)
            if stream is not None:
                await stream.send(data)
        except OSError as error:
            # No process listens there: a name server without beacons, such as Java's.
            log.debug("no beacon to %s: %s", link.address, error)
        except TransportClosed:
            self._streams.pop(link.address, None)  # the next beacon opens a new one

    async def _stream(self, address: str) -> "DatagramClient | None":
        import asyncio_dgram  # only if beacons are sent

        stream = self._streams.get(address)
        if stream is not None:
            return stream
        now = asyncio.get_running_loop().time()
        if now < self._not_before.get(address, 0.0):
            return None
        self._not_before[address] = now + PATIENCE
        host, _, port = address.rpartition(":")
        stream = await asyncio_dgram.connect((host.strip("[]"), int(port)))
        self._streams[address] = stream
        return stream

    def _drop_unused(self) -> None:
        used = {link.address for link in self._registration.links()}
        for address in [a for a in self._streams if a not in used]:
            self._streams.pop(address).close()
