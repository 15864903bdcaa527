"""The replication address of a master, which a slave requests from the master itself.

Controllers do not know it, and name servers may still name the previous master: Java's slaves wait
for their answers for up to half a minute.
"""

import asyncio
import logging

from mq.client.errors import BrokerError, MQError
from mq.client.transport.session import Session
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
# A newly elected master may still be starting. Seconds; the pause doubles.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class MasterHa:
    """Asks the master of a role."""

    def __init__(self, role: ControlledRole, settings: BrokerSettings) -> None:
        self._address = role.master_address
        self._settings = settings
        self._refused_with = 0  # the code of its last refusal
        self.flush_offset = 0  # the end of its log when it became master, as it reports

    async def find_once(self) -> str:
        """Ask once; returns the replication address, or "" without an answer."""
        async with self._session() as session:
            return await self._ask(session)

    async def find(self, addresses: MasterAddresses) -> None:
        """Ask until the master answers, and pass the address to the slave."""
        pause = FIRST_PAUSE
        async with self._session() as session:
            while not (found := await self._ask(session)):
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        log.info("the master at %s has the replication address %s", self._address, found)
        addresses.set(self._address, found)
        addresses.flush_offset = self.flush_offset

    def _session(self) -> Session:
        sessions = PeerSessions(self._settings)
        return sessions.session(self._address, timeout=TIMEOUT, connect_timeout=TIMEOUT)

    async def _ask(self, session: Session) -> str:
        # The request has no address of this broker: a request with an address announces a master.
        command = Command(RequestCode.EXCHANGE_BROKER_HA_INFO)
        try:
            reply = await session.call(self._address, command, TIMEOUT)
            header = ExchangeHAInfoResponseHeader.decode(reply.fields)
        except BrokerError as error:
            if error.code != self._refused_with:
                self._refused_with = error.code
                log.warning(
                    "the master refuses to report its replication address: %s (if it has access "
                    "control, this broker needs an account in namesrvAclFile)",
                    error,
                )
            return ""
        except (MQError, ProtocolError) as error:
            log.debug("the master does not report its replication address: %s", error)
            return ""
        self.flush_offset = header.master_flush_offset or 0
        return header.master_ha_address or ""
