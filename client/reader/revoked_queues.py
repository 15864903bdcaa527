"""Queues that a member gives up: it finishes their messages, commits, and unlocks them.

An ordered queue that is revoked while the listener processes one of its messages stays here until
the listener is done. Its lock is renewed meanwhile, so that no other member takes the queue, and
this member does not take it again either.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mq.client.errors import RouteNotFound
from mq.client.machine import clock
from mq.client.offsets.offset_store import Offsets
from mq.client.pull.process_queue import ProcessQueue, is_locked
from mq.client.reader.queue_locks import QueueLocks
from mq.client.reader.settings import ReaderSettings
from mq.client.transport.tasks import is_meant
from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)

HAND_OVER_SECONDS = 5.0  # how long a rebalance waits for the message that is being consumed
# How long the commit of a moved queue's new offset is retried, and the pause between attempts.
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
        """`place` returns the offset to commit for a queue that was not pulled recently, whose
        topic may have been replaced.
        """
        self._group = group
        self._settings = settings
        self._offsets = offsets
        self._locks = locks
        self._keep_task = keep_task
        self._place = place
        self._ending: dict[MessageQueue, tuple[ProcessQueue, asyncio.Task[None]]] = {}
        # new offsets of moved queues that are not committed yet
        self._moves: dict[MessageQueue, int] = {}

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._ending

    @property
    def busy(self) -> list[ProcessQueue]:
        """Queues with a message inside a listener; the others are about to be unlocked."""
        return [held for held, _ in self._ending.values() if not held.is_idle]

    async def give_up(self, held: ProcessQueue, commit_offset: int | None = None) -> None:
        """Give up a dropped queue; waits for completion, but only for a short time.

        `commit_offset` is committed in any case. Without it the consumed offset is committed,
        unless the lock was lost or the broker does not have the topic.
        """
        if commit_offset is not None:
            self._moves[held.queue] = commit_offset
        task = self._keep_task(self._revoke(held, commit_offset))
        self._ending[held.queue] = held, task
        await asyncio.wait([task], timeout=HAND_OVER_SECONDS)

    async def move(self, queue: MessageQueue, offset: int) -> None:
        """Move a queue that is not read again yet to `offset`."""
        if queue in self._moves:
            self._moves[queue] = offset
            return
        if queue in self._ending:  # the former offset may be committed at this moment
            await asyncio.wait([self._ending[queue][1]], timeout=HAND_OVER_SECONDS)
        await self.give_up(ProcessQueue(queue, offset), offset)

    def forget(self, held: ProcessQueue) -> None:
        """Give up a queue that another member has locked; nothing of it is committed."""
        self._ending[held.queue] = held, self._keep_task(self._until_idle(held))
        self.forget_offset(held.queue)

    def forget_offset(self, queue: MessageQueue) -> None:
        """Forget the recorded offset of a queue, which is invalid when the queue is read again."""
        try:
            self._offsets.forget(queue)
        except Exception:  # from the user's own store
            log.exception("group %s: %s is given up", self._group, queue)

    def unlock(self, queue: MessageQueue) -> None:
        """Unlock a queue that may have been locked but was not taken: its broker would refuse it to
        other members for a minute.
        """
        held = ProcessQueue(queue, 0)  # idle
        self._ending[queue] = held, self._keep_task(self._until_idle(held))

    async def settle(self) -> None:
        """Wait a short time for the queues without a message inside a listener."""
        ending = [task for held, task in self._ending.values() if held.is_idle]
        if ending:
            await asyncio.wait(ending, timeout=HAND_OVER_SECONDS)

    async def _until_idle(self, held: ProcessQueue) -> None:
        try:
            await held.idle()
            if self._settings.locks:  # a late answer may have locked it again
                await self._locks.release(held.queue)
        finally:
            self._ending.pop(held.queue, None)

    async def _revoke(self, held: ProcessQueue, commit_offset: int | None) -> None:
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
        """Commit an offset. For a moved queue, retry for a while, because the next owner would
        otherwise continue at the former offset. The queue may be moved again meanwhile.
        """
        until = clock.monotonic() + MOVE_SECONDS
        while True:
            offset = self._moves.get(queue, offset)
            self._offsets.update(queue, offset)
            errors = await self._offsets.commit([queue], again=is_moved)
            if not errors:
                if self._moves.get(queue, offset) == offset:
                    return
                continue
            # a temporary failure
            is_away = errors[0].retriable or isinstance(errors[0], RouteNotFound)
            retries = is_moved and is_away and clock.monotonic() < until
            what = "retries moving" if retries else "gives up"
            log.warning("group %s %s %s; offset not committed: %s",
                        self._group, what, queue, errors[0])  # fmt: skip
            if not retries:
                return
            await asyncio.sleep(MOVE_AGAIN_SECONDS)

    async def _offset(self, held: ProcessQueue, looks: bool) -> int | None:
        """Return the offset to commit for a revoked queue; None if nothing may be committed."""
        if not self._settings.commits:
            return None
        # The next topic of that name has offsets of its own.
        looks = looks or held.is_absent
        offset = await self._place(held) if looks else held.commit_offset
        # If the lock was refused or lapsed meanwhile, another member may have consumed further.
        return None if self._settings.locks and not is_locked(held) else offset
