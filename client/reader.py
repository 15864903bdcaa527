"""The reading half of a group's member: which queues are ours, what is pulled, what is committed.

How the parts work together. Rebalancing (every 20 s, at the start, and when a broker says that the
group has changed) works out which queues are ours; or a user assigns them. Each of them has a task
that pulls as long as its ProcessQueue has room, and gives the messages to `on_ready`. Whoever
consumes one calls `ProcessQueue.finish` when it is done with it, which moves the offset to commit.
Offsets are committed now and then (see `commits`), when a queue is given up, and at the end.

Invariants:
- a queue in `held` is ours and has exactly one pulling task;
- a dropped ProcessQueue is in `held` no more, and is committed once more at most;
- no offset past an unfinished message is ever committed;
- an ordered queue is pulled and consumed only while a lock on it, younger than a broker keeps it,
  is ours;
- one whose lock another member has got is taken anew from the committed offset, or not at all;
- one whose topic its broker does not have is kept, and nothing of it is committed, until that is
  there again; where it is another one of that name it is taken anew from its beginning;
- a queue that is still being given up (see `leaving`) is not taken again.
"""

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from mq.client.assignments import Assignments
from mq.client.cancellation import is_meant
from mq.client.commits import Commits
from mq.client.errors import ClientError, MQError, RouteNotFound
from mq.client.hook_calls import ConsumeHooks
from mq.client.machine import clock
from mq.client.offsets import Offsets as Offsets
from mq.client.process_queue import FlowLimits, ProcessQueue
from mq.client.pulling import Pulling
from mq.client.queue_locks import RENEW_SECONDS, QueueLocks, is_locked
from mq.client.reader_settings import AssignmentListener, ReaderSettings
from mq.client.revoked_queues import RevokedQueues
from mq.client.running_info import ConsumeCounts
from mq.client.session import Session
from mq.client.snode.pushes import Pushes
from mq.client.starting_offset import StartingOffset
from mq.client.subscription import Subscriptions
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

REBALANCE_SECONDS = 20.0  # RebalanceService
REBALANCE_AGAIN_SECONDS = 1.0  # after one that could not be completed
# Between two tries of what cannot be completed: at most, so that what has come up is soon used.
LONGEST_AGAIN_SECONDS = 5.0
LOCK_LOOK_SECONDS = 1.0  # between two looks whether the locks still count


class Reader:
    """Reads the queues that are this member's, and keeps the group's offsets."""

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
        """`heartbeat` sends one to a broker; `on_ready` gets what is pulled.

        `on_failure` gets what ends the whole program, raised in a task. `on_assigned` hears when a
        rebalance has given us other queues of a topic than before. `hooks` may sort out.
        """
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._start = start
        self._settings = settings
        self._on_failure = on_failure
        self._on_assigned = on_assigned
        #: Called when other queues are ours than before.
        self.on_change: Callable[[], None] = lambda: None
        self._announced: dict[str, set[MessageQueue]] = {}  # by `on_assigned`, by topic
        self.held: dict[MessageQueue, ProcessQueue] = {}
        self.counts: dict[str, ConsumeCounts] = defaultdict(ConsumeCounts)
        self.offsets = offsets
        self._locks = QueueLocks(session, group)
        self._shares = Assignments(
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
        self._leaving = RevokedQueues(*who, place=self._pulling.place)
        self._commits = Commits(*who, held=self.held, is_same=self._is_same)
        self._background: list[asyncio.Task[None]] = []
        self._queue_counts: dict[str, int] = {}  # how many queues of a topic are to be ours
        self._due = asyncio.Event()
        self._changing = asyncio.Lock()  # one change of `held` at a time: rebalance, reset or stop
        self._paused = False
        self._moving: dict[MessageQueue, bool] = {}  # to be taken yet, and whether paused then
        self._rebalances = True
        self._is_stopped = False  # no queue is taken any more
        self._assigned: set[MessageQueue] = set()  # by hand

    def start(self, *, rebalance: bool = True) -> None:
        """Begin to commit, and to take queues: our share, or those that are assigned by hand."""
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
        """Stop pulling; what has been handed out may still be finished. Safe to call again."""
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
        """Commit how far we have come and give up every queue. After `stop`.

        A lock stays that a listener still needs, being in a thread that nobody can stop.
        """
        async with self._changing:
            if self._settings.commits:
                unseen = [one for one in self.held.values() if one.is_unseen or one.is_absent]
                await self._session.all([self._look_at(held) for held in unseen])
            await self._leaving.settle()
            await self._commits.commit_last()
            for queue, held in self.held.items():
                held.dropped = True
                self._leaving.forget_offset(queue)
            if self._settings.locks:
                idle = [queue for queue, held in self.held.items() if held.is_idle]
                await self._session.all([self._locks.release(queue) for queue in idle])
            self.held.clear()
            self._moving.clear()

    async def _look_at(self, held: ProcessQueue) -> None:
        """Before the last commit, where nobody has pulled for a while, as listeners were waited
        for, say: a topic may be absent by now, or another one."""
        queue = held.queue
        place = await self._pulling.place(held)
        is_same = place == held.commit_offset and not held.is_absent
        if is_same or self.held.get(queue) is not held:
            return
        if place is not None and (not self._settings.locks or is_locked(held)):
            await self._drop(queue, place)
        else:
            self._leaving.forget(self._part_with(queue))

    async def _is_same(self, held: ProcessQueue) -> bool:
        """Whether a queue that nobody has pulled from for a while is what it was; one that is
        another by now, or has lost its end, begins anew."""
        found = await self._pulling.look(held)
        if found is None:
            return False
        place, is_same = found
        if not is_same:
            self._moved(held, place)
        return is_same

    def offer(self, queue: MessageQueue, message: StoredMessage) -> bool:
        """Take a message that was pushed, if it is the next one of a queue of ours."""
        held = self.held.get(queue)
        if held is None or held.pushes is None:
            return False
        taken = self._pulling.offer(held, message, self.counts[queue.topic])
        if taken:
            self._commits.look_soon()
        return taken

    def left_out(self, queue: MessageQueue) -> None:
        """Something was pushed to a queue that cannot be read: it is to be pulled."""
        held = self.held.get(queue)
        if held is not None and held.pushes is not None:
            held.pushes.want_pull()

    def wake(self) -> None:
        """The group has changed: rebalance now."""
        self._due.set()

    def _gained(self, topic: str) -> None:
        """There are queues which there were not before: somebody has to read them."""
        if topic in self._subscriptions.data:
            self.wake()

    def pause(self, paused: bool) -> None:
        """Pull nothing any more, of no queue; or go on."""
        self._paused = paused
        for queue in [*self.held, *self._moving]:
            self.pause_queue(queue, paused)

    def pause_queue(self, queue: MessageQueue, paused: bool) -> None:
        """Pull nothing of a queue that is ours any more, or go on. One that is assigned by hand is
        ours also while it cannot be taken yet."""
        if queue in self._moving or queue in self._assigned - self.held.keys():
            self._moving[queue] = paused
        if (held := self.held.get(queue)) is not None:
            held.paused = paused

    async def commit(self, *, again: bool = False) -> list[MQError]:
        """Tell the brokers how far each queue is finished; returns what went wrong.

        With `again` also what they have confirmed before.
        """
        return await self._commits.commit(again=again)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere: what is held of these queues is dropped, `offsets` are committed."""
        async with self._changing:
            await self._go_on_at(offsets)
        self.wake()

    async def _go_on_at(self, offsets: Mapping[MessageQueue, int]) -> None:
        queues = offsets.keys() & self.held.keys()
        again = offsets.keys() & self._moving.keys() - queues
        await self._session.all([self._leaving.move(queue, offsets[queue]) for queue in again])
        self._moving |= {queue: self.held[queue].paused for queue in queues}
        await self._session.all([self._drop(queue, offsets[queue]) for queue in queues])
        if not self._rebalances:
            await self._take_all(queues & self._assigned)

    def _moved(self, held: ProcessQueue, offset: int) -> None:
        """Begin anew with a queue that was made anew, or has lost its end."""
        self._keep(self._begin_anew(held, offset))

    async def _begin_anew(self, held: ProcessQueue, offset: int) -> None:
        """What is held and not finished may be there still, below `offset`: it is pulled again.

        Not so where it was given up by now, or its user has put it elsewhere, or an operator.
        """
        async with self._changing:
            if self.held.get(held.queue) is held:
                place = min(offset, held.commit_offset)
                if self._settings.commits or await self._is_committed_beyond(held.queue, place):
                    await self._go_on_at({held.queue: place})
                elif not self._is_stopped:
                    self._put(held, place)
        self.wake()

    async def _is_committed_beyond(self, queue: MessageQueue, place: int) -> bool:
        """Whether the group would go on behind a place, or that cannot be said. Who commits by
        himself may not be done with what lies before it: it is committed only where it has to."""
        self._leaving.forget_offset(queue)  # it may have been told of another topic
        try:
            offset = await self.offsets.committed(queue)
        except BaseException as error:  # offsets may be kept by the user's own store
            if is_meant(error):
                raise
            return True
        return offset is not None and offset > place

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` of a queue that is ours; what is held of it is dropped.

        Raises ClientError for a queue that is not ours.
        """
        async with self._changing:
            former = self.held.get(queue)
            if former is None or self._is_stopped:
                raise ClientError(f"{queue} is not assigned to this consumer")
            self._put(former, offset)

    def _put(self, former: ProcessQueue, offset: int) -> None:
        former.dropped = True
        self._pulls.pop(former.queue).cancel()
        self._read(former.queue, offset).paused = former.paused

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Have exactly these queues: take those that are new and give up the others.

        One whose offset cannot be asked for is taken as soon as it can.
        """
        async with self._changing:
            self._assigned = set(queues)
            for queue in self._moving.keys() - self._assigned:
                del self._moving[queue]  # it is taken afresh if it is assigned again
            complete = await self._change(self._assigned, list(self.held))
        if not complete:
            self.wake()

    async def rebalance(self) -> bool:
        """Work out which queues are ours, take them and give up others.

        Returns False when something could not be asked or done, so that it must be done again soon.
        """
        complete = True
        async with self._changing:
            if not self._rebalances:
                return await self._change(self._assigned, list(self.held))
            for topic in list(self._subscriptions.data):
                try:
                    complete &= await self._rebalance_topic(topic)
                except RouteNotFound:
                    # It may come: the retry topic is made when a broker first hears of the group.
                    complete = False
                except MQError as error:
                    log.warning("group %s, topic %s: no rebalance: %s", self._group, topic, error)
                    complete = False
                except BaseException as error:  # the strategy is the user's
                    if is_meant(error):
                        raise
                    log.exception("group %s, topic %s: no rebalance", self._group, topic)
                    complete = False
        return complete

    async def _rebalance_topic(self, topic: str) -> bool:
        share = await self._shares.of(topic)
        if share is None:
            return False
        mine = share.mine
        for queue in [one for one in self._moving if one.topic == topic and one not in mine]:
            del self._moving[queue]  # it is another member's now
        had = [queue for queue in self.held if queue.topic == topic]
        complete = await self._change(mine, had)
        if self._on_assigned is not None and self._announced.get(topic, set()) != mine:
            self._announced[topic] = mine
            try:
                self._on_assigned(topic, list(share.queues), sorted(mine))
            except BaseException as error:  # it is the user's
                if is_meant(error):
                    raise
                log.exception("group %s: the listener to assignments", self._group)
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
        """Take queues side by side; False when one of them could not be taken (yet)."""
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
        """The queue's part of its topic's limits (RebalancePushImpl.messageQueueChanged)."""
        return self._settings.limits.of_queue(self._queue_counts[queue.topic])

    async def _take(self, queue: MessageQueue) -> bool:
        if queue in self._leaving:
            return False  # the listener still has a message of the time when it was ours before
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
            if held is None and not is_others:  # cancelled before the answer came, perhaps
                self._leaving.unlock(queue)
        return held is not None  # else its former owner has not finished with it

    async def _begin(self, queue: MessageQueue) -> ProcessQueue | None:
        offset = await self.offsets.committed(queue)
        if offset is None:
            offset = await self._start.find(queue)
        if self._is_stopped:  # while a reset, or an assignment, was under way
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
        if queue in self.held:  # it may be gone meanwhile
            await self._leaving.give_up(self._part_with(queue), commit_offset)

    def _part_with(self, queue: MessageQueue) -> ProcessQueue:
        held = self.held.pop(queue)
        held.dropped = True
        task = self._pulls.pop(queue, None)
        if task is not None:
            task.cancel()
        return held

    async def _lose(self, lost: list[ProcessQueue]) -> None:
        """Others have or had locked these: what we hold of them is old, and not ours to commit."""
        async with self._changing:
            ours = [held for held in lost if self.held.get(held.queue) is held]
            for held in ours:
                queue = held.queue
                log.warning("group %s: another member has gone on with %s", self._group, queue)
                self._part_with(queue)
                self._leaving.forget(held)
        if ours:  # the others were parted with before, and a listener is inside them still
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
        """Renew the locks now and then, and at once those that do not count any more."""
        renewed = clock.monotonic()
        while True:
            await asyncio.sleep(LOCK_LOOK_SECONDS)
            due = [*self.held.values(), *self._leaving.busy]
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
