"""The reading half of a group's member: which queues are ours, what is pulled, what is committed.

How the parts work together. Rebalancing (every 20 s, at the start, and when a broker says that the
group has changed) works out which queues are ours. Each of them has a task that pulls as long as
its ProcessQueue has room, and lines the messages up in `ready`. Whoever takes one from there calls
`ProcessQueue.finish` when it is done with it, which moves the offset to commit. Offsets are
committed every 5 s, when a queue is given up, and at the end.

Invariants:
- a queue in `held` is ours and has exactly one pulling task;
- a dropped ProcessQueue is in `held` no more, and nothing of it is committed any more;
- no offset past an unfinished message is ever committed;
- an ordered queue is pulled only while a lock on it, younger than a broker keeps it, is ours.
"""

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mq.client.admin.groups import GroupAdmin
from mq.client.admin.offsets import OffsetAdmin
from mq.client.errors import (
    ConnectError,
    MQError,
    RouteNotFound,
    SubscriptionNotExist,
    SubscriptionNotLatest,
)
from mq.client.offsets import OffsetStore
from mq.client.process_queue import ProcessQueue
from mq.client.pull_consumer import Puller, PullResult, PullStatus
from mq.client.rebalance import allocate_averagely
from mq.client.routes import any_broker, read_queues
from mq.client.running_info import Figures
from mq.client.session import Session
from mq.client.subscription import Subscriptions
from mq.protocol.bodies import ConsumeFromWhere, MessageQueue
from mq.protocol.message import StoredMessage
from mq.protocol.names import RETRY_PREFIX
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

REBALANCE_SECONDS = 20.0  # RebalanceService
REBALANCE_AGAIN_SECONDS = 1.0  # after one that could not be completed
COMMIT_SECONDS = 5.0  # ClientConfig.persistConsumerOffsetInterval
LONG_POLL_SECONDS = 15.0  # how long a broker may hold a pull (brokerSuspendMaxTimeMillis)
PULL_RETRY_SECONDS = 3.0  # pullTimeDelayMillsWhenException
LOCK_SECONDS = 20.0  # how often locks are renewed
LOCK_LIFE_SECONDS = 30.0  # ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME; a broker keeps them 60 s
HAND_OVER_SECONDS = 5.0  # how long an ordered queue waits for the message that is being consumed


class Reader:
    """Reads the queues that are this member's, and keeps the group's offsets."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Subscriptions,
        *,
        consume_from: ConsumeFromWhere,
        start_time: int,
        ordered: bool,
        pull_batch: int,
        greet: Callable[[], Awaitable[None]],
        on_ready: Callable[[ProcessQueue, list[StoredMessage]], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`greet` sends heartbeats; `on_ready` gets what is pulled, `on_failure` a task's error."""
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._consume_from = consume_from
        self._start_time = start_time  # ms, for CONSUME_FROM_TIMESTAMP
        self._ordered = ordered
        self._pull_batch = pull_batch
        self._greet = greet
        self._on_ready = on_ready
        self._on_failure = on_failure
        self.held: dict[MessageQueue, ProcessQueue] = {}
        self.figures: dict[str, Figures] = defaultdict(Figures)
        self.offsets = OffsetStore(session, group)
        self._groups = GroupAdmin(session)
        self._queue_offsets = OffsetAdmin(session)
        self._puller = Puller(session, group)
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._background: list[asyncio.Task[None]] = []
        self._due = asyncio.Event()
        self._changing = asyncio.Lock()  # one change of `held` at a time: rebalance, reset or stop

    def start(self) -> None:
        """Begin to rebalance and to commit."""
        self._background = [self._keep(self._rebalance_again()), self._keep(self._commit_again())]
        if self._ordered:
            self._background.append(self._keep(self._lock_again()))

    async def stop(self) -> None:
        """Stop pulling; what has been handed out may still be finished. Safe to call again."""
        tasks = [*self._background, *self._pulls.values()]
        self._background = []
        self._pulls = {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def release(self) -> None:
        """Commit how far we have come and give up every queue. After `stop`."""
        async with self._changing:
            for error in await self.commit():
                log.warning("group %s leaves without an offset: %s", self._group, error)
            for held in self.held.values():
                held.dropped = True
            if self._ordered:
                await self._session.all([self._unlock(queue) for queue in self.held])
            self.held.clear()

    def wake(self) -> None:
        """The group has changed: rebalance now."""
        self._due.set()

    async def commit(self) -> list[MQError]:
        """Tell the brokers how far each queue is finished; returns what went wrong."""
        for queue, held in self.held.items():
            self.offsets.update(queue, held.commit_offset)
        return await self.offsets.commit(list(self.held))

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on elsewhere: what is held of these queues is dropped, `offsets` are committed."""
        async with self._changing:
            for queue in offsets.keys() & self.held.keys():
                await self._drop(queue, commit_offset=offsets[queue])
        self.wake()

    async def rebalance(self) -> bool:
        """Work out which queues are ours, take them and give up others.

        Returns False when something could not be asked or done, so that it must be done again soon.
        """
        complete = True
        async with self._changing:
            for topic in self._subscriptions.data:
                try:
                    complete &= await self._rebalance_topic(topic)
                except RouteNotFound:
                    # It may come: the retry topic is made when a broker first hears of the group.
                    complete = False
                except MQError as error:
                    log.warning("group %s, topic %s: no rebalance: %s", self._group, topic, error)
                    complete = False
        return complete

    async def _rebalance_topic(self, topic: str) -> bool:
        route = await self._session.route(topic)
        address = any_broker(route)
        if address is None:
            return False
        members = await self._groups.consumer_ids(address, self._group)
        client_id = self._session.client_id
        if client_id not in members:
            await self._greet()
            return False
        mine = set(allocate_averagely(client_id, read_queues(topic, route), members))
        for queue in [queue for queue in self.held if queue.topic == topic and queue not in mine]:
            await self._drop(queue)
        complete = True
        for queue in sorted(mine - self.held.keys()):
            complete &= await self._take(queue)
        return complete

    async def _take(self, queue: MessageQueue) -> bool:
        asked = time.time()
        if self._ordered and queue not in await self._lock([queue]):
            return False  # its former owner has not finished with it
        offset = await self.offsets.committed(queue)
        if offset is None:
            offset = await self._first_offset(queue)
        held = self.held[queue] = ProcessQueue(queue, offset)
        held.locked = self._ordered
        held.last_lock = asked
        self._pulls[queue] = self._keep(self._pull_again(held))
        log.info("group %s takes %s from offset %d", self._group, queue, offset)
        return True

    async def _first_offset(self, queue: MessageQueue) -> int:
        """Where to begin in a queue without a committed offset (RebalancePushImpl)."""
        retried = queue.topic.startswith(RETRY_PREFIX)
        where = self._consume_from
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return 0
        address = await self._session.master_address(queue.topic, queue.broker_name)
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and not retried:
            return await self._queue_offsets.search_offset(
                address, queue.topic, queue.queue_id, self._start_time
            )
        if retried and where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
            return 0
        return await self._queue_offsets.max_offset(address, queue.topic, queue.queue_id)

    async def _drop(self, queue: MessageQueue, commit_offset: int | None = None) -> None:
        held = self.held.pop(queue)
        held.dropped = True
        task = self._pulls.pop(queue, None)
        if task is not None:
            task.cancel()
        idle = not self._ordered or await held.idle(HAND_OVER_SECONDS)
        self.offsets.update(queue, held.commit_offset if commit_offset is None else commit_offset)
        for error in await self.offsets.commit([queue]):
            log.warning("group %s gives up %s without its offset: %s", self._group, queue, error)
        self.offsets.forget(queue)
        if self._ordered and idle:  # else the broker lets go of the lock after 60 s
            await self._unlock(queue)
        log.info("group %s gives up %s at offset %d", self._group, queue, held.commit_offset)

    async def _pull_again(self, held: ProcessQueue) -> None:
        topic = held.queue.topic
        figures = self.figures[topic]
        while True:
            await held.wait_for_room()
            if self._ordered and not self._lock_is_young(held):
                await asyncio.sleep(REBALANCE_AGAIN_SECONDS)
                continue
            started = time.monotonic()
            try:
                result = await self._pull(held)
            except MQError as error:
                await self._recover(held, error)
                continue
            figures.pulls += 1
            figures.pull_seconds += time.monotonic() - started
            figures.pulled += len(result.messages)
            self._accept(held, result)

    async def _pull(self, held: ProcessQueue) -> PullResult:
        topic = held.queue.topic
        return await self._puller.pull(
            held.queue,
            held.next_offset,
            self._subscriptions.tags(topic),
            max_count=self._pull_batch,
            wait=LONG_POLL_SECONDS,
            commit_offset=held.commit_offset,
            sub_version=self._subscriptions.version,
            expression_type=self._subscriptions.data[topic].expression_type,
        )

    def _accept(self, held: ProcessQueue, result: PullResult) -> None:
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "group %s, %s: offset %d is not in the queue (%d to %d), going on at %d",
                *(self._group, held.queue, held.next_offset),
                *(result.min_offset, result.max_offset, result.next_offset),
            )
        held.next_offset = result.next_offset
        held.last_pull = time.time()
        if result.messages:
            for message in result.messages:
                original = message.properties.get(PropertyKey.RETRY_TOPIC)
                if original and message.topic.startswith(RETRY_PREFIX):
                    message.topic = original
            held.add(result.messages)
            self._on_ready(held, result.messages)

    async def _recover(self, held: ProcessQueue, error: MQError) -> None:
        log.warning("group %s, %s: pull failed: %s", self._group, held.queue, error)
        if isinstance(error, SubscriptionNotExist | SubscriptionNotLatest | ConnectError):
            if isinstance(error, ConnectError):
                self._session.outdate_route(held.queue.topic)
            await asyncio.sleep(REBALANCE_AGAIN_SECONDS)
            await self._greet()  # a broker that was restarted does not know us
        else:
            await asyncio.sleep(PULL_RETRY_SECONDS)

    async def _rebalance_again(self) -> None:
        pause = REBALANCE_AGAIN_SECONDS
        while True:
            self._due.clear()
            complete = await self.rebalance()
            pause = REBALANCE_AGAIN_SECONDS if complete else min(pause * 2, REBALANCE_SECONDS)
            seconds = REBALANCE_SECONDS if complete else pause / 2
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._due.wait()

    async def _commit_again(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            for error in await self.commit():
                log.warning("group %s: offset not committed: %s", self._group, error)

    async def _lock_again(self) -> None:
        while True:
            await asyncio.sleep(LOCK_SECONDS)
            queues = list(self.held)
            locked = await self._lock(queues)
            for queue in queues:
                held = self.held.get(queue)
                if held is not None:
                    held.locked = queue in locked

    def _lock_is_young(self, held: ProcessQueue) -> bool:
        return held.locked and time.time() - held.last_lock < LOCK_LIFE_SECONDS

    async def _lock(self, queues: list[MessageQueue]) -> set[MessageQueue]:
        """Lock queues at their masters; returns those that are ours now."""
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            with contextlib.suppress(MQError):
                address = await self._session.master_address(queue.topic, queue.broker_name)
                by_broker[address].append(queue)
        locked: set[MessageQueue] = set()
        for address, part in by_broker.items():
            try:
                locked |= await self._groups.lock_queues(
                    address, self._group, self._session.client_id, part
                )
            except MQError as error:
                log.warning("group %s: no locks: %s", self._group, error)
        now = time.time()
        for queue in locked & self.held.keys():
            self.held[queue].last_lock = now
        return locked

    async def _unlock(self, queue: MessageQueue) -> None:
        try:
            address = await self._session.master_address(queue.topic, queue.broker_name)
            client_id = self._session.client_id
            await self._groups.unlock_queues(address, self._group, client_id, [queue])
        except MQError as error:
            log.warning("group %s, %s: not unlocked: %s", self._group, queue, error)

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._session.keep_task(coroutine)
        task.add_done_callback(self._watch)
        return task

    def _watch(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self._on_failure(error)
