"""Locks on queues, with which an ordered consumer makes sure that it is the only one of its group.

A lock lasts for a minute from its last renewal; consumers renew theirs every 20 s. One that expired
may be taken by another member (RebalanceLockManager).
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)

LOCK_SECONDS = 60.0


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed: float


class QueueLocks:
    """The locks of all groups of a broker."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, lifetime: float = LOCK_SECONDS
    ) -> None:
        self._clock = clock
        self._lifetime = lifetime
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock or renew; returns the queues that the client holds now."""
        locks = self._groups.setdefault(group, {})
        now = self._clock()
        held = set()
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                log.info("group %s: %s locks %s", group, client_id, queue)
                locks[queue] = _Lock(client_id, now)
            elif lock.client_id == client_id:
                lock.renewed = now
            elif now - lock.renewed > self._lifetime:
                log.warning(
                    "group %s: %s takes the expired lock of %s on %s",
                    group,
                    client_id,
                    lock.client_id,
                    queue,
                )
                locks[queue] = _Lock(client_id, now)
            else:
                continue
            held.add(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give up locks; those of other clients stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                continue
            if lock.client_id == client_id:
                del locks[queue]
            else:
                log.warning("group %s: %s may not unlock %s of %s", group, client_id, queue,
                            lock.client_id)  # fmt: skip
        if not locks:
            self._groups.pop(group, None)

    def expire(self) -> None:
        """Drop expired locks, so that groups which are gone leave nothing behind."""
        oldest = self._clock() - self._lifetime
        for group, locks in list(self._groups.items()):
            for queue in [q for q, lock in locks.items() if lock.renewed < oldest]:
                del locks[queue]
            if not locks:
                del self._groups[group]

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """Who holds a queue, unless the lock has expired."""
        lock = self._groups.get(group, {}).get(queue)
        if lock is None or self._clock() - lock.renewed > self._lifetime:
            return None
        return lock.client_id
