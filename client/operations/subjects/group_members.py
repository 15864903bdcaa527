"""The members of a group, as brokers report them and as they report themselves."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from mq.client.admin import Admin
from mq.client.errors import ConsumerNotOnline, MQError
from mq.client.machine import clock
from mq.client.operations import cluster
from mq.client.operations.connections import Client, client_of
from mq.client.operations.subjects import members as judged
from mq.protocol.bodies import ConsumerConnection, ConsumerRunningInfo

MOST_ASKED = 50  # members that are queried for their queues: each answers through its broker
_SHORTEST = 0.1  # the minimum time for members in seconds, however late their broker was


@dataclass(frozen=True, slots=True)
class MemberLocation:
    """A member: the address of the broker through which to query it, and all brokers that know
    it.
    """

    client: Client
    through: str
    brokers: tuple[str, ...]


@dataclass(slots=True)
class Members:
    """Members of a group. ``connections`` and ``failed`` are by the address of a broker, ``said``
    and ``unsaid`` by client id; of many members only some are queried.
    """

    connections: dict[str, ConsumerConnection] = field(default_factory=dict)
    failed: dict[str, MQError] = field(default_factory=dict)
    said: dict[str, ConsumerRunningInfo] = field(default_factory=dict)
    unsaid: dict[str, MQError] = field(default_factory=dict)

    def met(self) -> dict[str, MemberLocation]:
        """Return the members by client id."""
        found: dict[str, MemberLocation] = {}
        for address, connection in sorted(self.connections.items()):
            for item in connection.connection_set:
                client = client_of(item)
                known = found.get(client.client_id)
                through = known.through if known else address
                brokers = (*(known.brokers if known else ()), address)
                found[client.client_id] = MemberLocation(client, through, brokers)
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of the group, as brokers know it."""

    topic: str
    expression: str
    expression_type: str


def subscriptions(there: Members) -> list[Subscription]:
    """Return the subscriptions of members that brokers know, by topic."""
    found = {
        Subscription(item.topic, item.sub_string, item.expression_type)
        for connection in there.connections.values()
        for item in connection.subscription_table.values()
    }
    return sorted(found, key=lambda one: (one.topic, one.expression))


async def collect(
    admin: Admin, addresses: Iterable[str], group: str, seconds: float, most: int = MOST_ASKED
) -> Members:
    """Collect the members at these brokers, and the reports of `most` of them, within `seconds`.

    The members of each broker are queried as soon as it has answered.
    """
    ends = clock.monotonic() + seconds
    found = Members()
    asked: set[str] = set()
    connection_at = cluster.within(
        seconds, lambda each, address: each.consumer_connection(address, group)
    )

    async def look(each: Admin, address: str) -> None:
        connection = await connection_at(each, address)
        found.connections[address] = connection
        names = sorted({item.client_id for item in connection.connection_set} - asked)
        mine = names[: max(0, most - len(asked))]
        asked.update(mine)
        if mine:
            left = max(_SHORTEST, round(ends - clock.monotonic(), 1))
            told, silent = await judged.running(each, address, group, mine, seconds=left)
            found.said.update(told)
            found.unsaid.update(silent)

    _, failed = await cluster.outcomes(admin, addresses, look)
    found.failed = {
        at: error for at, error in failed.items() if not isinstance(error, ConsumerNotOnline)
    }
    found.said = dict(sorted(found.said.items()))
    return found
