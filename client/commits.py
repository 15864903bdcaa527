"""How far the queues of a member are finished: told to the brokers, in time.

Each `Intervals.offsets` (5 s), when a queue is given up (see `leaving`), and at the end; sooner
where messages are pushed and much is finished, for a snode closes the connection of who is too far
behind with that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from mq.client.cancellation import is_meant
from mq.client.errors import ClientError, MQError
from mq.client.intervals import DEFAULT_INTERVALS
from mq.client.offsets import Offsets
from mq.client.process_queue import ProcessQueue
from mq.client.queue_locks import QueueLocks, is_locked
from mq.client.reader_settings import ReaderSettings
from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)

COMMIT_SECONDS = DEFAULT_INTERVALS.offsets
# Messages of a queue that are finished, when messages are pushed: a quarter of what a snode allows
# by default (slowConsumerThreshold).
COMMIT_AFTER = 256
COMMIT_LOOK_SECONDS = 0.1  # after a push, for that


class Commits:
    """Commits the offsets of the queues that one member holds."""

    def __init__(
        self,
        group: str,
        settings: ReaderSettings,
        offsets: Offsets,
        locks: QueueLocks,
        keep_task: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        *,
        held: Mapping[MessageQueue, ProcessQueue],
        is_same: Callable[[ProcessQueue], Awaitable[bool]],
    ) -> None:
        """`held` are the queues that are ours at any time. `is_same` looks whether one that nobody
        has pulled from for a while is what it was then."""
        self._group = group
        self._settings = settings
        self._offsets = offsets
        self._held = held
        self._locks = locks
        self._keep_task = keep_task
        self._is_same = is_same
        self._look: asyncio.TimerHandle | None = None  # whether much is finished
        self._goes_on = False

    def start(self) -> None:
        """Look again and again while pushed messages are unfinished."""
        self._goes_on = True

    def stop(self) -> None:
        """Do not look any more. Safe to call again."""
        self._goes_on = False
        if self._look is not None:
            self._look.cancel()
            self._look = None

    async def commit(self, *, again: bool = False, last: bool = False) -> list[MQError]:
        """Tell the brokers how far each queue is finished; returns what went wrong.

        With `again` also what they have confirmed before. Nothing of an ordered queue whose lock is
        not ours for certain: another member may have come further. Who cannot wait until it is
        renewed, for this is the `last` one or the user's, has it renewed. Nothing of a queue whose
        topic its broker does not have either: it would be an offset in the next one of that name.
        Nor of a paused one that turns out to be another by now, or cannot be looked at; of one that
        is full only what is new: its topic may have been made again, too.
        """
        ours, lapsed, absent = self._sorted()
        if lapsed and (again or last):
            await self._locks.renew(lapsed, self._offsets)
            ours, lapsed, absent = self._sorted()
        unseen = [held for held in ours if held.is_unseen and not held.may_take]
        news = [held for held in unseen if again or held.told != held.commit_offset]
        others = await self._others([held for held in news if held.paused])
        ours, lapsed, absent = self._sorted()
        left_out = others.union(set(unseen).difference(news))
        told = {held: held.commit_offset for held in ours if held not in left_out}
        for held, offset in told.items():
            self._offsets.update(held.queue, offset)
        errors = await self._offsets.commit([held.queue for held in told], again=again)
        if not errors:
            for held, offset in told.items():
                held.told = offset
        if again or last:
            lapse = "{}: its lock has lapsed and cannot be renewed now"
            errors += [ClientError(lapse.format(held.queue)) for held in lapsed]
            absence = "{}: its broker has no such topic now"
            errors += [ClientError(absence.format(held.queue)) for held in absent]
            other = "{}: its broker does not say that it has the same topic still"
            errors += [ClientError(other.format(held.queue)) for held in others]
        return errors

    async def _others(self, unseen: list[ProcessQueue]) -> set[ProcessQueue]:
        """Those that are others by now, or may be."""
        answers = await asyncio.gather(*map(self._is_same, unseen))
        return {held for held, is_same in zip(unseen, answers, strict=True) if not is_same}

    def _sorted(self) -> tuple[list[ProcessQueue], list[ProcessQueue], list[ProcessQueue]]:
        """The queues that are ours for certain, the others, and those whose topic is absent."""
        sure: list[ProcessQueue] = []
        lapsed: list[ProcessQueue] = []
        absent: list[ProcessQueue] = []
        for held in self._held.values():
            is_sure = not self._settings.locks or is_locked(held)
            (absent if held.is_absent else sure if is_sure else lapsed).append(held)
        return sure, lapsed, absent

    async def run(self) -> None:
        """Commit now and then, for ever."""
        while True:
            await asyncio.sleep(self._settings.commit_interval or COMMIT_SECONDS)
            try:
                for error in await self.commit():
                    log.warning("group %s: offset not committed: %s", self._group, error)
            except BaseException as error:
                if is_meant(error):
                    raise
                log.exception("group %s: offsets not committed", self._group)

    async def commit_last(self) -> None:
        """Commit before the member leaves: what fails is told, and nobody can do more about it."""
        try:
            for error in await self.commit(last=True) if self._settings.commits else ():
                log.warning("group %s leaves without an offset: %s", self._group, error)
        except BaseException as error:  # offsets may be kept by the user's own store
            if is_meant(error):
                raise
            log.exception("group %s leaves without its offsets", self._group)

    def look_soon(self) -> None:
        """A message was pushed: when it is finished, so may be much."""
        if self._look is None and self._settings.commits:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(COMMIT_LOOK_SECONDS, self._commit_much)

    def _commit_much(self) -> None:
        """Commit the offsets of queues of which much is finished; as in `commit`, not of an
        ordered one whose lock is not ours for certain."""
        self._look = None
        ours, *_ = self._sorted()
        pushed = [held for held in ours if held.pushes is not None]
        queues = []
        for held in pushed:
            assert held.pushes is not None
            offset = held.commit_offset
            if offset - held.pushes.committed >= COMMIT_AFTER:
                held.pushes.committed = offset
                self._offsets.update(held.queue, offset)
                queues.append(held.queue)
        if queues:
            self._keep_task(self._commit_now(queues))
        unfinished = any(held.count for held in self._held.values() if held.pushes is not None)
        if self._goes_on and unfinished:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(COMMIT_LOOK_SECONDS, self._commit_much)

    async def _commit_now(self, queues: list[MessageQueue]) -> None:
        for error in await self._offsets.commit(queues):
            log.debug("group %s: offset not committed yet: %s", self._group, error)
