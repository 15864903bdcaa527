"""Rebalancing: which queues of a topic are this member's share (RebalanceImpl)."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mq.client.admin.groups import GroupAdmin
from mq.client.errors import MQError
from mq.client.rebalance import Strategy
from mq.client.routes import all_brokers, read_queues
from mq.client.session import Session
from mq.protocol.bodies import MessageQueue, TopicRouteData


class Share(NamedTuple):
    """The queues of a topic, and those of them that are ours."""

    queues: list[MessageQueue]
    mine: set[MessageQueue]


class Shares:
    """Works out the share of one member of a group."""

    def __init__(
        self,
        session: Session,
        group: str,
        strategy: Strategy,
        *,
        broadcasting: bool,
        greet: Callable[[str], Awaitable[None]],
    ) -> None:
        """With `broadcasting` all queues are everybody's. `greet` sends a heartbeat to a broker."""
        self._session = session
        self._group = group
        self._strategy = strategy
        self._broadcasting = broadcasting
        self._greet = greet
        self._groups = GroupAdmin(session)
        self._informant: str | None = None  # the broker that has named the members last

    async def of(self, topic: str) -> Share | None:
        """Our share of `topic`; None while the brokers do not know that we are a member.

        Raises RouteNotFound, and what asking the last broker raises if none answers; what the
        strategy raises.
        """
        route = await self._session.route(topic)
        queues = read_queues(topic, route)
        if self._broadcasting:
            return Share(queues, set(queues))
        if not route.broker_datas:
            return None
        address, members = await self.members(route)
        client_id = self._session.client_id
        if client_id not in members:
            await self._greet(address)
            return None
        return Share(queues, set(self._strategy(client_id, queues, members)))

    async def members(self, route: TopicRouteData) -> tuple[str, list[str]]:
        """Who belongs to the group, and the broker that says so: the last one, or the next.

        Raises what the last of them raises if none answers.
        """
        addresses = all_brokers(route)
        if self._informant in addresses:
            addresses.remove(self._informant)
            addresses.insert(0, self._informant)
        failure: MQError | None = None
        for address in addresses:
            try:
                members = await self._groups.consumer_ids(address, self._group)
            except MQError as error:
                failure = error
                continue
            self._informant = address
            return address, members
        assert failure is not None
        raise failure
