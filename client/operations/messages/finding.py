"""Finds a message by its id alone, in all topics within a limit."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from mq.client.errors import BrokerError, ClientError, MQError, NoPermission, RouteNotFound
from mq.client.machine import clock
from mq.client.operations.errors import NotFound
from mq.client.operations.plurals import counted
from mq.protocol import names

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.message import StoredMessage


def not_read(topic: str, error: MQError) -> str:
    """Return a line for a topic that could not be searched, with a hint for missing permissions."""
    line = f"topic {topic}: {error}"
    if isinstance(error, NoPermission):
        line += "; its messages are missing: use an account that may read it"
    return line


def unsaid(topic: str, errors: "Iterable[MQError]") -> list[str]:
    """Return a line for each broker of a topic that did not answer."""
    return [not_read(topic, error) for error in errors]


class IdMatches(NamedTuple):
    """The messages with an id.

    ``failures`` has a line for each topic that could not be searched, or not at all of its brokers;
    ``unseen`` is the number of topics not searched, and ``error`` the first error.
    """

    messages: list["StoredMessage"]
    failures: list[str]
    unseen: int = 0
    error: MQError | None = None


class Reach(NamedTuple):
    """The limits of a search: requests to brokers, and seconds. The topic that is being searched
    may exceed them.
    """

    requests: float = inf
    seconds: float = inf


_EVERYWHERE = Reach()


async def find(
    admin: "Admin",
    message_id: str,
    topic: str | None,
    *,
    sees: Callable[[str], bool] = lambda topic: True,
    decompress: bool = True,
    reach: Reach = _EVERYWHERE,
) -> IdMatches:
    """Return the messages with an id, unique or offset id, oldest first. Raises NotFound, MQError.

    Without a topic every topic for which `sees` is true is searched, within `reach`: imported or
    copied messages have the id of their origin. Retry topics and dead letters are searched only if
    nothing else is found, because their messages are copies. An id may be in several topics, and
    several times in one of them.
    """
    with suppress(ClientError, BrokerError, MQError):
        info = await admin.cluster_info()
        known = {
            a for broker in info.broker_addr_table.values() for a in broker.broker_addrs.values()
        }
        if _host_of(message_id) in known:
            return IdMatches([await admin.find_by_offset_id(message_id, decompress=decompress)], [])
    rounds = ([topic],) if topic else await _topics(admin)
    looking = _Looking(admin, message_id, reach, decompress=decompress)
    left = [list(filter(sees, topics)) for topics in rounds]
    while left and not looking.found and not looking.unseen:
        await looking.look_into(left.pop(0))
    unseen = looking.unseen + (0 if looking.found else sum(map(len, left)))
    if looking.found:
        looking.found.sort(key=lambda message: message.store_timestamp)
        first = next(iter(looking.failures.values()), None)
        return IdMatches(looking.found, _not_read(looking.failures), unseen, first)
    if looking.failures:
        raise next(iter(looking.failures.values()))
    where = f"topic {topic}" if topic else "any topic"
    if unseen:
        where = f"the {counted(looking.seen, 'topic')} that were searched"
    raise NotFound(
        f"no message {message_id!r} in {where}"
        + (f"; not searched: {counted(unseen, 'topic')}: choose one" if unseen else ""),
        hint="brokers delete messages after fileReservedTime; is the id whole?",
    )


_MOST_NAMED = 3


def _not_read(failures: "dict[str, MQError]") -> list[str]:
    """Return a line for each topic that could not be searched, but only one for all topics that the
    account may not read, because these may be most of a cluster.
    """
    closed = [name for name, error in failures.items() if isinstance(error, NoPermission)]
    lines = [not_read(name, error) for name, error in failures.items() if name not in closed]
    if len(closed) == 1:
        lines.append(not_read(closed[0], failures[closed[0]]))
    elif closed:
        shown = ", ".join(closed[:_MOST_NAMED]) + (", …" if len(closed) > _MOST_NAMED else "")
        lines.append(
            f"not searched: {counted(len(closed), 'topic')} that this account may not read "
            f"({shown}); choose one, or use an account that may"
        )
    return lines


class _Looking:
    """The search for a unique id in one topic after the other."""

    def __init__(self, admin: "Admin", message_id: str, reach: Reach, *, decompress: bool) -> None:
        self._admin = admin
        self._id = message_id
        self._decompress = decompress
        self._requests = reach.requests
        self._deadline = clock.monotonic() + reach.seconds
        self.found: list[StoredMessage] = []
        self.failures: dict[str, MQError] = {}
        self.seen = 0  # searched topics
        self.unseen = 0  # topics that were not searched, because the limits were reached

    async def look_into(self, topics: list[str]) -> None:
        """Search topics while the limits permit."""
        for place, name in enumerate(topics):
            if self._requests <= 0 or clock.monotonic() >= self._deadline:
                self.unseen = len(topics) - place
                return
            self.seen += 1
            # of brokers; the results of the others are used nevertheless
            errors: list[MQError] = []
            try:
                route = await self._admin.session.route(name)
                self._requests -= len(route.broker_datas)
                self.found += await self._admin.find_by_unique_id(
                    name, self._id, decompress=self._decompress, failures=errors
                )
            except RouteNotFound:
                pass  # deleted meanwhile
            except MQError as error:
                errors.append(error)
            if errors:
                self.failures[name] = errors[0]


def _host_of(message_id: str) -> str:
    """Return the broker in an offset id; empty if the text is not one."""
    from mq.protocol.message_id import decode_offset_id

    try:
        place = decode_offset_id(message_id)
    except ValueError:
        return ""
    return f"{place.host}:{place.port}"


async def _topics(admin: "Admin") -> tuple[list[str], list[str]]:
    """Return the user topics, and the retry and dead letter topics of groups."""
    everything = sorted((await admin.topic_list()).topic_list)
    users = [name for name in everything if not names.is_system_topic(name)]
    copies = (names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)
    return (
        [name for name in users if not name.startswith(copies)],
        [name for name in users if name.startswith(copies)],
    )
