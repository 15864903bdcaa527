"""Rebalancing: computes which queues of a topic a member consumes (RebalanceImpl)."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mq.client.admin.groups import GroupAdmin
from mq.client.errors import MQError
from mq.client.machine import clock
from mq.client.reader.rebalance import Strategy
from mq.client.routing.routes import all_brokers, read_queues
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue, TopicRouteData

# A restarted broker learns the members one by one: clients check once a second for closed
# connections. For this many seconds after connecting to it, members that it does not list may still
# register.
GATHERING_SECONDS = 3.0


class Members(NamedTuple):
    """The client ids of a group, and the broker that returned them.

    `complete` is false while that broker may not have heard of all members yet.
    """

    address: str
    client_ids: list[str]
    complete: bool


class GroupMembers:
    """Queries the members of one group."""

    def __init__(
        self, session: Session, group: str, clock: Callable[[], float] = clock.monotonic
    ) -> None:
        self._session = session
        self._group = group
        self._groups = GroupAdmin(session)
        self._clock = clock
        self._informant: str | None = None  # the broker that last returned the members
        self._connection: object | None = None  # to that broker
        self._since = 0.0  # when this connection was first seen
        self._known: set[str] = set()

    async def ask(self, route: TopicRouteData) -> Members:
        """Query the broker that answered last, or the next one.

        Raises the error of the last broker if none answers.
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
            return Members(address, members, self._is_complete(members))
        assert failure is not None
        raise failure

    def _is_complete(self, members: list[str]) -> bool:
        connection = self._session.connection(self._informant or "")
        if connection is not self._connection:
            self._connection = connection
            self._since = self._clock()
        missing = self._known - set(members)
        if missing and self._clock() - self._since < GATHERING_SECONDS:
            return False
        self._known = set(members)
        return True


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
