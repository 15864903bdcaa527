"""The living brokers of a replica set, as reported by name servers."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from mq.client.errors import MQError, RequestNotSupported, RouteNotFound
from mq.client.transport.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.protocol import names
from mq.protocol.bodies import GetBrokerMemberGroupResponseBody
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import ProtocolError
from mq.protocol.headers.broker import GetBrokerMemberGroupRequestHeader

log = logging.getLogger(__name__)

# Seconds between two rounds at least, however many notices arrive.
MIN_PAUSE = 0.05
TIMEOUT = 3.0


class NameServerSession(Protocol):
    """A name server with a session, such as a NameServerLink."""

    @property
    def address(self) -> str: ...
    @property
    def session(self) -> Session: ...


async def ask_for_members(
    session: Session, address: str, cluster: str, name: str
) -> dict[int, str]:
    """The addresses by id of the living brokers of a replica set, as a name server knows them.

    From a name server of 4.9 the route of the topic that stands for the set is requested. Raises
    MQError, and ProtocolError for an invalid reply.
    """
    header = GetBrokerMemberGroupRequestHeader(cluster_name=cluster, broker_name=name)
    try:
        command = Command(RequestCode.GET_BROKER_MEMBER_GROUP, header.encode())
        reply = await session.call(address, command, TIMEOUT)
    except RequestNotSupported:
        return await _members_in_route(session, name)
    group = GetBrokerMemberGroupResponseBody.decode(reply.body).broker_member_group
    return {} if group is None else dict(group.broker_addrs)


async def _members_in_route(session: Session, name: str) -> dict[int, str]:
    try:
        route = await session.route(names.MEMBERS_TOPIC_PREFIX + name, max_age=0)
    except RouteNotFound:
        return {}
    return {
        number: address
        for broker in route.broker_datas
        if broker.broker_name == name
        for number, address in broker.broker_addrs.items()
    }


class Members:
    """Polls the name servers: `run`, until cancelled.

    ``known`` has the addresses of living brokers by id, None before the first reply. If several
    name servers disagree, a broker that any of them reports counts. ``changed`` is called when
    ``known`` changes.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        name_servers: Callable[[], Iterable[NameServerSession]],
        registered: asyncio.Event,
    ) -> None:
        """``registered`` is set when name servers know this broker, or do not answer."""
        self.known: dict[int, str] | None = None
        self.changed: Callable[[], None] = lambda: None
        self._settings = settings
        self._name_servers = name_servers
        self._registered = registered
        self._poll_now = asyncio.Event()

    def poll_soon(self) -> None:
        """Poll soon, because the members may have changed."""
        self._poll_now.set()

    async def run(self) -> None:
        await self._registered.wait()
        while True:
            self._poll_now.clear()
            await self._ask()
            await asyncio.sleep(MIN_PAUSE)
            period = self._settings.broker.sync_broker_member_group_period / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._poll_now.wait()

    async def _ask(self) -> None:
        answers = await asyncio.gather(*(self._ask_one(link) for link in self._name_servers()))
        found: dict[int, str] | None = None
        for answer in answers:
            if answer is not None:
                found = answer | (found or {})
        if found is not None and found != self.known:
            log.info("living brokers of the replica set: %s", found)
            self.known = found
            self.changed()

    async def _ask_one(self, link: NameServerSession) -> dict[int, str] | None:
        broker = self._settings.broker
        try:
            return await ask_for_members(
                link.session, link.address, broker.broker_cluster_name, broker.broker_name
            )
        except (MQError, ProtocolError) as error:
            log.debug("%s does not report the living brokers: %s", link.address, error)
            return None
