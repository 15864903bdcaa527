"""Where a master is replicated from: a slave asks the master itself.

Controllers do not say, and name servers may still mean the master before: Java's slaves wait for
their answers for up to half a minute.
"""

import asyncio
import logging

from mq.client.errors import BrokerError, MQError
from mq.client.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.peer_sessions import PeerSessions
from mq.daemons.broker.replication.controlled import ControlledRole
from mq.daemons.broker.replication.master_addresses import MasterAddresses
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import ProtocolError
from mq.protocol.headers.broker import ExchangeHAInfoResponseHeader

log = logging.getLogger(__name__)

TIMEOUT = 1.0
# A master that was elected a moment ago starts while it is asked. Longer from one time to the next.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class MasterHa:
    """Asks the master of a role."""

    def __init__(self, role: ControlledRole, settings: BrokerSettings) -> None:
        self._address = role.master_address
        self._settings = settings
        self._refused_with = 0  # the code of its last refusal
        self.flush_offset = 0  # where its log ended when it began, as it has said

    async def find_once(self) -> str:
        """Its address, "" if it does not say now."""
        async with self._session() as session:
            return await self._ask(session)

    async def find(self, addresses: MasterAddresses) -> None:
        """Ask until it says, and tell the slave."""
        pause = FIRST_PAUSE
        async with self._session() as session:
            while not (found := await self._ask(session)):
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        log.info("the master at %s is replicated from %s", self._address, found)
        addresses.tell(self._address, found)
        addresses.flush_offset = self.flush_offset

    def _session(self) -> Session:
        sessions = PeerSessions(self._settings)
        return sessions.session(self._address, timeout=TIMEOUT, connect_timeout=TIMEOUT)

    async def _ask(self, session: Session) -> str:
        # Without an address of its own: whoever sends one is a master that says so.
        command = Command(RequestCode.EXCHANGE_BROKER_HA_INFO)
        try:
            reply = await session.call(self._address, command, TIMEOUT)
            header = ExchangeHAInfoResponseHeader.decode(reply.fields)
        except BrokerError as error:
            if error.code != self._refused_with:
                self._refused_with = error.code
                log.warning(
                    "the master does not say where it is replicated from: %s (where it has access "
                    "control, namesrvAclFile names the account that this broker asks with)",
                    error,
                )
            return ""
        except (MQError, ProtocolError) as error:
            log.debug("the master does not say where it is replicated from: %s", error)
            return ""
        self.flush_offset = header.master_flush_offset or 0
        return header.master_ha_address or ""
