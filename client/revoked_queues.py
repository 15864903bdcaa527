"""Queues that a member gives up: consumed to the end, committed and unlocked, then another's.

An ordered queue that is given up while the listener has one of its messages stays here until the
listener is done: its lock is renewed meanwhile, so nobody else begins, and we do not begin again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mq.client.cancellation import is_meant
from mq.client.errors import RouteNotFound
from mq.client.machine import clock
from mq.client.offsets import Offsets
from mq.client.process_queue import ProcessQueue
from mq.client.queue_locks import QueueLocks, is_locked
from mq.client.reader_settings import ReaderSettings
from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)

HAND_OVER_SECONDS = 5.0  # how long a rebalance waits for the message that is being consumed
# How long it is tried to tell a broker of an offset to which a queue is moved, and the pauses.
MOVE_SECONDS = 60.0
MOVE_AGAIN_SECONDS = 1.0


class RevokedQueues:
    """The queues that one member is giving up."""

    def __init__(
        self,
        group: str,
        settings: ReaderSettings,
        offsets: Offsets,
        locks: QueueLocks,
        keep_task: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        *,
        place: Callable[[ProcessQueue], Awaitable[int | None]],
    ) -> None:
        """`place` asks how far a queue is that nobody has pulled from for a while: its topic may be
        another one by then."""
        self._group = group
        self._settings = settings
        self._offsets = offsets
        self._locks = locks
        self._keep_task = keep_task
        self._place = place
        self._ending: dict[MessageQueue, tuple[ProcessQueue, asyncio.Task[None]]] = {}
        self._moves: dict[MessageQueue, int] = {}  # to where, of those whose broker is to be told

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._ending

    @property
    def busy(self) -> list[ProcessQueue]:
        """Those that a listener still has a message of; the others are about to be unlocked."""
        return [held for held, _ in self._ending.values() if not held.is_idle]

    async def give_up(self, held: ProcessQueue, commit_offset: int | None = None) -> None:
        """Let go of a queue that was dropped; waits for that, but not for long.

        `commit_offset` is committed whoever has come how far, else how far we have come unless its
        lock is not ours any more, or its broker has no such topic.
        """
        if commit_offset is not None:
            self._moves[held.queue] = commit_offset
        task = self._keep_task(self._let_go(held, commit_offset))
        self._ending[held.queue] = held, task
        await asyncio.wait([task], timeout=HAND_OVER_SECONDS)

    async def move(self, queue: MessageQueue, offset: int) -> None:
        """Have a queue go on elsewhere that was moved, and is not read again yet."""
        if queue in self._moves:
            self._moves[queue] = offset
            return
        if queue in self._ending:  # its broker was told of the former place just now
            await asyncio.wait([self._ending[queue][1]], timeout=HAND_OVER_SECONDS)
        await self.give_up(ProcessQueue(queue, offset), offset)

    def forget(self, held: ProcessQueue) -> None:
        """Let go of a queue that another member has locked: nothing of it is ours to commit, from
        now on."""
        self._ending[held.queue] = held, self._keep_task(self._until_idle(held))
        self.forget_offset(held.queue)

    def forget_offset(self, queue: MessageQueue) -> None:
        """What was told of a queue is not so any more when it is read the next time."""
        try:
            self._offsets.forget(queue)
        except Exception:  # of a store of the user's own
            log.exception("group %s: %s is given up", self._group, queue)

    def unlock(self, queue: MessageQueue) -> None:
        """Let go of a queue that may have been locked, and was not taken then: its broker would
        keep it from others for a minute."""
        held = ProcessQueue(queue, 0)  # in which nobody is
        self._ending[queue] = held, self._keep_task(self._until_idle(held))

    async def settle(self) -> None:
        """Wait, but not for long, for those that no listener has a message of."""
        ending = [task for held, task in self._ending.values() if held.is_idle]
        if ending:
            await asyncio.wait(ending, timeout=HAND_OVER_SECONDS)

    async def _until_idle(self, held: ProcessQueue) -> None:
        try:
            await held.idle()
            if self._settings.locks:  # it may have come back to us, too late
                await self._locks.release(held.queue)
        finally:
            self._ending.pop(held.queue, None)

    async def _let_go(self, held: ProcessQueue, commit_offset: int | None) -> None:
        queue = held.queue
        try:
            has_waited = self._settings.ordered and not held.is_idle
            if has_waited:
                await held.idle()
            if self._settings.locks and not is_locked(held):
                await self._locks.renew([held], self._offsets)
            offset = commit_offset
            if offset is None:
                offset = await self._offset(held, has_waited or held.is_unseen)
            if offset is not None:
                await self._commit(queue, offset, is_moved=commit_offset is not None)
            self._moves.pop(queue, None)
            self._offsets.forget(queue)
            if self._settings.locks:
                await self._locks.release(queue)
            offset = held.commit_offset if offset is None else offset
            log.info("group %s gives up %s at offset %d", self._group, queue, offset)
        except BaseException as error:
            if is_meant(error):
                raise
            log.exception("group %s: %s is given up", self._group, queue)
        finally:
            self._moves.pop(queue, None)
            self._ending.pop(queue, None)

    async def _commit(self, queue: MessageQueue, offset: int, *, is_moved: bool) -> None:
        """Commit an offset; one to which a queue `is_moved` also again and again, for a while: who
        takes the queue next would go on at the former one. It may be moved once more meanwhile."""
        until = clock.monotonic() + MOVE_SECONDS
        while True:
            offset = self._moves.get(queue, offset)
            self._offsets.update(queue, offset)
            errors = await self._offsets.commit([queue], again=is_moved)
            if not errors:
                if self._moves.get(queue, offset) == offset:
                    return
                continue
            is_away = errors[0].retriable or isinstance(errors[0], RouteNotFound)  # for a moment
            goes_on = is_moved and is_away and clock.monotonic() < until
            what = "tries again to move" if goes_on else "gives up"
            log.warning("group %s %s %s without its offset: %s",
                        self._group, what, queue, errors[0])  # fmt: skip
            if not goes_on:
                return
            await asyncio.sleep(MOVE_AGAIN_SECONDS)

    async def _offset(self, held: ProcessQueue, looks: bool) -> int | None:
        """What to commit of a queue that is given up; None where nothing is ours to commit."""
        if not self._settings.commits:
            return None
        # The next topic of that name has offsets of its own.
        looks = looks or held.is_absent
        offset = await self._place(held) if looks else held.commit_offset
        # Refused or lapsed meanwhile: whoever has the lock may have come further.
        return None if self._settings.locks and not is_locked(held) else offset
