"""Heartbeats: how brokers know who belongs to which group."""

import asyncio
import logging
from collections.abc import Callable

from mq.client.errors import MQError
from mq.client.intervals import DEFAULT_INTERVALS
from mq.client.session import Session
from mq.client.subscription import Subscriptions
from mq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.group import UnregisterClientRequestHeader

HEARTBEAT_SECONDS = DEFAULT_INTERVALS.heartbeats
# A broker that was restarted knows nobody: it gets one this soon, so that consumers may pull from
# it and transactions of producers be checked.
LOOK_SECONDS = 1.0

log = logging.getLogger(__name__)


def describe_member(
    session: Session,
    group: str,
    subscriptions: Subscriptions,
    consume_type: ConsumeType,
    model: MessageModel,
    consume_from: ConsumeFromWhere,
) -> HeartbeatData:
    """The heartbeat of a client that is a member of one consumer group."""
    return HeartbeatData(
        client_id=session.client_id,
        producer_data_set=[],
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                consume_type=consume_type,
                message_model=model,
                consume_from_where=consume_from,
                subscription_data_set=list(subscriptions.data.values()),
                unit_mode=session.unit_name is not None,
            )
        ],
    )


class Heartbeats:
    """Tells every broker of the session's routes, again and again, who this client is."""

    def __init__(
        self,
        session: Session,
        describe: Callable[[], HeartbeatData],
        *,
        replicas: bool,
        interval: float = HEARTBEAT_SECONDS,
    ) -> None:
        """`describe` makes the body. With `replicas` those of a broker hear it too.

        One is sent every `interval` seconds.
        """
        self._interval = interval
        self._session = session
        self._describe = describe
        self._replicas = replicas
        # On which connection each broker got one; None if it did not answer.
        self._reached: dict[str, object | None] = {}
        self._under_way: set[str] = set()

    async def beat(self) -> None:
        """Send one heartbeat to each broker; one that fails is logged and tried the next time."""
        addresses = self._session.known_brokers(replicas=self._replicas)
        await asyncio.gather(*map(self._beat_at, addresses))

    async def beat_new(self) -> None:
        """Send a heartbeat to the brokers that have not had one yet."""
        addresses = self._session.known_brokers(replicas=self._replicas) - self._reached.keys()
        await asyncio.gather(*map(self._beat_at, addresses))

    async def beat_at(self, address: str) -> None:
        """Let a broker know of us, unless a heartbeat is on its way there."""
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
        # Before it answers: it may have heard us even if it never does.
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
        """Beat again and again, and at once on a connection that is new, until cancelled."""
        clock = asyncio.get_running_loop().time
        last = clock()
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._interval))
            try:
                if clock() - last >= self._interval:
                    last = clock()
                    await self.beat()
                else:
                    await self._beat_again()
            except Exception:
                log.exception("heartbeats failed")

    async def _beat_again(self) -> None:
        """Send one to the brokers that are new, and to those whose connection has gone since."""
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
        """Tell the brokers that have heard of us that this group has lost this client."""
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
                log.warning("unregistering failed: %s", result)  # it will be missed after 120 s
            elif isinstance(result, BaseException):
                raise result
