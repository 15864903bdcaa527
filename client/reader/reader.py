"""The reading half of a group's member: owns queues, pulls them, and commits offsets.

Rebalancing (every 20 s, at the start, and when a broker reports that the group has changed)
computes which queues this member owns; or the user assigns queues. Each queue has a task that pulls
while its ProcessQueue has room, and passes messages to `on_ready`. The consumer of a message calls
`ProcessQueue.finish` afterwards, which advances the offset to commit. Offsets are committed
periodically (see `commits`), when a queue is revoked, and at the end.

Invariants:

- a queue in `held` is owned by this member and has exactly one pulling task;
- a dropped ProcessQueue is not in `held`, and is committed at most once more;
- an offset past an unfinished message is never committed;
- an ordered queue is pulled and consumed only while this member has a lock on it that is younger
  than a broker's lock timeout;
- a queue whose lock another member got is taken again from the committed offset, or not at all;
- a queue whose broker does not have its topic is kept, and is not committed until the topic is
  back; if another topic of that name appears, the queue is taken again from its start;
- a queue that is still being revoked (see `revoked_queues`) is not taken again.
"""

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from mq.client.errors import ClientError, MQError, RouteNotFound
from mq.client.machine import clock
from mq.client.offsets.offset_store import Offsets as Offsets
from mq.client.offsets.starting_offset import StartingOffset
from mq.client.pull.consume_hooks import ConsumeHooks
from mq.client.pull.process_queue import ConsumeCounts, FlowLimits, ProcessQueue, is_locked
from mq.client.pull.pulling import Pulling
from mq.client.pull.subscription import Subscriptions
from mq.client.reader.assignments import Assignments
from mq.client.reader.commits import Commits
from mq.client.reader.queue_locks import RENEW_SECONDS, QueueLocks
from mq.client.reader.revoked_queues import RevokedQueues
from mq.client.reader.settings import AssignmentListener, ReaderSettings
from mq.client.snode.pushes import Pushes
from mq.client.transport.session import Session
from mq.client.transport.tasks import is_meant
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

REBALANCE_SECONDS = 20.0  # RebalanceService
REBALANCE_AGAIN_SECONDS = 1.0  # after an incomplete rebalance
# The longest pause between attempts to complete a rebalance, so that a broker that comes up is soon
# used.
LONGEST_AGAIN_SECONDS = 5.0
LOCK_CHECK_SECONDS = 1.0  # between two checks of the locks


class Reader:
    """Reads the queues that this member owns, and keeps the group's offsets."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Subscriptions,
        offsets: Offsets,
        start: StartingOffset,
        settings: ReaderSettings,
        *,
        heartbeat: Callable[[str], Awaitable[None]],
        on_ready: Callable[[ProcessQueue, list[StoredMessage]], None],
        on_failure: Callable[[BaseException], None],
        on_assigned: AssignmentListener | None = None,
        hooks: ConsumeHooks | None = None,
    ) -> None:
        """`heartbeat` sends one to a broker; `on_ready` receives pulled messages.

        `on_failure` receives an error that must end the program. `on_assigned` is called when a
        rebalance changed this member's queues of a topic. `hooks` may drop messages.
        """
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._start = start
        self._settings = settings
        self._on_failure = on_failure
        self._on_assigned = on_assigned
        #: Called when the owned queues have changed.
        self.on_change: Callable[[], None] = lambda: None
        self._announced: dict[str, set[MessageQueue]] = {}  # by `on_assigned`, by topic
        self.held: dict[MessageQueue, ProcessQueue] = {}
        self.counts: dict[str, ConsumeCounts] = defaultdict(ConsumeCounts)
        self.offsets = offsets
        self._locks = QueueLocks(session, group)
        self._assignments = Assignments(
            *(session, group, settings.strategy),
            broadcasting=settings.broadcasting,
            heartbeat=heartbeat,
        )
        pulls = settings.pulls._replace(locked=settings.locks)
        self._pulling = Pulling(
            *(session, group, subscriptions, pulls, offsets),
            heartbeat=heartbeat,
            on_ready=on_ready,
            on_moved=self._moved,
            hooks=hooks,
        )
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        who = group, settings, offsets, self._locks, self._keep
        self._revoked = RevokedQueues(*who, place=self._pulling.place)
        self._commits = Commits(*who, held=self.held, is_same=self._is_same)
        self._background: list[asyncio.Task[None]] = []
        self._queue_counts: dict[str, int] = {}  # the number of this member's queues by topic
        self._due = asyncio.Event()
        self._changing = asyncio.Lock()  # guards `held`: one rebalance, reset or stop at a time
        self._paused = False
        self._moving: dict[MessageQueue, bool] = {}  # to be taken, and whether they were paused
        self._rebalances = True
        self._is_stopped = False  # no more queues are taken
        self._assigned: set[MessageQueue] = set()  # by the user

    def start(self, *, rebalance: bool = True) -> None:
        """Start to commit, and to take the queues that the rebalance or the user assigns."""
        self._background = []
        self._rebalances = rebalance
        self._is_stopped = False
        self._session.route_changes.on_gain.append(self._gained)
        self._background.append(self._keep(self._rebalance_again()))
        self._commits.start()
        if self._settings.commits:
            self._background.append(self._keep(self._commits.run()))
        if self._settings.locks:
            self._background.append(self._keep(self._lock_again()))

    async def stop(self) -> None:
        """Stop pulling; delivered messages may still be finished. Safe to call again."""
        heard = self._session.route_changes.on_gain
        if self._gained in heard:
            heard.remove(self._gained)
        self._is_stopped = True
        self._commits.stop()
        tasks = [*self._background, *self._pulls.values()]
        self._background = []
        self._pulls = {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def release(self) -> None:
        """Commit offsets and give up every queue. Call it after `stop`.

        A lock is kept if a listener still needs it, in a thread that cannot be stopped.
        """
        async with self._changing:
            if self._settings.commits:
                unseen = [one for one in self.held.values() if one.is_unseen or one.is_absent]
                await self._session.all([self._check_before_commit(held) for held in unseen])
            await self._revoked.settle()
            await self._commits.commit_last()
            for queue, held in self.held.items():
                held.dropped = True
                self._revoked.forget_offset(queue)
            if self._settings.locks:
                idle = [queue for queue, held in self.held.items() if held.is_idle]
                await self._session.all([self._locks.release(queue) for queue in idle])
            self.held.clear()
            self._moving.clear()

    async def _check_before_commit(self, held: ProcessQueue) -> None:
        """Check, before the last commit, a queue that was not pulled recently, for instance while
        listeners finished: its topic may be missing or replaced by now.
        """
        queue = held.queue
        place = await self._pulling.place(held)
        is_same = place == held.commit_offset and not held.is_absent
        if is_same or self.held.get(queue) is not held:
            return
        if place is not None and (not self._settings.locks or is_locked(held)):
            await self._drop(queue, place)
        else:
            self._revoked.forget(self._part_with(queue))

    async def _is_same(self, held: ProcessQueue) -> bool:
        """Whether a queue that was not pulled recently is unchanged. If its topic was replaced or
        it lost its end, it restarts.
        """
        found = await self._pulling.check(held)
        if found is None:
            return False
        place, is_same = found
        if not is_same:
            self._moved(held, place)
        return is_same

    def offer(self, queue: MessageQueue, message: StoredMessage) -> bool:
        """Accept a pushed message if it is the next one of an owned queue."""
        held = self.held.get(queue)
        if held is None or held.pushes is None:
            return False
        taken = self._pulling.offer(held, message, self.counts[queue.topic])
        if taken:
            self._commits.check_soon()
        return taken

    def pull_soon(self, queue: MessageQueue) -> None:
        """Pull a queue after a pushed message that could not be decoded."""
        held = self.held.get(queue)
        if held is not None and held.pushes is not None:
            held.pushes.want_pull()

    def wake(self) -> None:
        """Rebalance now, because the group has changed."""
        self._due.set()

    def _gained(self, topic: str) -> None:
        """Rebalance after a topic got new queues."""
        if topic in self._subscriptions.data:
            self.wake()

    def pause(self, paused: bool) -> None:
        """Pause or resume all queues."""
        self._paused = paused
        for queue in [*self.held, *self._moving]:
            self.pause_queue(queue, paused)

    def pause_queue(self, queue: MessageQueue, paused: bool) -> None:
        """Pause or resume one queue. A queue that the user assigned counts as owned even if it
        cannot be taken yet.
        """
        if queue in self._moving or queue in self._assigned - self.held.keys():
            self._moving[queue] = paused
        if (held := self.held.get(queue)) is not None:
            held.paused = paused

    async def commit(self, *, again: bool = False) -> list[MQError]:
        """Commit the offset of each queue to the brokers; returns the errors.

        With `again` also offsets that the brokers confirmed before.
        """
        return await self._commits.commit(again=again)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Drop the pulled messages of these queues, commit `offsets`, and continue there."""
        async with self._changing:
            await self._move_to(offsets)
        self.wake()

    async def _move_to(self, offsets: Mapping[MessageQueue, int]) -> None:
        queues = offsets.keys() & self.held.keys()
        again = offsets.keys() & self._moving.keys() - queues
        await self._session.all([self._revoked.move(queue, offsets[queue]) for queue in again])
        self._moving |= {queue: self.held[queue].paused for queue in queues}
        await self._session.all([self._drop(queue, offsets[queue]) for queue in queues])
        if not self._rebalances:
            await self._take_all(queues & self._assigned)

    def _moved(self, held: ProcessQueue, offset: int) -> None:
        """Restart a queue whose topic was recreated, or that lost its end."""
        self._keep(self._restart(held, offset))

    async def _restart(self, held: ProcessQueue, offset: int) -> None:
        """Restart a queue at `offset`, or earlier: unfinished messages before it may still exist,
        and are pulled again.

        Nothing happens if the queue was revoked meanwhile, or moved by its user or an operator.
        """
        async with self._changing:
            if self.held.get(held.queue) is held:
                place = min(offset, held.commit_offset)
                if self._settings.commits or await self._is_committed_beyond(held.queue, place):
                    await self._move_to({held.queue: place})
                elif not self._is_stopped:
                    self._continue_at(held, place)
        self.wake()

    async def _is_committed_beyond(self, queue: MessageQueue, place: int) -> bool:
        """Whether the group would continue after `place`, or that is unknown. Without automatic
        commits the user may not have finished the messages before it, so it is committed only if
        necessary.
        """
        self._revoked.forget_offset(queue)  # it may belong to another topic
        try:
            offset = await self.offsets.committed(queue)
        except BaseException as error:  # offsets may be kept by the user's own store
            if is_meant(error):
                raise
            return True
        return offset is not None and offset > place

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` of an owned queue, dropping its pulled messages.

        Raises ClientError for a queue that is not assigned.
        """
        async with self._changing:
            former = self.held.get(queue)
            if former is None or self._is_stopped:
                raise ClientError(f"{queue} is not assigned to this consumer")
            self._continue_at(former, offset)

    def _continue_at(self, former: ProcessQueue, offset: int) -> None:
        former.dropped = True
        self._pulls.pop(former.queue).cancel()
        self._read(former.queue, offset).paused = former.paused

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Own exactly these queues: take new ones and give up the others.

        A queue whose committed offset is unavailable is taken as soon as it can be read.
        """
        async with self._changing:
            self._assigned = set(queues)
            for queue in self._moving.keys() - self._assigned:
                del self._moving[queue]  # it starts afresh if it is assigned again
            complete = await self._change(self._assigned, list(self.held))
        if not complete:
            self.wake()

    async def rebalance(self) -> bool:
        """Compute which queues this member owns, take them and give up others.

        Returns False if something could not be queried or done and must be repeated soon.
        """
        complete = True
        async with self._changing:
            if not self._rebalances:
                return await self._change(self._assigned, list(self.held))
            for topic in list(self._subscriptions.data):
                try:
                    complete &= await self._rebalance_topic(topic)
                except RouteNotFound:
                    # It may be created: brokers create the retry topic when the group first
                    # appears.
                    complete = False
                except MQError as error:
                    log.warning(
                        "group %s, topic %s: rebalance failed: %s", self._group, topic, error
                    )
                    complete = False
                except BaseException as error:  # the strategy is user code
                    if is_meant(error):
                        raise
                    log.exception("group %s, topic %s: rebalance failed", self._group, topic)
                    complete = False
        return complete

    async def _rebalance_topic(self, topic: str) -> bool:
        share = await self._assignments.of(topic)
        if share is None:
            return False
        mine = share.mine
        for queue in [one for one in self._moving if one.topic == topic and one not in mine]:
            del self._moving[queue]  # another member owns it now
        had = [queue for queue in self.held if queue.topic == topic]
        complete = await self._change(mine, had)
        if self._on_assigned is not None and self._announced.get(topic, set()) != mine:
            self._announced[topic] = mine
            try:
                self._on_assigned(topic, list(share.queues), sorted(mine))
            except BaseException as error:  # the listener is user code
                if is_meant(error):
                    raise
                log.exception("group %s: on_assigned failed", self._group)
        return complete

    async def _change(self, mine: set[MessageQueue], had: list[MessageQueue]) -> bool:
        before = self.held.keys() | set()
        counts = Counter(queue.topic for queue in mine)
        self._queue_counts.update(counts)
        await self._session.all([self._drop(queue) for queue in had if queue not in mine])
        for queue, held in self.held.items():
            if queue.topic in counts:
                held.limit(self._limits(queue))
        complete = await self._take_all(mine - self.held.keys())
        if self.held.keys() != before:
            self.on_change()
        return complete

    async def _take_all(self, queues: Iterable[MessageQueue]) -> bool:
        """Take queues concurrently; False if one of them could not be taken yet."""
        return all(await self._session.all([self._try_to_take(queue) for queue in sorted(queues)]))

    async def _try_to_take(self, queue: MessageQueue) -> bool:
        try:
            return await self._take(queue)
        except MQError as error:
            log.warning("group %s cannot take %s yet: %s", self._group, queue, error)
        except BaseException as error:  # offsets may be kept by the user's own store
            if is_meant(error):
                raise
            log.exception("group %s cannot take %s yet", self._group, queue)
        return False

    def _limits(self, queue: MessageQueue) -> FlowLimits:
        """Return the queue's part of its topic's limits (RebalancePushImpl.messageQueueChanged)."""
        return self._settings.limits.of_queue(self._queue_counts[queue.topic])

    async def _take(self, queue: MessageQueue) -> bool:
        if queue in self._revoked:
            return False  # a listener still has a message from the previous ownership
        if not self._settings.locks:
            return await self._begin(queue) is not None
        held, is_others = None, False
        asked = clock.monotonic()
        try:
            locks = await self._locks.acquire([queue])
            is_others = queue not in locks
            if not is_others and (held := await self._begin(queue)) is not None:
                held.note_lock(asked, locks[queue])
        finally:
            if held is None and not is_others:  # perhaps cancelled before the answer arrived
                self._revoked.unlock(queue)
        return held is not None  # otherwise its former owner has not finished with it

    async def _begin(self, queue: MessageQueue) -> ProcessQueue | None:
        offset = await self.offsets.committed(queue)
        if offset is None:
            offset = await self._start.find(queue)
        if self._is_stopped:  # during a reset or an assignment
            return None
        held = self._read(queue, offset)
        held.paused = self._moving.pop(queue, self._paused)
        log.info("group %s takes %s from offset %d", self._group, queue, offset)
        return held

    def _read(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        held = self.held[queue] = ProcessQueue(queue, offset, self._limits(queue))
        if self._settings.pushed:
            held.pushes = Pushes()
            held.pushes.committed = offset
        self._pulls[queue] = self._keep(self._pulling.run(held, self.counts[queue.topic]))
        return held

    async def _drop(self, queue: MessageQueue, commit_offset: int | None = None) -> None:
        if queue in self.held:  # it may have been removed meanwhile
            await self._revoked.give_up(self._part_with(queue), commit_offset)

    def _part_with(self, queue: MessageQueue) -> ProcessQueue:
        held = self.held.pop(queue)
        held.dropped = True
        task = self._pulls.pop(queue, None)
        if task is not None:
            task.cancel()
        return held

    async def _lose(self, lost: list[ProcessQueue]) -> None:
        """Give up queues that another member has or had locked: their messages are stale and must
        not be committed.
        """
        async with self._changing:
            ours = [held for held in lost if self.held.get(held.queue) is held]
            for held in ours:
                queue = held.queue
                log.warning("group %s: another member has consumed %s further", self._group, queue)
                self._part_with(queue)
                self._revoked.forget(held)
        if ours:  # the others were removed before, and a listener still processes them
            self.wake()

    async def _rebalance_again(self) -> None:
        pause = REBALANCE_AGAIN_SECONDS
        while True:
            self._due.clear()
            complete = await self.rebalance()
            seconds = REBALANCE_SECONDS if complete else pause
            pause = REBALANCE_AGAIN_SECONDS if complete else min(pause * 2, LONGEST_AGAIN_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._due.wait()

    async def _lock_again(self) -> None:
        """Renew the locks periodically, and at once those that are no longer trusted."""
        renewed = clock.monotonic()
        while True:
            await asyncio.sleep(LOCK_CHECK_SECONDS)
            due = [*self.held.values(), *self._revoked.busy]
            if clock.monotonic() - renewed < RENEW_SECONDS:
                due = [held for held in due if not is_locked(held)]
            else:
                renewed = clock.monotonic()
            try:
                if due and (lost := await self._locks.renew(due, self.offsets)):
                    await self._lose(lost)
            except Exception:
                log.exception("group %s: locks not renewed", self._group)

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._session.keep_task(coroutine)
        task.add_done_callback(self._watch)
        return task

    def _watch(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, Exception):
            log.error("group %s: a task failed", self._group, exc_info=error)
        else:
            self._on_failure(error)
