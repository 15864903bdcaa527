"""The controllers of a broker: which of them leads, what it is asked, and showing all of them that
the broker lives.

One connection to each, for as long as the broker is a member: a controller of Java takes a broker
for dead when the connection closes over which its first heartbeat came.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from functools import partial

from mq.client.caller import parse_address
from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout
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
# When a controller's machine has acknowledged nothing for so long, the connection leads nowhere.
DEAD_CONNECTION = 3.0

_SUCCESS = frozenset((int(ResponseCode.SUCCESS),))

#: What a heartbeat says now.
Heartbeat = Callable[[], BrokerHeartbeatRequestHeader]


class NoLeader(MQError):
    """No controller that can be reached leads, or names one that does."""

    retriable = True


class ControllerGroup:
    """The controllers at the addresses of controllerAddr. Open between `open` and `close`.

    Raises ConfigError for a key file or certificates that cannot be used.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.addresses = settings.controllers()
        self.leader = ""  # as far as it is known
        self._settings = settings
        self._sessions = PeerSessions(settings)
        self._session = self._sessions.session(
            self.addresses,
            connect_timeout=self._sessions.connect_timeout(CONNECT_LIMIT),
            dead_after=DEAD_CONNECTION,
        )
        self._beating: dict[str, asyncio.Task[None]] = {}
        self._silent: dict[str, str] = {}  # who cannot be shown heartbeats, and why
        self._is_open = False

    async def open(self) -> None:
        """Get ready to ask. Idempotent."""
        await self._session.open()
        self._is_open = True

    async def close(self) -> None:
        """End every connection, which a controller takes for the end of the broker. Idempotent."""
        self._is_open, self.leader = False, ""
        await self._session.close()

    def reload_key(self) -> None:
        """Read namesrvAclFile again; one that cannot be used leaves the key as it was."""
        if self._sessions.reload_key("controllers"):
            self._session.credentials = self._sessions.key

    # who leads ------------------------------------------------------------------------------

    async def find_leader(self) -> str:
        """Ask all who leads; the first that knows is believed. Raises NoLeader."""
        if not self._is_open:
            raise NoLeader("this broker has left the controllers for a while")
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
        raise NoLeader(f"no controller leads, of controllerAddr: {'; '.join(reasons)}")

    async def _named_by(self, address: str, reasons: list[str]) -> str:
        """Whom the controller at an address takes for the leader; "" for nobody."""
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
        """The leader's answer.

        Raises:
            ControllerRefused: it answers with a code that is not in `accept`.
            MQError: nobody has answered; the request may have been carried out.
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
            self.leader = ""  # it did nothing
        raise NoLeader(f"the controller at {leader} is named as the leader, and says it is not")

    # signs of life --------------------------------------------------------------------------

    async def show(self, heartbeat: Heartbeat) -> None:
        """One heartbeat to each, now; those that do not answer are left out."""
        await asyncio.gather(*(self._beat(address, heartbeat) for address in self._shown()))

    def keep_showing(self, heartbeat: Heartbeat, tasks: Tasks) -> None:
        """Heartbeats to each from now on, and to the leader that is named beside them. Called again
        when there is another leader."""
        for address in self._shown():
            if address not in self._beating:
                work = partial(self._keep_beating, address, heartbeat)
                self._beating[address] = tasks.spawn(work, "heartbeats to controllers")
        for address in self._beating.keys() - self._shown():
            self._beating.pop(address).cancel()

    def _shown(self) -> set[str]:
        return {*self.addresses, self.leader} - {""}

    async def _keep_beating(self, address: str, heartbeat: Heartbeat) -> None:
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
                log.warning("no heartbeat reaches the controller: %s", error)
        else:
            with contextlib.suppress(KeyError):
                del self._silent[address]
                log.info("heartbeats reach the controller at %s again", address)

    def silent(self) -> Collection[str]:
        """The controllers that take no heartbeats now."""
        return sorted(self._silent)
