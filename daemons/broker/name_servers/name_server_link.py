"""One name server of a broker: what it has been told, and telling it what is new.

Each link works by itself, so a name server that hangs delays no other. What it knows counts only
as long as the connection stands over which it learnt it: a name server forgets a broker with its
connection. From a connection's end, a failure or a refusal on, the next registration is whole and
of a version that was never sent before. An increment is sent over the very connection that carried
the whole one and everything since.

After a failure the name server is asked a few times more whether it has what it answered to have
taken: one that stood still may work off what came over an old connection behind what came over the
new one, and then forget the broker when it sees that the old one has ended.
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

# Java holds registerNameServerPeriod within these (BrokerController.start).
SHORTEST_PERIOD = 10.0
LONGEST_PERIOD = 60.0
# A name server that did not answer is tried again soon: within two seconds of its return it is to
# know every topic. An attempt that connects to nowhere is given up after CONNECT_LIMIT.
RETRY_PERIOD = 0.5
CONNECT_LIMIT = 1.0
# When nothing that was sent has been acknowledged for so long, not even by the kernel of a machine
# whose name server stands still, the connection leads nowhere.
DEAD_CONNECTION = 3.0
# For so long after a failure, and so often, it is asked whether it still has what it took.
DOUBT = 10.0
DOUBT_PERIOD = 1.0
# A slave that has been named no master asks so often.
SEEK_PERIOD = 1.0
UNREGISTER_TIMEOUT = 3.0
# Encoding so many topics takes about a millisecond; more are encoded in a thread.
MOST_ENCODED_HERE = 100


#: Called with a link, and the header and body with which its name server took a registration.
Taken = Callable[["NameServerLink", RegisterBrokerResponseHeader, bytes], None]


class RegistrationRefused(MQError):
    """The name server answers that it did not take a registration."""


@dataclass(frozen=True)
class RegisteredState:
    """What a name server has, and the connection over which it was told."""

    connection: object
    content: Content
    version: DataVersion  # that it has for the content


class NameServerLink:
    """A name server that the broker registers with. `run` does it, until cancelled.

    `answers` is None until it has been asked. `done` counts how many of the requests for a round it
    has been told everything of. `on_round` is called after each round, `on_taken` with the header
    and the body of each answer to a registration.
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
        self._standing: RegisteredState | None = None
        self._newest = DataVersion()  # of all that were sent, taken or not
        self._changed: set[str] = set()
        self._everything = False
        self._failures = 0  # in a row
        # A name server may still have to work off that a former start of this broker has ended.
        self._doubt_until = clock.monotonic() + DOUBT
        self._wake = asyncio.Event()

    def tell(self, topic: str | None) -> None:
        """Have a changed topic told, or everything; topics that are gone are told with all."""
        if topic is None:
            self._everything = True
        else:
            self._changed.add(topic)
        self.requested += 1
        self._wake.set()

    async def run(self) -> None:
        """Register, again and again."""
        periodic = True
        while True:
            self._wake.clear()
            await self.round(periodic)
            periodic = not await self._woken()

    async def _woken(self) -> bool:
        """Wait until there is something to tell or the connection ends; False after the pause."""
        woken = asyncio.ensure_future(self._wake.wait())
        ended = asyncio.ensure_future(self.session.disconnected(self.address))
        waiting = {woken} if self._standing is None else {woken, ended}
        try:
            done, _ = await asyncio.wait(
                waiting, timeout=self._pause(), return_when=asyncio.FIRST_COMPLETED
            )
            return bool(done)
        finally:
            woken.cancel()
            ended.cancel()

    def _pause(self) -> float:
        if self._standing is None:  # at once where only the old connection had ended
            return RETRY_PERIOD if self._failures > 1 else 0.0
        if self.seeks_master():
            return SEEK_PERIOD
        if clock.monotonic() < self._doubt_until:
            return DOUBT_PERIOD
        period = self._settings.broker.register_name_server_period / 1000
        return min(max(period, SHORTEST_PERIOD), LONGEST_PERIOD)

    # a round --------------------------------------------------------------------------------

    async def round(self, periodic: bool) -> None:
        """Tell what is new; a periodic round tells everything, or asks whether that is needed."""
        covered = self.requested
        content = self._content()  # with what is taken below, in one turn of the loop
        changed, self._changed = self._changed, set()
        everything, self._everything = self._everything or periodic, False
        standing = self._connected_standing()
        # In force again only when the answer is here; whatever ends this before leaves nothing.
        self._standing = None
        try:
            if standing is None:
                self._standing = await self._tell_all(content, self._unsent_version(content))
            elif everything:
                self._standing = await self._repeat(standing, content, periodic)
            elif changed:
                self._standing = await self._tell_changes(standing, content, changed)
            else:
                self._standing = standing
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
            log.warning("not registered with name server %s: %s", self.address, error)
        self.answers = False
        self._failures += 1
        self._doubt_until = clock.monotonic() + DOUBT

    def _connected_standing(self) -> RegisteredState | None:
        standing = self._standing
        if standing is None or standing.connection is not self.session.connection(self.address):
            return None
        return standing

    def _unsent_version(self, content: Content) -> DataVersion:
        """A version that no registration had yet, neither of this start of the broker."""
        version = content.version
        now = clock.milliseconds()
        return DataVersion(
            timestamp=max(now, version.timestamp, self._newest.timestamp + 1),
            counter=max(version.counter, self._newest.counter),
            state_version=version.state_version,
        )

    async def _repeat(
        self, standing: RegisteredState, content: Content, periodic: bool
    ) -> RegisteredState:
        """Everything once more, over a connection that carried it already."""
        if not content.is_as(standing.content):
            version = content.version
            if version.counter <= self._newest.counter:  # changed without a version of its own
                version = self._unsent_version(content)
            return await self._tell_all(content, version)
        if is_slave(self._settings):  # nothing but this answer says who its master is
            return await self._tell_all(content, standing.version)
        in_parts = len(list(content.parts())) > 1
        asks = not self._settings.broker.force_register or in_parts
        doubtful = clock.monotonic() < self._doubt_until
        if periodic and (asks or doubtful):
            if await self._has(standing):
                return standing
            return await self._tell_all(content, self._unsent_version(content))
        return await self._tell_all(content, standing.version)

    async def _tell_all(self, content: Content, version: DataVersion) -> RegisteredState:
        parts = list(content.parts())
        if len(parts) == 1:
            return await self._send(content, content, version, Kind.WHOLE, None)
        kind, base, connection = Kind.FIRST_PART, None, None
        for part in parts:
            # Each a version of its own: to a name server of Java they are all alike.
            version = self._unsent_version(content)
            standing = await self._send(content, part, version, kind, base)
            if connection not in (None, standing.connection):
                raise MQError("the connection was lost between the parts of a registration")
            kind, base, connection = Kind.INCREMENT, version, standing.connection
        return standing

    async def _tell_changes(
        self, standing: RegisteredState, content: Content, changed: set[str]
    ) -> RegisteredState:
        if len(changed) > 1 and len(list(content.only(changed).parts())) > 1:
            return await self._tell_all(content, self._unsent_version(content))
        version = content.version
        if version.counter <= self._newest.counter:
            version = self._unsent_version(content)
        part = content.only(changed)
        try:
            sent = await self._send(content, part, version, Kind.INCREMENT, standing.version)
        except RegistrationRefused:  # it does not have what this is based on
            return await self._tell_all(content, self._unsent_version(content))
        if sent.connection is not standing.connection:
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
        """Send one registration; what the name server has when it took it.

        Raises:
            MQError: no answer, or it was refused.
            ProtocolError: the answer is malformed.
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

    async def _has(self, standing: RegisteredState) -> bool:
        """Ask whether it still has what it was told; to the name server that is a sign of life."""
        command: Command = self._requests.query(standing.version)
        reply = await self.session.invoke(self.address, command, self._timeout)
        if reply.code != ResponseCode.SUCCESS:
            return False
        changed = QueryDataVersionResponseHeader.decode(reply.fields).changed
        if changed or not reply.body:
            return False
        has = DataVersion.decode(reply.body)
        return (has.timestamp, has.counter) == (
            standing.version.timestamp,
            standing.version.counter,
        )

    @property
    def _timeout(self) -> float:
        return self._settings.broker.register_broker_timeout_mills / 1000

    # its end --------------------------------------------------------------------------------

    async def leave(self, *, farewell: bool = True) -> None:
        """Unregister, unless the end of the connection is to say so, and close the connection."""
        try:
            if self.answers and farewell:
                await self.session.invoke(
                    self.address, self._requests.unregister(), UNREGISTER_TIMEOUT
                )
                log.info("unregistered from name server %s", self.address)
        except MQError as error:
            log.warning("not unregistered from name server %s: %s", self.address, error)
        finally:
            await self.session.close()
