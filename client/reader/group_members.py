"""The members of a group, as its brokers know them."""

from collections.abc import Callable
from typing import NamedTuple

from mq.client.admin.groups import GroupAdmin
from mq.client.errors import MQError
from mq.client.machine import clock
from mq.client.routing.routes import all_brokers
from mq.client.transport.session import Session
from mq.protocol.bodies import TopicRouteData

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
