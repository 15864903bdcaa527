"""Enodes: the brokers behind a snode, by name, and the connections to them.

Who is master of a broker name is asked of a name server (GET_BROKER_CLUSTER_INFO) each time that
the snode registers, when a name is unknown, and when a master does not answer: one that was elected
since is then found. A name server that does not answer changes nothing, and one that has just been
started and does not know a broker yet ends no connection that stands.

There is one connection to each master for all but pulls, and some for pulls, so that a reply to a
pull holds up no send. Each is opened by a heartbeat, as docs/decisions/0059 says; requests follow
without waiting for its answer.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Self

from mq.client.credentials import AccessKey
from mq.client.errors import FlowControl, MQError, ServiceNotAvailable, SystemBusy
from mq.client.in_flight import Waiter
from mq.client.machine import clock
from mq.client.session import Session
from mq.daemons.dispatch import Refused
from mq.daemons.snode.config import SnodeSettings
from mq.protocol.bodies import ClusterInfo, HeartbeatData, SnodeIdentity
from mq.protocol.codes import DIALECT_FIELD, Dialect, RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

# So soon after a look the next one is not begun: each request for a name that nobody has asks.
LOOK_PAUSE = 0.5
# A master whose machine acknowledges nothing for so long is gone.
DEAD_SECONDS = 3.0
# What an enode says that may do a moment later what it is asked to.
LATER = (SystemBusy, ServiceNotAvailable, FlowControl)
# The connection for all but pulls.
MAIN = 0


class _Opened:
    """A connection whose heartbeat has been sent, and what its answer said of the dialect."""

    __slots__ = ("answered", "connection", "speaks")

    def __init__(self, connection: object) -> None:
        self.connection = connection
        self.speaks = Dialect.ORDINARY
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Enodes:
    """The masters, by broker name. An async context manager.

    `on_change` is called when names or addresses have changed, `on_link_ended` with the name of a
    broker a connection to which has ended.
    """

    def __init__(
        self,
        settings: SnodeSettings,
        *,
        tls: ssl.SSLContext | None = None,
        make_session: Callable[..., Session] = Session,
        only: Mapping[str, str] | None = None,
    ) -> None:
        """`only` are the addresses of masters by name where no others count: embedded mode."""
        self._settings = settings
        snode = settings.snode
        self.masters: dict[str, str] = {}  # broker name -> address
        self.on_change: list[Callable[[], None]] = []
        self.on_link_ended: list[Callable[[str], None]] = []
        self.looks_failed = 0
        self._only = only
        self._timeout = snode.enode_request_timeout / 1000
        self._sessions = [
            make_session(
                snode.name_servers(),
                tls=tls,
                timeout=self._timeout,
                connect_timeout=min(settings.client.connect_timeout_millis / 1000, self._timeout),
                dead_after=DEAD_SECONDS,
                buffers=settings.client.buffers(),
            )
            for _ in range(1 + snode.pull_connections)
        ]
        self.set_key(settings.enode_key())
        self._opened: list[dict[str, _Opened]] = [{} for _ in self._sessions]
        self._heartbeat = HeartbeatData(
            client_id=snode.snode_name, snode_data=SnodeIdentity(snode_name=snode.snode_name)
        ).encode()
        self._looked = -LOOK_PAUSE
        self._looking: asyncio.Task[None] | None = None
        self._is_open = False

    @property
    def session(self) -> Session:
        """That of the main connections, which name servers are asked by, too."""
        return self._sessions[MAIN]

    @property
    def signs(self) -> bool:
        """Whether requests are signed here, with an account of the snode's own."""
        return self.session.credentials is not None

    def set_key(self, key: AccessKey | None) -> None:
        """Sign with this account from now on."""
        for session in self._sessions:
            session.credentials = key

    async def __aenter__(self) -> Self:
        for session in self._sessions:
            await session.open()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        for session in self._sessions:
            await session.close()

    # which there are ------------------------------------------------------------------------

    async def look(self) -> None:
        """Ask a name server who is master of what. Raises MQError; nothing has changed then."""
        self._looked = clock.monotonic()
        if self._only is not None:
            self._take(dict(self._only))
            return
        try:
            response = await self.session.call_name_server(
                Command(RequestCode.GET_BROKER_CLUSTER_INFO)
            )
            info = ClusterInfo.decode(response.body)
        except RemoteProtocolError as error:
            self.looks_failed += 1
            raise MQError(f"what a name server says of brokers cannot be read: {error}") from None
        except MQError:
            self.looks_failed += 1
            raise
        found = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in info.broker_addr_table.items()
            if MASTER_ID in broker.broker_addrs
        }
        self._take({**self._unlisted(info), **found})

    def _unlisted(self, info: ClusterInfo) -> dict[str, str]:
        """The masters that a name server does not know, and which are connected: it may have been
        started a moment ago. What it knows by name is as it says, also where no master is left."""
        listed, session = info.broker_addr_table, self.session
        return {
            name: address
            for name, address in self.masters.items()
            if name not in listed and session.is_connected(address)
        }

    def _take(self, found: dict[str, str]) -> None:
        if found != self.masters:
            log.info("enodes: %s", ", ".join(f"{n} at {a}" for n, a in sorted(found.items())))
            self.masters = found
            for tell in self.on_change:
                tell()

    def look_soon(self) -> None:
        """Look in the background, unless that was done just now."""
        if self._looking is None and clock.monotonic() >= self._looked + LOOK_PAUSE:
            self._looking = self.session.keep_task(self._look_quietly())
            self._looking.add_done_callback(self._has_looked)

    async def look_for(self, name: str) -> str | None:
        """The address of a master that is not known yet, after a look that may find it: one look
        for all who wait, and not too soon behind the last."""
        if self._looking is None:
            await asyncio.sleep(max(0.0, self._looked + LOOK_PAUSE - clock.monotonic()))
            self.look_soon()
        if self._looking is not None:
            await asyncio.wait([self._looking])
        return self.masters.get(name)

    async def _look_quietly(self) -> None:
        try:
            await self.look()
        except MQError as error:
            log.warning("enodes are not known anew: %s", error, extra={"failure": "enodes"})

    def _has_looked(self, looking: "asyncio.Task[None]") -> None:
        self._looking = None
        if not looking.cancelled() and (error := looking.exception()) is not None:
            log.error("enodes cannot be looked for", exc_info=error)

    # asking them ----------------------------------------------------------------------------

    def forward(
        self, address: str, command: Command, seconds: float, waiter: Waiter, slot: int = MAIN
    ) -> None:
        """Send a request to an enode; the waiter is told what comes of it. Raises MQError."""
        slot %= len(self._sessions)
        session = self._sessions[slot]
        opened = self._opened[slot].get(address)
        if opened is None or opened.connection is not session.connection(address):
            self._open(slot, address)
        session.forward(address, command, seconds, waiter)

    def ready(self, slot: int, address: str) -> None:
        """Have the connection that a request is written to next opened by a heartbeat."""
        if self._is_new(slot, address):
            self._open(slot, address)

    def slot_of(self, number: int) -> int:
        """The connection for the pulls of a client, by a number of its own."""
        return 1 + number % (len(self._sessions) - 1)

    async def call(self, address: str, command: Command) -> Command:
        """Send a request of the snode's own and return the response. Raises MQError, also for a
        response that is no success."""
        if self._is_new(MAIN, address):
            self._open(MAIN, address)
        return await self.session.call(address, command)

    async def dialect(self, address: str) -> Dialect:
        """What the main connection to an enode speaks. Raises MQError when it is not there."""
        if self._is_new(MAIN, address):
            self._open(MAIN, address)
        opened = self._opened[MAIN][address]
        await asyncio.wait([opened.answered])
        opened.answered.result()
        return opened.speaks

    def speaks_snode(self, address: str, slot: int) -> bool:
        """Whether a connection is known to speak the dialect of snodes."""
        opened = self._opened[slot].get(address)
        if opened is None or self._is_new(slot, address):
            return False
        return opened.speaks is Dialect.SNODE

    def heartbeats(self) -> None:
        """Show every master, on each connection to it, that the snode lives; without waiting."""
        masters = set(self.masters.values())
        for slot, opened in enumerate(self._opened):
            for address in list(opened):
                if address not in masters and not self._sessions[slot].is_connected(address):
                    del opened[address]
            for address in masters:
                if slot == MAIN or self._sessions[slot].is_connected(address):
                    self._open(slot, address)

    def _is_new(self, slot: int, address: str) -> bool:
        opened = self._opened[slot].get(address)
        return opened is None or opened.connection is not self._sessions[slot].connection(address)

    def _open(self, slot: int, address: str) -> None:
        """Send a heartbeat, which is the first request of a connection that is new."""
        session = self._sessions[slot]
        was = session.connection(address)
        answer = session.request(
            address,
            Command(RequestCode.HEART_BEAT, {}, self._heartbeat),
            self._timeout,
        )
        connection = session.connection(address)
        assert connection is not None
        known = self._opened[slot].get(address)
        if was is None or known is None or known.connection is not connection:
            known = self._opened[slot][address] = _Opened(connection)
            session.ended(address).add_done_callback(lambda _: self._ended(slot, address))
        opened = known
        answer.add_done_callback(lambda done: self._answered(address, opened, done))

    def _answered(self, address: str, opened: _Opened, answer: "asyncio.Future[Command]") -> None:
        error = None if answer.cancelled() else answer.exception()
        if not answer.cancelled() and error is None:
            response = answer.result()
            if response.fields.get(DIALECT_FIELD) == Dialect.SNODE.value:
                opened.speaks = Dialect.SNODE
            if response.code != ResponseCode.SUCCESS:
                log.warning(
                    "%s refuses the snode's heartbeat: %s", address, response.remark,
                    extra={"failure": f"heartbeat {address}"},
                )  # fmt: skip
        elif error is not None:
            log.warning("%s", error, extra={"failure": f"heartbeat {address}"})
        if not opened.answered.done():
            if error is not None:
                opened.answered.set_exception(error)
                opened.answered.exception()  # nobody may be waiting
            else:
                opened.answered.set_result(None)

    def _ended(self, slot: int, address: str) -> None:
        names = list(self.names_at((address,)))
        if slot == MAIN:
            for name in names:
                for tell in self.on_link_ended:
                    tell(name)
        if self._is_open:
            self.look_soon()

    def names_at(self, addresses: Iterable[str]) -> Iterator[str]:
        """The names of the brokers that listen there."""
        wanted = set(addresses)
        return (name for name, address in self.masters.items() if address in wanted)


def unavailable(name: str, why: object) -> Refused:
    """What a client is told when its request cannot be answered: another may be asked, or later."""
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"enode {name}: {why}")


#: What the dialect of snodes has in place of requests that any broker knows.
ORDINARY_PULL = {int(SnodeCode.SNODE_PULL_MESSAGE): int(RequestCode.PULL_MESSAGE)}
