"""Commits how far the queues of a member are consumed.

Offsets are committed every `Intervals.offsets` (5 s), when a queue is revoked (see
`revoked_queues`), and at the end. When messages are pushed, they are committed earlier if many are
finished, because a snode closes the connection of a consumer whose committed offset lags too far.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from mq.client.errors import ClientError, MQError
from mq.client.offsets.offset_store import Offsets, OffsetStore
from mq.client.options import DEFAULT_INTERVALS
from mq.client.pull.process_queue import ProcessQueue, is_locked
from mq.client.reader.queue_locks import QueueLocks
from mq.client.reader.settings import ReaderSettings
from mq.client.transport.tasks import is_meant
from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)

COMMIT_SECONDS = DEFAULT_INTERVALS.offsets
# Finished messages of a queue that trigger a commit when messages are pushed: a quarter of what a
# snode allows by default (slowConsumerThreshold).
COMMIT_AFTER = 256
COMMIT_CHECK_SECONDS = 0.1  # from a push to the check for COMMIT_AFTER


class Commits:
    """Commits the offsets of the queues that one member owns."""

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
        """`held` maps the queues that the member owns at any time. `is_same` checks whether a queue
        that was not pulled from recently still belongs to the same topic.
        """
        self._group = group
        self._settings = settings
        self._offsets = offsets
        self._held = held
        self._locks = locks
        self._keep_task = keep_task
        self._is_same = is_same
        self._check: asyncio.TimerHandle | None = None  # checks for COMMIT_AFTER
        self._is_running = False

    def start(self) -> None:
        """Check repeatedly while pushed messages are unfinished."""
        self._is_running = True

    def stop(self) -> None:
        """Stop checking. Safe to call more than once."""
        self._is_running = False
        if self._check is not None:
            self._check.cancel()
            self._check = None

    async def commit(self, *, again: bool = False, last: bool = False) -> list[MQError]:
        """Commit the offset of each queue to the brokers; returns the errors.

        With `again`, offsets that were confirmed before are committed once more. These queues are
        skipped:

        - An ordered queue whose lock may have lapsed: another member may have consumed further.
          With `again` or `last` the lock is renewed first, because the caller cannot wait until
          it is renewed by itself.
        - A queue whose broker does not have the topic: the offset would apply to the next topic of
          that name.
        - A paused queue that turns out to belong to a recreated topic, or that cannot be checked.
        - A full queue, unless its offset has changed: its topic may have been recreated, too.
        """
        ours, lapsed, absent = self._sorted()
        if lapsed and (again or last):
            await self._locks.renew(lapsed, self._offsets)
            ours, lapsed, absent = self._sorted()
        unseen = [held for held in ours if held.is_unseen and not held.may_take]
        news = [held for held in unseen if again or held.committed != held.commit_offset]
        replaced = await self._replaced([held for held in news if held.paused])
        ours, lapsed, absent = self._sorted()
        skipped = replaced.union(set(unseen).difference(news))
        offsets = {held: held.commit_offset for held in ours if held not in skipped}
        for held, offset in offsets.items():
            self._offsets.update(held.queue, offset)
        errors = await self._offsets.commit([held.queue for held in offsets], again=again)
        for held, offset in offsets.items():
            if self._is_confirmed(held.queue, offset, errors):
                held.committed = offset
        if again or last:
            lapse = "{}: its lock has lapsed and cannot be renewed now"
            errors += [ClientError(lapse.format(held.queue)) for held in lapsed]
            absence = "{}: its broker has no such topic now"
            errors += [ClientError(absence.format(held.queue)) for held in absent]
            other = "{}: its broker does not confirm that the topic is still the same"
            errors += [ClientError(other.format(held.queue)) for held in replaced]
        return errors

    def _is_confirmed(self, queue: MessageQueue, offset: int, errors: list[MQError]) -> bool:
        # One broker's error does not affect the others.
        if isinstance(self._offsets, OffsetStore):
            return self._offsets.is_confirmed(queue, offset)
        return not errors

    async def _replaced(self, unseen: list[ProcessQueue]) -> set[ProcessQueue]:
        """Return the queues that belong, or may belong, to a recreated topic."""
        answers = await asyncio.gather(*map(self._is_same, unseen))
        return {held for held, is_same in zip(unseen, answers, strict=True) if not is_same}

    def _sorted(self) -> tuple[list[ProcessQueue], list[ProcessQueue], list[ProcessQueue]]:
        """Return the queues that are owned for certain, those with a lapsed lock, and those without
        a topic.
        """
        sure: list[ProcessQueue] = []
        lapsed: list[ProcessQueue] = []
        absent: list[ProcessQueue] = []
        for held in self._held.values():
            is_sure = not self._settings.locks or is_locked(held)
            (absent if held.is_absent else sure if is_sure else lapsed).append(held)
        return sure, lapsed, absent

    async def run(self) -> None:
        """Commit periodically until cancelled."""
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
        """Commit before the member leaves the group. Failures are logged."""
        try:
            for error in await self.commit(last=True) if self._settings.commits else ():
                log.warning("group %s leaves without an offset: %s", self._group, error)
        except BaseException as error:  # offsets may be kept by the user's own store
            if is_meant(error):
                raise
            log.exception("group %s leaves without its offsets", self._group)

    def check_soon(self) -> None:
        """Schedule a check for COMMIT_AFTER after a pushed message."""
        if self._check is None and self._settings.commits:
            loop = asyncio.get_running_loop()
            self._check = loop.call_later(COMMIT_CHECK_SECONDS, self._commit_much)

    def _commit_much(self) -> None:
        """Commit the offsets of queues with many finished messages.

        As in `commit`, an ordered queue whose lock may have lapsed is skipped.
        """
        self._check = None
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
        if self._is_running and unfinished:
            loop = asyncio.get_running_loop()
            self._check = loop.call_later(COMMIT_CHECK_SECONDS, self._commit_much)

    async def _commit_now(self, queues: list[MessageQueue]) -> None:
        for error in await self._offsets.commit(queues):
            log.debug("group %s: offset not committed yet: %s", self._group, error)
