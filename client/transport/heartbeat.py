"""Heartbeats: report to brokers which groups a client belongs to."""

import asyncio
import logging
from collections.abc import Callable

from mq.client.errors import MQError
from mq.client.options import DEFAULT_INTERVALS
from mq.client.transport.session import Session
from mq.protocol.bodies import (
    HeartbeatData,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.group import UnregisterClientRequestHeader

HEARTBEAT_SECONDS = DEFAULT_INTERVALS.heartbeats
# The time between checks for brokers without a heartbeat. A restarted broker knows no clients; it
# must soon get a heartbeat so that consumers may pull from it and transactions can be checked.
CHECK_SECONDS = 1.0

log = logging.getLogger(__name__)


class Heartbeats:
    """Sends heartbeats to every broker in the session's routes."""

    def __init__(
        self,
        session: Session,
        describe: Callable[[], HeartbeatData],
        *,
        replicas: bool,
        interval: float = HEARTBEAT_SECONDS,
    ) -> None:
        """`describe` creates the body. With `replicas` slaves receive heartbeats too.

        One is sent every `interval` seconds.
        """
        self._interval = interval
        self._session = session
        self._describe = describe
        self._replicas = replicas
        # The connection over which each broker got a heartbeat; None if it did not answer.
        self._reached: dict[str, object | None] = {}
        self._under_way: set[str] = set()

    async def beat(self) -> None:
        """Send one heartbeat to each broker. A failure is logged and retried with the next one."""
        addresses = self._session.known_brokers(replicas=self._replicas)
        await asyncio.gather(*map(self._beat_at, addresses))

    async def beat_new(self) -> None:
        """Send a heartbeat to brokers that have not received one yet."""
        addresses = self._session.known_brokers(replicas=self._replicas) - self._reached.keys()
        await asyncio.gather(*map(self._beat_at, addresses))

    async def beat_at(self, address: str) -> None:
        """Send a heartbeat to one broker, unless one is in flight."""
        await asyncio.gather(*map(self._beat_at, self._session.heartbeat_peers(address)))

    async def _beat_at(self, address: str) -> None:
        if address in self._under_way:
            return
        self._under_way.add(address)
        try:
            await self._send(address)
        finally:
            self._under_way.discard(address)

    async def _send(self, address: str) -> None:
        command = Command(RequestCode.HEART_BEAT, None, self._describe().encode())
        # Recorded before the call: the broker may have received it even if it never answers.
        failed_before = self._reached.get(address, address) is None
        self._reached[address] = None
        try:
            await self._session.call(address, command)
        except MQError as error:
            if not failed_before:
                log.warning("heartbeat failed: %s", error)
        else:
            self._reached[address] = self._session.connection(address)

    async def run(self) -> None:
        """Send heartbeats periodically, and at once on a new connection, until cancelled."""
        clock = asyncio.get_running_loop().time
        last = clock()
        while True:
            await asyncio.sleep(min(CHECK_SECONDS, self._interval))
            try:
                if clock() - last >= self._interval:
                    last = clock()
                    await self.beat()
                else:
                    await self._beat_again()
            except Exception:
                log.exception("heartbeats failed")

    async def _beat_again(self) -> None:
        """Send a heartbeat to brokers that are new or whose connection was replaced."""
        lost = [
            address
            for address in self._session.known_brokers(replicas=self._replicas)
            if (connection := self._reached.get(address)) is None
            or self._session.connection(address) is not connection
        ]
        await asyncio.gather(*map(self._beat_at, lost))

    async def unregister(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Tell the brokers that received heartbeats that this client leaves the group."""
        reached = [
            address
            for address, connection in self._reached.items()
            if connection is not None or self._session.is_connected(address)
        ]
        self._reached = {}
        header = UnregisterClientRequestHeader(
            client_id=self._session.client_id,
            producer_group=producer_group,
            consumer_group=consumer_group,
        )
        commands = {
            address: Command(RequestCode.UNREGISTER_CLIENT, header.encode()) for address in reached
        }
        results = await asyncio.gather(
            *(self._session.call(address, command) for address, command in commands.items()),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, MQError):
                # the broker evicts the client after 120 s
                log.warning("unregistering failed: %s", result)
            elif isinstance(result, BaseException):
                raise result
