"""Who is in a group: what brokers say of its members, and what these say of themselves."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from mq.client.admin import Admin
from mq.client.errors import ConsumerNotOnline, MQError
from mq.client.machine import clock
from mq.client.operations import cluster
from mq.client.operations.connections import Client, client_of
from mq.client.operations.subjects import members as judged
from mq.protocol.bodies import ConsumerConnection, ConsumerRunningInfo

MOST_ASKED = 50  # members that are asked what they hold: each answers through its broker
_SHORTEST = 0.1  # seconds that members are given, however late their broker was


@dataclass(frozen=True, slots=True)
class MemberLocation:
    """A member: the address of the broker to ask it through, and all brokers that it is at."""

    client: Client
    through: str
    brokers: tuple[str, ...]


@dataclass(slots=True)
class Members:
    """``connections`` and ``failed`` are by the address of a broker, ``said`` and ``unsaid`` by
    client id: many members are not all asked."""

    connections: dict[str, ConsumerConnection] = field(default_factory=dict)
    failed: dict[str, MQError] = field(default_factory=dict)
    said: dict[str, ConsumerRunningInfo] = field(default_factory=dict)
    unsaid: dict[str, MQError] = field(default_factory=dict)

    def met(self) -> dict[str, MemberLocation]:
        """The members by client id."""
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
    """What the group subscribes to, as brokers know it."""

    topic: str
    expression: str
    expression_type: str


def subscriptions(there: Members) -> list[Subscription]:
    """What brokers have heard that members subscribe to, by topic."""
    found = {
        Subscription(item.topic, item.sub_string, item.expression_type)
        for connection in there.connections.values()
        for item in connection.subscription_table.values()
    }
    return sorted(found, key=lambda one: (one.topic, one.expression))


async def collect(
    admin: Admin, addresses: Iterable[str], group: str, seconds: float, most: int = MOST_ASKED
) -> Members:
    """Who is connected to these brokers, and what `most` of them say: all within so many seconds,
    members of each broker as soon as it has told of them."""
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
