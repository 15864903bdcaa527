"""Offsets of a group: kept at the brokers, remembered here between two commits."""

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Protocol

from mq.client.admin.offsets import OffsetAdmin
from mq.client.caller import Caller
from mq.client.errors import ClientError, ConnectError, MQError, RequestTimeout, RouteNotFound
from mq.client.machine import clock
from mq.client.routes import broker_address, replicas
from mq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from asyncio import Future

_AT_ONCE = 0.1  # seconds within which two have begun to wait for the same answer
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


class _Commit:
    """One call of `OffsetStore.commit`, under way."""

    def __init__(self) -> None:
        self.untold: set[MessageQueue] = set()  # given up meanwhile with an offset no broker heard


class OffsetStore:
    """The offsets of one group. `update` remembers, `commit` tells the brokers."""

    def __init__(self, session: Caller, group: str) -> None:
        self._session = session
        self._admin = OffsetAdmin(session)
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        # What each was told last and when, by the monotonic clock.
        self._committed: dict[MessageQueue, tuple[int, float]] = {}
        self._had: set[MessageQueue] = set()  # those of which a broker is known to have had one
        self._begun: set[tuple[str, str]] = set()  # topic and broker with an offset of the group
        # Those that one is on its way to, who waits for a turn there, and what failed last.
        self._beginning: dict[tuple[str, str], deque[Future[None]]] = {}
        self._failures: dict[tuple[str, str], MQError] = {}
        self._running: list[_Commit] = []

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
                if offset:  # 0 may stand for none
                    self._had.add(queue)
                return offset
            if master is None:
                text = f"no master {queue.broker_name} in its route, and no offset at its replica"
                missing = RouteNotFound(queue.topic, text)
        raise missing

    async def is_lost(self, queue: MessageQueue) -> bool:
        """Whether the broker has no offset of `queue` now, though it had one while it was ours: it
        removes those of a topic that is deleted. Raises what asking its master raises."""
        if queue not in self._had:
            return False
        address = await self._session.master_address(queue.topic, queue.broker_name)
        offset = await self._admin.query_consumer_offset(
            address, self._group, queue.topic, queue.queue_id, young_is_zero=False
        )
        return offset is None

    def begin_anew(self, queue: MessageQueue) -> None:
        """Its broker may have another topic of that name: the next offset there may be the first
        one again."""
        self._begun.discard((queue.topic, queue.broker_name))

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Remember that everything below `offset` is done."""
        self._offsets[queue] = offset

    def known(self, queue: MessageQueue) -> int | None:
        """What `update` was told last."""
        return self._offsets.get(queue)

    def is_told(self, queue: MessageQueue, offset: int) -> bool:
        """Whether a master has confirmed that offset last."""
        told = self._committed.get(queue)
        return told is not None and told[0] == offset

    def forget(self, queue: MessageQueue) -> None:
        """The queue belongs to another member now, or nobody reads it for the time being."""
        self.begin_anew(queue)  # its topic may be another one when it comes back
        self._had.discard(queue)
        offset, told = self._offsets.pop(queue, None), self._committed.pop(queue, None)
        if offset is not None and (told is None or told[0] != offset):
            for commit in self._running:
                commit.untold.add(queue)

    async def commit(self, queues: Iterable[MessageQueue], *, again: bool = False) -> list[MQError]:
        """Tell the brokers what has changed; returns what went wrong, to be tried again later.

        With `again` also what has not; without it that is told once a minute, because a broker may
        have lost it. One that was given up meanwhile by who committed nothing is an error.

        The first offset of a topic goes to a broker by itself, the others together after it: of
        several first ones at once a Java broker may keep one and confirm all
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
            told = await self._session.all([self._tell(queue, commit) for queue in changed])
        finally:
            self._running.remove(commit)
        return [error for error in told if error is not None]

    async def _tell(self, queue: MessageQueue, commit: "_Commit") -> MQError | None:
        """Tell the broker of a queue how far it is: what may be its first offset of a topic not
        beside another one, also where several queues are given up at once.

        Where the first one fails the next one is tried, unless that has waited for as long as for
        an answer by then: to a broker that is silent all of them go at once, as it were.
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
        """Have the first offset of a topic at a broker to oneself."""
        waiting = self._beginning.get(place)
        if waiting is None:
            self._beginning[place] = deque()
            return
        from asyncio import get_running_loop  # without a loop there is no other one

        turn: Future[None] = get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it came as this was cancelled
                self._end(place)
            raise

    def _end(self, place: tuple[str, str]) -> None:
        """Let the next one begin."""
        waiting = self._beginning[place]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._beginning[place]
        self._failures.pop(place, None)

    async def _commit(self, queue: MessageQueue, commit: "_Commit") -> MQError | None:
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
                untold = f"{queue} was given up before its offset was committed"
                return ClientError(untold) if queue in commit.untold else None
            await self._admin.update_consumer_offset(
                address, self._group, queue.topic, queue.queue_id, offset
            )
        except MQError as error:
            return error
        if master is not None:  # else it is told again when it is back
            self._committed[queue] = offset, clock.monotonic()
            self._had.add(queue)
            self._begun.add((queue.topic, queue.broker_name))
        return None
