"""The controllers of a broker: finds their leader, sends it requests, and sends heartbeats to all.

There is one connection to each, for as long as the broker is a member: a Java controller treats a
broker as dead when the connection closes over which its first heartbeat arrived.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from functools import partial

from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout
from mq.client.transport.caller import parse_address
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.peer_sessions import PeerSessions
from mq.daemons.broker.replication.controlled import ControllerRefused
from mq.daemons.supervision import Tasks
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import ProtocolError
from mq.protocol.headers.controller import BrokerHeartbeatRequestHeader, GetMetaDataResponseHeader
from mq.protocol.headers.schema import Header

log = logging.getLogger(__name__)

TIMEOUT = 3.0  # of a request, as in Java (BrokerOuterAPI)
CONNECT_LIMIT = 1.0
# A connection is dropped when the controller's machine has acknowledged nothing for this many
# seconds.
DEAD_CONNECTION = 3.0

_SUCCESS = frozenset((int(ResponseCode.SUCCESS),))

# Returns the content of a heartbeat.
Heartbeat = Callable[[], BrokerHeartbeatRequestHeader]


class NoLeader(MQError):
    """No reachable controller is the leader or names one."""

    retriable = True


class ControllerGroup:
    """The controllers at the addresses of controllerAddr. Usable between `open` and `close`.

    Raises ConfigError for an unusable key file or unusable certificates.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.addresses = settings.controllers()
        self.leader = ""  # as far as known
        self._settings = settings
        self._sessions = PeerSessions(settings)
        self._session = self._sessions.session(
            self.addresses,
            connect_timeout=self._sessions.connect_timeout(CONNECT_LIMIT),
            dead_after=DEAD_CONNECTION,
        )
        self._heartbeats: dict[str, asyncio.Task[None]] = {}
        # controllers that accept no heartbeats, with the kind of error
        self._silent: dict[str, str] = {}
        self._is_open = False

    async def open(self) -> None:
        """Prepare for requests. Idempotent."""
        await self._session.open()
        self._is_open = True

    async def close(self) -> None:
        """Close every connection; a controller treats that as the end of the broker. Idempotent."""
        self._is_open, self.leader = False, ""
        await self._session.close()

    def reload_key(self) -> None:
        """Read namesrvAclFile again; if it is unusable, the key stays as it was."""
        if self._sessions.reload_key("controllers"):
            self._session.credentials = self._sessions.key

    # the leader -----------------------------------------------------------------------------

    async def find_leader(self) -> str:
        """Ask all controllers for the leader; the first one named counts. Raises NoLeader."""
        if not self._is_open:
            raise NoLeader("this broker has withdrawn from the controllers for a while")
        reasons: list[str] = []
        asked = [asyncio.ensure_future(self._named_by(one, reasons)) for one in self.addresses]
        try:
            for answer in asyncio.as_completed(asked):
                named = await answer
                if named:
                    if named != self.leader:
                        log.info("the controllers are led by %s", named)
                    self.leader = named
                    return named
        finally:
            for one in asked:
                one.cancel()
        raise NoLeader(f"no controller of controllerAddr is the leader: {'; '.join(reasons)}")

    async def _named_by(self, address: str, reasons: list[str]) -> str:
        """The leader according to the controller at an address; "" if it knows none."""
        try:
            command = Command(RequestCode.CONTROLLER_GET_METADATA_INFO)
            reply = await self._session.call(address, command, TIMEOUT)
            header = GetMetaDataResponseHeader.decode(reply.fields)
            named = header.controller_leader_address or ""
            if named:
                parse_address(named)
            else:
                reasons.append(f"{address} knows of no leader")
            return named
        except (MQError, ProtocolError) as error:
            reasons.append(str(error))
            return ""

    # questions ------------------------------------------------------------------------------

    async def ask(
        self, request: Header, body: bytes = b"", accept: Collection[int] = _SUCCESS
    ) -> Command:
        """Return the leader's reply.

        Raises:
            ControllerRefused: its code is not in `accept`.
            MQError: there is no reply; the request may have been carried out.
        """
        (code,) = request.REQUESTS
        for _ in range(2):
            leader = self.leader or await self.find_leader()
            command = Command(code, request.encode(), body)
            try:
                reply = await self._session.invoke(leader, command, TIMEOUT)
            except (ConnectError, RequestTimeout, BadAnswer):
                self.leader = ""
                raise
            if reply.code in accept:
                return reply
            if reply.code != ResponseCode.CONTROLLER_NOT_LEADER:
                raise ControllerRefused(reply.code, reply.remark or "")
            self.leader = ""  # the request was not carried out
        raise NoLeader(f"the controller at {leader} is named as the leader, but denies it")

    # heartbeats -----------------------------------------------------------------------------

    async def show(self, heartbeat: Heartbeat) -> None:
        """Send one heartbeat to each controller now; those that do not answer are skipped."""
        await asyncio.gather(*(self._beat(address, heartbeat) for address in self._shown()))

    def keep_showing(self, heartbeat: Heartbeat, tasks: Tasks) -> None:
        """Send heartbeats to each controller from now on, and to a leader that is not in
        controllerAddr. Call it again when the leader changes.
        """
        for address in self._shown():
            if address not in self._heartbeats:
                work = partial(self._keep_heartbeats, address, heartbeat)
                self._heartbeats[address] = tasks.spawn(work, "heartbeats to controllers")
        for address in self._heartbeats.keys() - self._shown():
            self._heartbeats.pop(address).cancel()

    def _shown(self) -> set[str]:
        return {*self.addresses, self.leader} - {""}

    async def _keep_heartbeats(self, address: str, heartbeat: Heartbeat) -> None:
        while True:
            await self._beat(address, heartbeat)
            await asyncio.sleep(self._settings.broker.broker_heartbeat_interval / 1000)

    async def _beat(self, address: str, heartbeat: Heartbeat) -> None:
        if not self._is_open:
            return
        command = Command(RequestCode.BROKER_HEARTBEAT, heartbeat().encode())
        try:
            await self._session.call(address, command, TIMEOUT)
        except MQError as error:
            kind = type(error).__name__
            if self._silent.get(address) != kind:
                self._silent[address] = kind
                log.warning("cannot send heartbeats to the controller: %s", error)
        else:
            with contextlib.suppress(KeyError):
                del self._silent[address]
                log.info("heartbeats reach the controller at %s again", address)

    def silent(self) -> Collection[str]:
        """The controllers that accept no heartbeats now."""
        return sorted(self._silent)
