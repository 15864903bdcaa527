"""The link to one name server: what it has registered, and the registration of changes.

Each link works by itself, so a hanging name server does not delay others. The registered state is
valid only while the connection exists over which it was sent: a name server drops a broker together
with its connection. After the end of a connection, a failure or a refusal, the next registration is
a whole one with a version that was never sent before. An increment is sent over the very connection
that carried the whole registration and everything since.

After a failure the name server is queried a few more times whether it still has the state that it
acknowledged. A name server that was stopped may process requests from an old connection after those
of the new one, and then drop the broker when it sees that the old connection has ended.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from mq.client.errors import MQError
from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.registration_requests import Content, RegistrationRequests
from mq.daemons.broker.peer_sessions import PeerSessions
from mq.daemons.broker.roles import is_slave
from mq.daemons.registration_order import Kind
from mq.protocol.bodies import DataVersion
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import ProtocolError
from mq.protocol.headers.broker import (
    QueryDataVersionResponseHeader,
    RegisterBrokerResponseHeader,
)

log = logging.getLogger(__name__)

# Limits of registerNameServerPeriod in seconds, like Java's (BrokerController.start).
SHORTEST_PERIOD = 10.0
LONGEST_PERIOD = 60.0
# Seconds until a name server that did not answer is tried again: within two seconds of its return
# it must know every topic. A connection attempt is abandoned after CONNECT_LIMIT seconds.
RETRY_PERIOD = 0.5
CONNECT_LIMIT = 1.0
# Seconds without any acknowledgement of sent data, not even by the kernel of a machine whose name
# server is stopped, after which a connection is considered dead.
DEAD_CONNECTION = 3.0
# Seconds after a failure during which the registered state is verified, and the interval.
DOUBT = 10.0
DOUBT_PERIOD = 1.0
# Interval in seconds at which a slave without a master registers.
SEEK_PERIOD = 1.0
UNREGISTER_TIMEOUT = 3.0
# Limit of topics encoded in the event loop, which takes about a millisecond; more are encoded in a
# thread.
MOST_ENCODED_HERE = 100


# Called with a link, and the header and body of its name server's reply to a registration.
Taken = Callable[["NameServerLink", RegisterBrokerResponseHeader, bytes], None]


class RegistrationRefused(MQError):
    """The name server refused a registration."""


@dataclass(frozen=True)
class RegisteredState:
    """The state at a name server, and the connection over which it was registered."""

    connection: object
    content: Content
    version: DataVersion  # the version registered with the content


class NameServerLink:
    """A name server with which the broker registers. `run` does so until cancelled.

    `answers` is None until the first attempt has ended. `done` counts the requested rounds that
    have been registered completely. `on_round` is called after each round, `on_taken` with the
    header and the body of each reply to a registration.
    """

    def __init__(
        self,
        address: str,
        settings: BrokerSettings,
        requests: RegistrationRequests,
        content: Callable[[], Content],
        sessions: PeerSessions,
    ) -> None:
        self.address = address
        self.session = sessions.session(
            address,
            connect_timeout=sessions.connect_timeout(CONNECT_LIMIT),
            dead_after=DEAD_CONNECTION,
        )
        self.answers: bool | None = None
        self.requested = 0
        self.done = 0
        self.on_round: Callable[[], None] = lambda: None
        self.on_taken: Taken = lambda link, header, body: None
        self.seeks_master: Callable[[], bool] = lambda: False
        self._settings = settings
        self._requests = requests
        self._content = content
        self._registered: RegisteredState | None = None
        self._newest = DataVersion()  # the last version sent, accepted or not
        self._changed: set[str] = set()
        self._everything = False
        self._failures = 0  # consecutive failures
        # A name server may still have to process the end of this broker's previous run.
        self._doubt_until = clock.monotonic() + DOUBT
        self._wake = asyncio.Event()

    def notify(self, topic: str | None) -> None:
        """Request the registration of a changed topic, or of everything. Deleted topics require
        everything.
        """
        if topic is None:
            self._everything = True
        else:
            self._changed.add(topic)
        self.requested += 1
        self._wake.set()

    async def run(self) -> None:
        """Register repeatedly."""
        periodic = True
        while True:
            self._wake.clear()
            await self.round(periodic)
            periodic = not await self._woken()

    async def _woken(self) -> bool:
        """Wait until there is a change or the connection ends; False after the pause."""
        woken = asyncio.ensure_future(self._wake.wait())
        ended = asyncio.ensure_future(self.session.disconnected(self.address))
        waiting = {woken} if self._registered is None else {woken, ended}
        try:
            done, _ = await asyncio.wait(
                waiting, timeout=self._pause(), return_when=asyncio.FIRST_COMPLETED
            )
            return bool(done)
        finally:
            woken.cancel()
            ended.cancel()

    def _pause(self) -> float:
        if self._registered is None:  # at once if only the old connection had ended
            return RETRY_PERIOD if self._failures > 1 else 0.0
        if self.seeks_master():
            return SEEK_PERIOD
        if clock.monotonic() < self._doubt_until:
            return DOUBT_PERIOD
        period = self._settings.broker.register_name_server_period / 1000
        return min(max(period, SHORTEST_PERIOD), LONGEST_PERIOD)

    # a round --------------------------------------------------------------------------------

    async def round(self, periodic: bool) -> None:
        """Register the changes; a periodic round registers everything, or queries whether that is
        needed.
        """
        covered = self.requested
        content = self._content()  # read in the same turn of the event loop as the changes below
        changed, self._changed = self._changed, set()
        everything, self._everything = self._everything or periodic, False
        registered = self._connected_state()
        # Valid again only after the reply: any failure before it leaves no state.
        self._registered = None
        try:
            if registered is None:
                self._registered = await self._send_all(content, self._unsent_version(content))
            elif everything:
                self._registered = await self._repeat(registered, content, periodic)
            elif changed:
                self._registered = await self._send_changes(registered, content, changed)
            else:
                self._registered = registered
        except (MQError, ProtocolError) as error:
            self._failed(error)
        else:
            if not self.answers:
                log.info("registered with name server %s", self.address)
            self.answers = True
            self._failures = 0
            self.done = covered
        self.on_round()

    def _failed(self, error: Exception) -> None:
        if self.answers is not False:
            log.warning("registration with name server %s failed: %s", self.address, error)
        self.answers = False
        self._failures += 1
        self._doubt_until = clock.monotonic() + DOUBT

    def _connected_state(self) -> RegisteredState | None:
        registered = self._registered
        if registered is None or registered.connection is not self.session.connection(self.address):
            return None
        return registered

    def _unsent_version(self, content: Content) -> DataVersion:
        """A version that no registration has used, including those of earlier starts."""
        version = content.version
        now = clock.milliseconds()
        return DataVersion(
            timestamp=max(now, version.timestamp, self._newest.timestamp + 1),
            counter=max(version.counter, self._newest.counter),
            state_version=version.state_version,
        )

    async def _repeat(
        self, registered: RegisteredState, content: Content, periodic: bool
    ) -> RegisteredState:
        """Register everything again, over a connection that has already carried it."""
        if not content.is_as(registered.content):
            version = content.version
            if version.counter <= self._newest.counter:  # changed without a new version
                version = self._unsent_version(content)
            return await self._send_all(content, version)
        if is_slave(self._settings):  # only the reply names the master
            return await self._send_all(content, registered.version)
        in_parts = len(list(content.parts())) > 1
        asks = not self._settings.broker.force_register or in_parts
        doubtful = clock.monotonic() < self._doubt_until
        if periodic and (asks or doubtful):
            if await self._has(registered):
                return registered
            return await self._send_all(content, self._unsent_version(content))
        return await self._send_all(content, registered.version)

    async def _send_all(self, content: Content, version: DataVersion) -> RegisteredState:
        parts = list(content.parts())
        if len(parts) == 1:
            return await self._send(content, content, version, Kind.WHOLE, None)
        kind, base, connection = Kind.FIRST_PART, None, None
        for part in parts:
            # Each part gets its own version: Java's name servers cannot tell the parts apart.
            version = self._unsent_version(content)
            registered = await self._send(content, part, version, kind, base)
            if connection not in (None, registered.connection):
                raise MQError("the connection was lost between the parts of a registration")
            kind, base, connection = Kind.INCREMENT, version, registered.connection
        return registered

    async def _send_changes(
        self, registered: RegisteredState, content: Content, changed: set[str]
    ) -> RegisteredState:
        if len(changed) > 1 and len(list(content.only(changed).parts())) > 1:
            return await self._send_all(content, self._unsent_version(content))
        version = content.version
        if version.counter <= self._newest.counter:
            version = self._unsent_version(content)
        part = content.only(changed)
        try:
            sent = await self._send(content, part, version, Kind.INCREMENT, registered.version)
        except RegistrationRefused:  # it does not have the base of the increment
            return await self._send_all(content, self._unsent_version(content))
        if sent.connection is not registered.connection:
            raise MQError("the connection was lost before an increment")
        return sent

    async def _send(
        self,
        content: Content,
        part: Content,
        version: DataVersion,
        kind: Kind,
        base: DataVersion | None,
    ) -> RegisteredState:
        """Send one registration; returns the state of the name server if it accepted it.

        Raises:
            MQError: no reply, or it was refused.
            ProtocolError: the reply is malformed.
        """
        self._newest = version
        if len(part.table) > MOST_ENCODED_HERE:
            command = await asyncio.to_thread(self._requests.register, part, version, kind, base)
        else:
            command = self._requests.register(part, version, kind, base)
        answer = self.session.request(self.address, command, self._timeout)
        connection = self.session.connection(self.address)
        reply = await answer
        if reply.code != ResponseCode.SUCCESS:
            raise RegistrationRefused(f"{self.address}: refused: {reply.code} {reply.remark}")
        header = RegisterBrokerResponseHeader.decode(reply.fields)
        self.on_taken(self, header, bytes(reply.body))
        return RegisteredState(connection, content, version)

    async def _has(self, registered: RegisteredState) -> bool:
        """Query whether the name server still has the state; it counts as a heartbeat."""
        command: Command = self._requests.query(registered.version)
        reply = await self.session.invoke(self.address, command, self._timeout)
        if reply.code != ResponseCode.SUCCESS:
            return False
        changed = QueryDataVersionResponseHeader.decode(reply.fields).changed
        if changed or not reply.body:
            return False
        has = DataVersion.decode(reply.body)
        return (has.timestamp, has.counter) == (
            registered.version.timestamp,
            registered.version.counter,
        )

    @property
    def _timeout(self) -> float:
        return self._settings.broker.register_broker_timeout_mills / 1000

    # its end --------------------------------------------------------------------------------

    async def leave(self, *, farewell: bool = True) -> None:
        """Unregister, unless the end of the connection is to show it, and close the connection."""
        try:
            if self.answers and farewell:
                await self.session.invoke(
                    self.address, self._requests.unregister(), UNREGISTER_TIMEOUT
                )
                log.info("unregistered from name server %s", self.address)
        except MQError as error:
            log.warning("unregistration from name server %s failed: %s", self.address, error)
        finally:
            await self.session.close()
