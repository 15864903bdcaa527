"""The committed offsets of a group: stored at the brokers, cached here between two commits."""

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Protocol

from mq.client.admin.offsets import OffsetAdmin
from mq.client.errors import ClientError, ConnectError, MQError, RequestTimeout, RouteNotFound
from mq.client.machine import clock
from mq.client.routing.routes import broker_address, replicas
from mq.client.transport.caller import Caller
from mq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from asyncio import Future

_AT_ONCE = 0.1  # seconds; two waits that started this close together wait for the same answer
REPEAT_SECONDS = 60.0  # after this time a confirmed offset is committed once more


class Offsets(Protocol):
    """A store of offsets: the brokers, a file, or the user's own."""

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group in `queue`; None if there is none.

        While it raises, the queue is not read, and the call is repeated.
        """

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Record that all messages before `offset` are consumed."""

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that another member owns now. Its committed offset stays."""

    async def commit(self, queues: Iterable[MessageQueue], *, again: bool = False) -> list[MQError]:
        """Store the changed offsets of these queues, or with `again` all that are known.

        Returns the errors; the next commit retries them.
        """


class _Commit:
    """One running call of `OffsetStore.commit`."""

    def __init__(self) -> None:
        self.uncommitted: set[MessageQueue] = (
            set()
        )  # forgotten meanwhile, with an uncommitted offset


class OffsetStore:
    """The offsets of one group at the brokers. `update` records them, `commit` sends them."""

    def __init__(self, session: Caller, group: str) -> None:
        self._session = session
        self._admin = OffsetAdmin(session)
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        # The last confirmed offset of each queue, and its time by the monotonic clock.
        self._committed: dict[MessageQueue, tuple[int, float]] = {}
        # queues of which a broker is known to have had an offset
        self._had: set[MessageQueue] = set()
        # topic and broker that have an offset of the group
        self._begun: set[tuple[str, str]] = set()
        # First commits in flight per topic and broker, the commits waiting for them, and their last
        # failure.
        self._beginning: dict[tuple[str, str], deque[Future[None]]] = {}
        self._failures: dict[tuple[str, str], MQError] = {}
        self._running: list[_Commit] = []

    async def committed(self, queue: MessageQueue) -> int | None:
        """Query the broker for the committed offset of the group in `queue`; None if there is none.

        If the master is unreachable a slave is queried, whose offsets are some seconds old. Raises
        the error of the last broker queried, and RouteNotFound if only slaves are available and
        have no offset, because the master may have one.
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
                if offset:  # 0 may stand for no offset
                    self._had.add(queue)
                return offset
            if master is None:
                text = f"no master {queue.broker_name} in its route, and no offset at its replica"
                missing = RouteNotFound(queue.topic, text)
        raise missing

    async def is_lost(self, queue: MessageQueue) -> bool:
        """Whether the broker no longer has an offset of `queue` that it had: it removes those of a
        deleted topic.

        Raises the errors of the query to the master.
        """
        if queue not in self._had:
            return False
        address = await self._session.master_address(queue.topic, queue.broker_name)
        offset = await self._admin.query_consumer_offset(
            address, self._group, queue.topic, queue.queue_id, young_is_zero=False
        )
        return offset is None

    def reset_first_commit(self, queue: MessageQueue) -> None:
        """Treat the next commit as the first one again: the broker may have another topic of that
        name.
        """
        self._begun.discard((queue.topic, queue.broker_name))

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Record that all messages before `offset` are consumed."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        """Return the offset of the last `update`."""
        return self._offsets.get(queue)

    def is_confirmed(self, queue: MessageQueue, offset: int) -> bool:
        """Whether `offset` is the last one that a master confirmed."""
        confirmed = self._committed.get(queue)
        return confirmed is not None and confirmed[0] == offset

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that another member owns now, or that is not read for the time being."""
        self.reset_first_commit(queue)  # its topic may have been recreated when it returns
        self._had.discard(queue)
        offset, confirmed = self._offsets.pop(queue, None), self._committed.pop(queue, None)
        if offset is not None and (confirmed is None or confirmed[0] != offset):
            for commit in self._running:
                commit.uncommitted.add(queue)

    async def commit(self, queues: Iterable[MessageQueue], *, again: bool = False) -> list[MQError]:
        """Send changed offsets to the brokers; returns the errors, for a later retry.

        With `again` unchanged offsets are sent too; otherwise those are repeated once a minute,
        because a broker may have lost them. A queue that is forgotten during the call with an
        uncommitted offset is an error.

        The first offset of a topic is sent to a broker alone, and the others together after it: of
        several first offsets at once a Java broker may keep only one and confirm all
        (ConsumerOffsetManager.commitOffset puts a new table without a lock).
        """
        sent_before = inf if again else clock.monotonic() - REPEAT_SECONDS
        changed = [
            queue
            for queue in dict.fromkeys(queues)
            if (offset := self._offsets.get(queue)) is not None
            and (
                (sent := self._committed.get(queue)) is None
                or sent[0] != offset
                or sent[1] <= sent_before
            )
        ]
        commit = _Commit()
        self._running.append(commit)
        try:
            confirmed = await self._session.all(
                [self._commit_in_turn(queue, commit) for queue in changed]
            )
        finally:
            self._running.remove(commit)
        return [error for error in confirmed if error is not None]

    async def _commit_in_turn(self, queue: MessageQueue, commit: "_Commit") -> MQError | None:
        """Commit the offset of a queue, never concurrently with a possible first offset of its
        topic.

        This also holds when several queues are revoked at once. If the first commit fails, the next
        one is tried, unless it has already waited as long as for an answer: then all fail together,
        as if they had been sent to the silent broker at once.
        """
        place = queue.topic, queue.broker_name
        until = clock.monotonic() + self._session.timeout - _AT_ONCE
        if place not in self._begun:
            await self._begin(place)
            try:
                failure = self._failures.get(place)
                if failure is not None and clock.monotonic() >= until:
                    return failure
                if place not in self._begun:
                    error = await self._commit(queue, commit)
                    if error is not None:
                        self._failures[place] = error
                    return error
            finally:
                self._end(place)
        return await self._commit(queue, commit)

    async def _begin(self, place: tuple[str, str]) -> None:
        """Wait for exclusive use of a topic at a broker, for its first offset."""
        waiting = self._beginning.get(place)
        if waiting is None:
            self._beginning[place] = deque()
            return
        # imported here: without an event loop there are no concurrent commits
        from asyncio import get_running_loop

        turn: Future[None] = get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # the turn arrived while this was cancelled
                self._end(place)
            raise

    def _end(self, place: tuple[str, str]) -> None:
        """Pass the turn to the next waiting commit."""
        waiting = self._beginning[place]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._beginning[place]
        self._failures.pop(place, None)

    async def _commit(self, queue: MessageQueue, commit: "_Commit") -> MQError | None:
        """Send the recorded offset of a queue to its broker."""
        try:
            route = await self._session.route(queue.topic)
            master = broker_address(route, queue.broker_name)
            address = broker_address(route, queue.broker_name, exact=False)
            if address is None:
                return RouteNotFound(queue.topic, f"no broker {queue.broker_name} in its route")
            # Read the offset only now: while the first commits were pending, the queue may have
            # been reset, or taken by another member that consumed further.
            offset = self._offsets.get(queue)
            if offset is None:
                uncommitted = f"{queue} was revoked before its offset was committed"
                return ClientError(uncommitted) if queue in commit.uncommitted else None
            await self._admin.update_consumer_offset(
                address, self._group, queue.topic, queue.queue_id, offset
            )
        except MQError as error:
            return error
        if master is not None:  # otherwise it is committed again when the master is back
            self._committed[queue] = offset, clock.monotonic()
            self._had.add(queue)
            self._begun.add((queue.topic, queue.broker_name))
        return None
