"""Queue locks, which ensure that one ordered consumer of a group consumes a queue.

A lock lasts for a minute from its last renewal, or as the settings say; consumers renew theirs
every 20 s. Another member may take an expired lock (RebalanceLockManager).
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mq.client.machine import clock
from mq.protocol.bodies import MessageQueue

log = logging.getLogger(__name__)

LOCK_SECONDS = 60.0
# Limit of the locks of all groups; each takes about 300 bytes. Above it, new locks are refused.
MOST_LOCKS = 200_000
# Limit of locks per request that are logged individually.
_MOST_LOGGED = 20


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed: float


class QueueLocks:
    """The locks of all groups of a broker."""

    def __init__(
        self, clock: Callable[[], float] = clock.monotonic, lifetime: float = LOCK_SECONDS
    ) -> None:
        self._clock = clock
        self._lifetime = lifetime
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0  # of all groups

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock or renew queues; returns those that the client holds now."""
        locks = self._groups.get(group, {})
        now = self._clock()
        held: set[MessageQueue] = set()
        new: list[MessageQueue] = []
        for queue in set(queues):
            lock = locks.get(queue)
            if lock is None:
                if self._count + len(new) < MOST_LOCKS:
                    new.append(queue)
            elif lock.client_id == client_id:
                lock.renewed = now
                held.add(queue)
            elif now - lock.renewed > self._lifetime:
                log.warning(
                    "group %s: %s takes the expired lock of %s on %s",
                    group,
                    client_id,
                    lock.client_id,
                    queue,
                    extra={"failure": f"expired locks of {group}"},
                )
                locks[queue] = _Lock(client_id, now)
                held.add(queue)
        if new:
            self._groups[group] = locks
            locks.update((queue, _Lock(client_id, now)) for queue in new)
            self._count += len(new)
            held.update(new)
            for queue in new[:_MOST_LOGGED]:
                log.info("group %s: %s locks %s", group, client_id, queue)
            if len(new) > _MOST_LOGGED:
                log.info("group %s: and %d more queues", group, len(new) - _MOST_LOGGED)
        if self._count >= MOST_LOCKS:
            log.error("queue lock limit reached (%d); refusing new locks", self._count,
                      extra={"failure": "locks"})  # fmt: skip
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release locks of a client; those of other clients stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                continue
            if lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
            else:
                log.warning("group %s: %s must not unlock %s of %s", group, client_id, queue,
                            lock.client_id, extra={"failure": f"unlocks of {group}"})  # fmt: skip
        if not locks:
            self._groups.pop(group, None)

    def expire(self) -> None:
        """Drop expired locks, so that groups without members leave no locks."""
        oldest = self._clock() - self._lifetime
        for group, locks in list(self._groups.items()):
            for queue in [q for q, lock in locks.items() if lock.renewed < oldest]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._groups[group]

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """The holder of a queue's lock; None if there is no lock or it has expired."""
        lock = self._groups.get(group, {}).get(queue)
        if lock is None or self._clock() - lock.renewed > self._lifetime:
            return None
        return lock.client_id
