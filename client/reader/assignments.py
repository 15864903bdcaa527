"""Rebalancing: computes which queues of a topic a member consumes (RebalanceImpl)."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mq.client.reader.group_members import GroupMembers
from mq.client.reader.rebalance import Strategy
from mq.client.routing.routes import read_queues
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue


class Assignment(NamedTuple):
    """The queues of a topic, and the ones assigned to this member."""

    queues: list[MessageQueue]
    mine: set[MessageQueue]


class Assignments:
    """Computes the assignment of one member of a group."""

    def __init__(
        self,
        session: Session,
        group: str,
        strategy: Strategy,
        *,
        broadcasting: bool,
        heartbeat: Callable[[str], Awaitable[None]],
    ) -> None:
        """With `broadcasting` every member gets all queues. `heartbeat` sends a heartbeat to the
        broker at an address.
        """
        self._session = session
        self._group = group
        self._strategy = strategy
        self._broadcasting = broadcasting
        self._heartbeat = heartbeat
        self.members = GroupMembers(session, group)

    async def of(self, topic: str) -> Assignment | None:
        """Return this member's assignment of `topic`.

        Returns None while the brokers do not know this member yet, or may not know all other
        members yet. Raises RouteNotFound, the error of the last broker if none answers, and
        whatever the strategy raises.
        """
        route = await self._session.route(topic)
        queues = read_queues(topic, route)
        if self._broadcasting:
            return Assignment(queues, set(queues))
        if not route.broker_datas:
            return None
        address, members, are_all = await self.members.ask(route)
        client_id = self._session.client_id
        if client_id not in members:
            await self._heartbeat(address)
            return None
        if not are_all:
            return None
        return Assignment(queues, set(self._strategy(client_id, queues, members)))
