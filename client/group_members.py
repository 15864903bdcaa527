"""Members of a group, as its brokers know them."""

from collections.abc import Callable
from typing import NamedTuple

from mq.client.admin.groups import GroupAdmin
from mq.client.errors import MQError
from mq.client.machine import clock
from mq.client.routes import all_brokers
from mq.client.session import Session
from mq.protocol.bodies import TopicRouteData

# A broker that was restarted hears of the members one by one: they look for connections that have
# ended each second. So long after we have reached it, whom it does not know may still be coming.
GATHERING_SECONDS = 3.0


class Members(NamedTuple):
    """The client ids of a group, and the broker that gave them.

    They are not complete while that may not have heard of all of them yet.
    """

    address: str
    client_ids: list[str]
    complete: bool


class GroupMembers:
    """Asks for the members of one group."""

    def __init__(
        self, session: Session, group: str, clock: Callable[[], float] = clock.monotonic
    ) -> None:
        self._session = session
        self._group = group
        self._groups = GroupAdmin(session)
        self._clock = clock
        self._informant: str | None = None  # the broker that has named the members last
        self._connection: object | None = None  # to it
        self._since = 0.0  # when we saw that connection first
        self._known: set[str] = set()

    async def ask(self, route: TopicRouteData) -> Members:
        """Ask the broker that answered last, or the next.

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
