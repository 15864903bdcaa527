"""Which brokers of a set live, as name servers see them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from mq.client.errors import MQError, RequestNotSupported, RouteNotFound
from mq.client.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.protocol import names
from mq.protocol.bodies import GetBrokerMemberGroupResponseBody
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import ProtocolError
from mq.protocol.headers.broker import GetBrokerMemberGroupRequestHeader

log = logging.getLogger(__name__)

# Whoever sends notices without end has the name servers asked so often at most.
LEAST_PAUSE = 0.05
TIMEOUT = 3.0


class NameServerSession(Protocol):
    """A name server, and a session to it: a NameServerLink."""

    @property
    def address(self) -> str: ...
    @property
    def session(self) -> Session: ...


async def ask_for_members(
    session: Session, address: str, cluster: str, name: str
) -> dict[int, str]:
    """The addresses of the living brokers of a set by id, as a name server knows them.

    One of 4.9 is asked for the route of the topic that stands for the set. Raises MQError, and
    ProtocolError for an answer that cannot be read.
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
    """Asks again and again: `run`, until cancelled.

    ``known`` is who lives by id, None before any name server has answered. Of several that do not
    say the same each is believed that knows a broker. ``changed`` is called when there are others.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        name_servers: Callable[[], Iterable[NameServerSession]],
        registered: asyncio.Event,
    ) -> None:
        """``registered`` is set when name servers have heard of this broker, or do not answer."""
        self.known: dict[int, str] | None = None
        self.changed: Callable[[], None] = lambda: None
        self._settings = settings
        self._name_servers = name_servers
        self._registered = registered
        self._wanted = asyncio.Event()

    def look(self) -> None:
        """Ask soon: there may be news."""
        self._wanted.set()

    async def run(self) -> None:
        await self._registered.wait()
        while True:
            self._wanted.clear()
            await self._ask()
            await asyncio.sleep(LEAST_PAUSE)
            period = self._settings.broker.sync_broker_member_group_period / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._wanted.wait()

    async def _ask(self) -> None:
        answers = await asyncio.gather(*(self._ask_one(link) for link in self._name_servers()))
        found: dict[int, str] | None = None
        for answer in answers:
            if answer is not None:
                found = answer | (found or {})
        if found is not None and found != self.known:
            log.info("of this set there live: %s", found)
            self.known = found
            self.changed()

    async def _ask_one(self, link: NameServerSession) -> dict[int, str] | None:
        broker = self._settings.broker
        try:
            return await ask_for_members(
                link.session, link.address, broker.broker_cluster_name, broker.broker_name
            )
        except (MQError, ProtocolError) as error:
            log.debug("%s does not say who of the set lives: %s", link.address, error)
            return None
