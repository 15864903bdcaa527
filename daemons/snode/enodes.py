"""Enodes: the brokers behind a snode, by name, and the connections to them.

The masters of broker names are queried at a name server (GET_BROKER_CLUSTER_INFO) each time that
the snode registers, when a name is unknown, and when a master does not reply, because another may
have been elected. A name server that does not reply changes nothing, and one that has just been
started and does not know a broker yet ends no open connection.

There is one connection to each master for all requests except pulls, and some for pulls, so that
replies to pulls do not delay sends. A heartbeat opens each connection, as docs/decisions/0059 says;
requests follow without waiting for its reply.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Self

from mq.client.credentials import AccessKey
from mq.client.errors import FlowControl, MQError, ServiceNotAvailable, SystemBusy
from mq.client.machine import clock
from mq.client.transport.in_flight import Waiter
from mq.client.transport.session import Session
from mq.daemons.dispatch import Refused
from mq.daemons.snode.config import SnodeSettings
from mq.protocol.bodies import ClusterInfo, HeartbeatData, SnodeIdentity
from mq.protocol.codes import DIALECT_FIELD, Dialect, RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

# Seconds between two refreshes: each request for an unknown name asks for one.
REFRESH_PAUSE = 0.5
# Seconds without an acknowledgement after which a master's machine counts as dead.
DEAD_SECONDS = 3.0
# Errors of an enode that may be able to serve a request a moment later.
LATER = (SystemBusy, ServiceNotAvailable, FlowControl)
# The connection for all requests except pulls.
MAIN = 0


class _Opened:
    """A connection whose heartbeat has been sent, and the dialect in its reply."""

    __slots__ = ("answered", "connection", "speaks")

    def __init__(self, connection: object) -> None:
        self.connection = connection
        self.speaks = Dialect.ORDINARY
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Enodes:
    """The masters, by broker name. An async context manager.

    `on_change` is called when names or addresses have changed, `on_link_ended` with the name of a
    broker when a connection to it has ended.
    """

    def __init__(
        self,
        settings: SnodeSettings,
        *,
        tls: ssl.SSLContext | None = None,
        make_session: Callable[..., Session] = Session,
        only: Mapping[str, str] | None = None,
    ) -> None:
        """`only` are the addresses of masters by name if no others count: embedded mode."""
        self._settings = settings
        snode = settings.snode
        self.masters: dict[str, str] = {}  # broker name -> address
        self.on_change: list[Callable[[], None]] = []
        self.on_link_ended: list[Callable[[str], None]] = []
        self.failed_refreshes = 0
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
        self._refreshed_at = -REFRESH_PAUSE
        self._refreshing: asyncio.Task[None] | None = None
        self._is_open = False

    @property
    def session(self) -> Session:
        """The session of the main connections, which also queries name servers."""
        return self._sessions[MAIN]

    @property
    def signs(self) -> bool:
        """Whether requests are signed here, with the snode's own account."""
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

    # finding masters ------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Query the masters at a name server. Raises MQError; nothing has changed then."""
        self._refreshed_at = clock.monotonic()
        if self._only is not None:
            self._take(dict(self._only))
            return
        try:
            response = await self.session.call_name_server(
                Command(RequestCode.GET_BROKER_CLUSTER_INFO)
            )
            info = ClusterInfo.decode(response.body)
        except RemoteProtocolError as error:
            self.failed_refreshes += 1
            raise MQError(f"malformed broker list of a name server: {error}") from None
        except MQError:
            self.failed_refreshes += 1
            raise
        found = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in info.broker_addr_table.items()
            if MASTER_ID in broker.broker_addrs
        }
        self._take({**self._unlisted(info), **found})

    def _unlisted(self, info: ClusterInfo) -> dict[str, str]:
        """The connected masters that a name server does not know, because it may have just been
        started. Its data about a name that it knows is used, also if no master is left.
        """
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
            for callback in self.on_change:
                callback()

    def refresh_soon(self) -> None:
        """Refresh in the background, unless that was done just now."""
        if self._refreshing is None and clock.monotonic() >= self._refreshed_at + REFRESH_PAUSE:
            self._refreshing = self.session.keep_task(self._refresh_quietly())
            self._refreshing.add_done_callback(self._refreshed)

    async def find(self, name: str) -> str | None:
        """The address of an unknown master, after a refresh that may find it: one refresh for all
        callers, and not too soon after the last one.
        """
        if self._refreshing is None:
            await asyncio.sleep(max(0.0, self._refreshed_at + REFRESH_PAUSE - clock.monotonic()))
            self.refresh_soon()
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
        return self.masters.get(name)

    async def _refresh_quietly(self) -> None:
        try:
            await self.refresh()
        except MQError as error:
            log.warning("cannot refresh the enodes: %s", error, extra={"failure": "enodes"})

    def _refreshed(self, refreshing: "asyncio.Task[None]") -> None:
        self._refreshing = None
        if not refreshing.cancelled() and (error := refreshing.exception()) is not None:
            log.error("the refresh of enodes failed", exc_info=error)

    # requests ----------------------------------------------------------------------------

    def forward(
        self, address: str, command: Command, seconds: float, waiter: Waiter, slot: int = MAIN
    ) -> None:
        """Send a request to an enode; the waiter gets the result. Raises MQError."""
        slot %= len(self._sessions)
        session = self._sessions[slot]
        opened = self._opened[slot].get(address)
        if opened is None or opened.connection is not session.connection(address):
            self._open(slot, address)
        session.forward(address, command, seconds, waiter)

    def ready(self, slot: int, address: str) -> None:
        """Open the connection for the next request by a heartbeat, if it is new."""
        if self._is_new(slot, address):
            self._open(slot, address)

    def slot_of(self, number: int) -> int:
        """The connection for the pulls of a client, chosen by a number of the client."""
        return 1 + number % (len(self._sessions) - 1)

    async def call(self, address: str, command: Command) -> Command:
        """Send a request of the snode itself and return the response. Raises MQError, also for an
        error response.
        """
        if self._is_new(MAIN, address):
            self._open(MAIN, address)
        return await self.session.call(address, command)

    async def dialect(self, address: str) -> Dialect:
        """The dialect of the main connection to an enode. Raises MQError if it is not connected."""
        if self._is_new(MAIN, address):
            self._open(MAIN, address)
        opened = self._opened[MAIN][address]
        await asyncio.wait([opened.answered])
        opened.answered.result()
        return opened.speaks

    def speaks_snode(self, address: str, slot: int) -> bool:
        """Whether a connection is known to use the snode dialect."""
        opened = self._opened[slot].get(address)
        if opened is None or self._is_new(slot, address):
            return False
        return opened.speaks is Dialect.SNODE

    def heartbeats(self) -> None:
        """Send a heartbeat to every master, on each connection to it, without waiting."""
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
        """Send a heartbeat, the first request of a new connection."""
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
                    "%s refused the snode's heartbeat: %s", address, response.remark,
                    extra={"failure": f"heartbeat {address}"},
                )  # fmt: skip
        elif error is not None:
            log.warning("%s", error, extra={"failure": f"heartbeat {address}"})
        if not opened.answered.done():
            if error is not None:
                opened.answered.set_exception(error)
                opened.answered.exception()  # there may be no caller that waits
            else:
                opened.answered.set_result(None)

    def _ended(self, slot: int, address: str) -> None:
        names = list(self.names_at((address,)))
        if slot == MAIN:
            for name in names:
                for callback in self.on_link_ended:
                    callback(name)
        if self._is_open:
            self.refresh_soon()

    def names_at(self, addresses: Iterable[str]) -> Iterator[str]:
        """The names of the brokers at these addresses."""
        wanted = set(addresses)
        return (name for name, address in self.masters.items() if address in wanted)


def unavailable(name: str, why: object) -> Refused:
    """The refusal of a request that cannot be served: the client may ask another enode, or retry
    later.
    """
    return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"enode {name}: {why}")


# Replacements of requests in the snode dialect for brokers that do not support it.
ORDINARY_PULL = {int(SnodeCode.SNODE_PULL_MESSAGE): int(RequestCode.PULL_MESSAGE)}
