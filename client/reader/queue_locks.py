"""Locks on queues at their brokers, with which the members of a group consume a queue in order.

A broker keeps the locks in memory. After a restart it has none, and grants them to the first member
that asks. So a lock is trusted only while the connection over which it was acquired or renewed is
open; after that it must be renewed over another connection.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

from mq.client.admin.groups import GroupAdmin
from mq.client.errors import MQError
from mq.client.machine import clock
from mq.client.offsets.offset_store import Offsets
from mq.client.pull.process_queue import ProcessQueue, is_locked
from mq.client.transport.session import Session
from mq.client.transport.tasks import is_meant
from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)

#: Completes when the connection over which a lock was acquired ends.
Ended = asyncio.Future[None]

RENEW_SECONDS = 20.0  # ProcessQueue.REBALANCE_LOCK_INTERVAL


class QueueLocks:
    """The locks of one member of a group."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._groups = GroupAdmin(session)

    async def acquire(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Ended]:
        """Lock queues, or renew their locks; returns those that are locked for this member."""
        answers = await self._acquire_all(queues)
        return {queue: ended for queue, ended in answers.items() if ended is not None}

    async def _acquire_all(
        self, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, Ended | None]:
        """Return the lock result of each queue, without queues whose broker did not answer."""
        asked = list(queues)
        addresses = await self._session.all([self._master(queue) for queue in asked])
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue, address in zip(asked, addresses, strict=True):
            if address is not None:
                by_broker[address].append(queue)
        parts = await self._session.all(
            [self._acquire(address, part) for address, part in by_broker.items()]
        )
        return {queue: ended for part in parts for queue, ended in part.items()}

    async def _master(self, queue: MessageQueue) -> str | None:
        try:
            return await self._session.master_address(queue.topic, queue.broker_name)
        except MQError:
            return None

    async def _acquire(
        self, address: str, queues: list[MessageQueue]
    ) -> dict[MessageQueue, Ended | None]:
        try:
            ours = await self._groups.lock_queues(
                address, self._group, self._session.client_id, queues
            )
        except MQError as error:
            log.warning("group %s: queues not locked: %s", self._group, error)
            return {}
        ended = self._session.ended(address)
        return {queue: ended if queue in ours else None for queue in queues}

    async def renew(self, all_held: Iterable[ProcessQueue], offsets: Offsets) -> list[ProcessQueue]:
        """Renew the locks of owned queues; returns the queues that another member has locked, or
        has consumed further.

        If a lapsed lock is granted again, `offsets` are checked for another member's progress in
        the meantime. If they are unavailable, the lock stays lapsed and is renewed later. If a
        broker does not answer, its locks count as ours until they are too old to be trusted
        (RebalanceImpl.lockAll).
        """
        held_of = {held.queue: held for held in all_held}
        asked = clock.monotonic()
        lost, lapsed = [], []
        for queue, ended in (await self._acquire_all(held_of)).items():
            held = held_of[queue]
            if ended is None:
                held.locked = False
                lost.append(held)
            elif is_locked(held):
                held.note_lock(asked, ended)
            else:
                lapsed.append((held, ended))
        answers = await self._session.all([self._is_untouched(held, offsets) for held, _ in lapsed])
        for (held, ended), is_untouched in zip(lapsed, answers, strict=True):
            if is_untouched:
                held.note_lock(asked, ended)
            elif is_untouched is not None:
                lost.append(held)
        return lost

    async def _is_untouched(self, held: ProcessQueue, offsets: Offsets) -> bool | None:
        """Whether no other member has consumed further than this one; None if that is unknown."""
        try:
            offset = await offsets.committed(held.queue)
        except MQError as error:
            log.warning("group %s, %s: lock not renewed yet: %s", self._group, held.queue, error)
            return None
        except BaseException as error:  # from the user's own store
            if is_meant(error):
                raise
            log.exception("group %s, %s: lock not renewed yet", self._group, held.queue)
            return None
        return offset is None or offset <= held.commit_offset

    async def release(self, queue: MessageQueue) -> None:
        """Unlock a queue. If that fails, the broker's lock expires after 60 s."""
        try:
            address = await self._session.master_address(queue.topic, queue.broker_name)
            await self._groups.unlock_queues(address, self._group, self._session.client_id, [queue])
        except MQError as error:
            log.warning("group %s, %s: not unlocked: %s", self._group, queue, error)
