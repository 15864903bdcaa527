"""Offsets of a group: kept at the brokers, remembered here between two commits."""

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Protocol

from mq.client.admin.offsets import OffsetAdmin
from mq.client.caller import Caller
from mq.client.errors import ConnectError, MQError, RequestTimeout, RouteNotFound
from mq.client.machine import clock
from mq.client.routes import broker_address, replicas
from mq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from asyncio import Future

REPEAT_SECONDS = 60.0  # after so long a broker is told again what it has confirmed already


class Offsets(Protocol):
    """Where offsets are kept: at the brokers, in a file, or in a store of the user's own."""

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group goes on in `queue`; None if nothing is known of it.

        While it raises, the queue is not read; it is asked again.
        """

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Remember that everything below `offset` is done."""

    def forget(self, queue: MessageQueue) -> None:
        """The queue is another member's now; what was committed stays."""

    async def commit(self, queues: Iterable[MessageQueue], *, again: bool = False) -> list[MQError]:
        """Keep what has changed of these, or with `again` all that is remembered of them.

        Returns what went wrong; it is tried again with the next commit.
        """


class OffsetStore:
    """The offsets of one group. `update` remembers, `commit` tells the brokers."""

    def __init__(self, session: Caller, group: str) -> None:
        self._session = session
        self._admin = OffsetAdmin(session)
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        # What each was told last and when, by the monotonic clock.
        self._committed: dict[MessageQueue, tuple[int, float]] = {}
        self._begun: set[tuple[str, str]] = set()  # topic and broker with an offset of the group
        # Those that one is on its way to, and who waits to hear what has become of it.
        self._beginning: dict[tuple[str, str], list[Future[MQError | None]]] = {}

    async def committed(self, queue: MessageQueue) -> int | None:
        """Ask the broker where the group goes on in `queue`; None if it never committed there.

        Where its master cannot be reached, a replica is asked, which has offsets of some seconds
        ago. Raises what asking the last of them raises, and RouteNotFound when only replicas are
        there and they know none: the master may.
        """
        route = await self._session.route(queue.topic)
        missing: MQError = RouteNotFound(queue.topic, f"no broker {queue.broker_name} in its route")
        master = broker_address(route, queue.broker_name)
        for address in replicas(route, queue.broker_name):
            try:
                offset = await self._admin.query_consumer_offset(
                    address, self._group, queue.topic, queue.queue_id
                )
            except (ConnectError, RequestTimeout) as error:
                missing = error
                continue
            if offset is not None or address == master:
                return offset
            if master is None:
                text = f"no master {queue.broker_name} in its route, and no offset at its replica"
                missing = RouteNotFound(queue.topic, text)
        raise missing

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Remember that everything below `offset` is done."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        """What `update` was told last."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """The queue belongs to another member now."""
        self._offsets.pop(queue, None)
        self._committed.pop(queue, None)

    async def commit(self, queues: Iterable[MessageQueue], *, again: bool = False) -> list[MQError]:
        """Tell the brokers what has changed; returns what went wrong, to be tried again later.

        With `again` also what has not; without it that is told once a minute, because a broker may
        have lost it. The first offset of a topic goes to a broker by itself, the others together
        after it: of several first ones at once a Java broker may keep one and confirm all
        (ConsumerOffsetManager.commitOffset puts a new table without a lock).
        """
        sent_before = inf if again else clock.monotonic() - REPEAT_SECONDS
        changed = {
            queue
            for queue in queues
            if (offset := self._offsets.get(queue)) is not None
            and (
                (sent := self._committed.get(queue)) is None
                or sent[0] != offset
                or sent[1] <= sent_before
            )
        }
        places = {(queue.topic, queue.broker_name): queue for queue in changed}
        first = {queue for place, queue in places.items() if place not in self._begun}
        errors: list[MQError] = []
        for commit, together in ((self._begin, first), (self._commit, changed - first)):
            commits = [commit(queue) for queue in together]
            errors += filter(None, await self._session.all(commits))
        return errors

    async def _begin(self, queue: MessageQueue) -> MQError | None:
        """Commit what may be the first offset of a topic at a broker: not beside another one, as
        where several queues are given up at once. What has failed for that is not tried again."""
        place = queue.topic, queue.broker_name
        while place not in self._begun and (waiting := self._beginning.get(place)) is not None:
            from asyncio import get_running_loop  # without a loop there is no other one

            heard: Future[MQError | None] = get_running_loop().create_future()
            waiting.append(heard)
            if (error := await heard) is not None:
                return error
        if place in self._begun:
            return await self._commit(queue)
        waiting = self._beginning[place] = []
        error = None
        try:
            error = await self._commit(queue)
        finally:
            del self._beginning[place]
            for heard in waiting:
                if not heard.done():
                    heard.set_result(error)
        return error

    async def _commit(self, queue: MessageQueue) -> MQError | None:
        """Tell its broker what is remembered of a queue when it can be told."""
        try:
            route = await self._session.route(queue.topic)
            master = broker_address(route, queue.broker_name)
            address = broker_address(route, queue.broker_name, exact=False)
            if address is None:
                return RouteNotFound(queue.topic, f"no broker {queue.broker_name} in its route")
            # Not what it was before the first offsets were answered, perhaps late: the queue may
            # have been reset since, or be another member's, who has come further.
            offset = self._offsets.get(queue)
            if offset is None:
                return None
            await self._admin.update_consumer_offset(
                address, self._group, queue.topic, queue.queue_id, offset
            )
        except MQError as error:
            return error
        if master is not None:  # else it is told again when it is back
            self._committed[queue] = offset, clock.monotonic()
            self._begun.add((queue.topic, queue.broker_name))
        return None
