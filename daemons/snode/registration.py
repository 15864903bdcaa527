"""Registration: registers the snode with name servers, and sends heartbeats to brokers.

Each round also refreshes the masters and groups. A hanging name server does not delay others.
"""

import asyncio
import logging
from collections.abc import Callable

from mq.client.errors import MQError, RequestNotSupported, RequestTimeout
from mq.daemons.snode.config import SnodeSettings
from mq.daemons.snode.enodes import Enodes
from mq.daemons.snode.groups import SnodeGroups
from mq.protocol.codes import SnodeCode
from mq.protocol.command import Command
from mq.protocol.headers.snode import RegisterSnodeRequestHeader

log = logging.getLogger(__name__)

# Seconds until a name server that did not accept a registration is tried again: the snode may have
# been started before it.
RETRY_SECONDS = 1.0
REGISTER_TIMEOUT = 3.0


class Registration:
    """Keeps the snode registered with name servers. `work` does so, until cancelled.

    `known_by` has the addresses of those that accepted the last registration.
    """

    def __init__(
        self,
        settings: SnodeSettings,
        enodes: Enodes,
        groups: SnodeGroups,
        name: str,
        address: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._enodes = enodes
        self._groups = groups
        self._name = name
        self._address = address
        self.known_by: set[str] = set()

    def unregistered(self) -> list[str]:
        """The name servers with which the snode is not registered, according to their replies."""
        return [one for one in self._enodes.session.name_servers if one not in self.known_by]

    async def work(self) -> None:
        """Register repeatedly; sooner while a name server has not accepted it."""
        while True:
            done = await self.register()
            await asyncio.sleep(self._settings.snode.register_seconds if done else RETRY_SECONDS)

    async def register(self) -> bool:
        """Register with every name server; returns whether all that support snodes have accepted
        it.
        """
        try:
            addresses = await self._enodes.session.find_name_servers()
        except MQError as error:
            log.warning("cannot find name servers: %s", error, extra={"failure": "registration"})
            return False
        taken = await asyncio.gather(*map(self._register_with, addresses))
        self.known_by = {a for a, is_taken in zip(addresses, taken, strict=True) if is_taken}
        return None not in taken

    async def _register_with(self, address: str) -> bool | None:
        """Whether a name server has accepted it; None if a retry may succeed."""
        header = RegisterSnodeRequestHeader(
            snode_name=self._name,
            snode_addr=self._address(),
            cluster_name=self._settings.snode.cluster_name,
        )
        request = Command(SnodeCode.REGISTER_SNODE, header.encode())
        try:
            await self._enodes.session.call(address, request, REGISTER_TIMEOUT)
        except (RequestNotSupported, RequestTimeout):  # Java's name servers of 5.x and of 4.x
            log.warning(
                "name server %s seems not to support snodes; clients do not find this one there",
                address,
                extra={"failure": f"registration {address}"},
            )
            return False
        except MQError as error:
            failure = {"failure": f"registration {address}"}
            log.warning("registration failed: %s", error, extra=failure)
            return None
        if address not in self.known_by:
            log.info("registered with name server %s", address)
        return True

    async def refresh(self) -> None:
        """Refresh the enodes and groups repeatedly, until cancelled."""
        while True:
            try:
                await self._enodes.refresh()
            except MQError as error:
                log.warning("cannot refresh the enodes: %s", error, extra={"failure": "enodes"})
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self._groups.read()
            await asyncio.sleep(self._settings.snode.register_seconds)

    async def heartbeats(self) -> None:
        """Send heartbeats to brokers repeatedly, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.snode.snode_heart_beat_interval / 1000)
            self._enodes.heartbeats()
