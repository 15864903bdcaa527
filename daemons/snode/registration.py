"""Registration: name servers are told that the snode is there, brokers that it lives.

Each round also looks who is master of what and which groups there are. A name server that hangs
holds up no other.
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

# A name server that did not take a registration is told again after this long: the snode may have
# been started before it.
RETRY_SECONDS = 1.0
REGISTER_TIMEOUT = 3.0


class Registration:
    """The snode's place at name servers. `work` keeps it, until cancelled.

    `known_by` has the addresses of those that took the last registration.
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
        """The name servers that do not know the snode, as far as they have answered."""
        return [one for one in self._enodes.session.name_servers if one not in self.known_by]

    async def work(self) -> None:
        """Register again and again; sooner while a name server has not taken it."""
        while True:
            done = await self.register()
            await asyncio.sleep(self._settings.snode.register_seconds if done else RETRY_SECONDS)

    async def register(self) -> bool:
        """Tell every name server; returns whether all have taken it that know of snodes."""
        try:
            addresses = await self._enodes.session.find_name_servers()
        except MQError as error:
            log.warning("no name server is known: %s", error, extra={"failure": "registration"})
            return False
        taken = await asyncio.gather(*map(self._tell, addresses))
        self.known_by = {a for a, is_taken in zip(addresses, taken, strict=True) if is_taken}
        return None not in taken

    async def _tell(self, address: str) -> bool | None:
        """Whether a name server has taken it; None where it may if it is told again."""
        header = RegisterSnodeRequestHeader(
            snode_name=self._name,
            snode_addr=self._address(),
            cluster_name=self._settings.snode.cluster_name,
        )
        request = Command(SnodeCode.REGISTER_SNODE, header.encode())
        try:
            await self._enodes.session.call(address, request, REGISTER_TIMEOUT)
        except (RequestNotSupported, RequestTimeout):  # Java's: of 5.x, and of 4.x
            log.warning(
                "name server %s seems to know no snodes: clients do not find this one there",
                address,
                extra={"failure": f"registration {address}"},
            )
            return False
        except MQError as error:
            log.warning("not registered: %s", error, extra={"failure": f"registration {address}"})
            return None
        if address not in self.known_by:
            log.info("registered with name server %s", address)
        return True

    async def look(self) -> None:
        """Learn which enodes and groups there are, again and again, until cancelled."""
        while True:
            try:
                await self._enodes.look()
            except MQError as error:
                log.warning("enodes are not known anew: %s", error, extra={"failure": "enodes"})
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self._groups.read()
            await asyncio.sleep(self._settings.snode.register_seconds)

    async def heartbeats(self) -> None:
        """Show brokers that the snode lives, again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.snode.snode_heart_beat_interval / 1000)
            self._enodes.heartbeats()
