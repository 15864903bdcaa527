"""Elections: the choice of the master of a replica set. Source: DefaultElectPolicy of 5.x."""

from collections.abc import Collection

from mq.daemons.controller.liveness import Liveness
from mq.daemons.controller.replica_set import ReplicaSet


def elect(
    kept: ReplicaSet, liveness: Liveness, *, designated: int | None = None, unclean: bool = False
) -> int | None:
    """Return the id of the next master, which is the present one while it may be alive; None if no
    broker is electable.

    Only brokers in sync are electable, or with ``unclean`` any broker if none of them is alive. The
    best has the last epoch, among these the longest log, among these the lowest priority; whole
    offsets are compared (Java cuts their difference to 32 bits).

    After a machine loses power, its connections do not end. The elected broker is alone in sync
    from then on, so the data of the other brokers in sync is discarded. Therefore a broker whose
    heartbeat is late is not elected, unless an administrator designates it. (Java elects it.)
    """
    found = _of(kept, kept.members, liveness, designated)
    if found is None and unclean and not is_awaited(kept, liveness):
        found = _of(kept, kept.replicas.keys(), liveness, designated)
    return found


def is_awaited(kept: ReplicaSet, liveness: Liveness) -> bool:
    """Whether no broker in sync is known to be alive but some may be: more will be known soon."""
    found = [liveness.get(kept.name, id_) for id_ in kept.members if id_ in kept.replicas]
    alive = [live for live in found if live is not None]
    return bool(alive) and not any(live.is_prompt for live in alive)


def _of(
    kept: ReplicaSet, candidates: Collection[int], liveness: Liveness, designated: int | None
) -> int | None:
    master = kept.master_id
    if master in candidates and designated in (None, master):
        assert master is not None
        if liveness.may_live(kept.name, master):
            return master
    alive = {id_: liveness.get(kept.name, id_) for id_ in candidates if id_ in kept.replicas}
    if designated is not None:
        return designated if alive.get(designated) is not None else None
    ranks = {id_: live.rank() for id_, live in alive.items() if live is not None and live.is_prompt}
    # Of equals the lowest id, so that every controller would elect the same one.
    return max(sorted(ranks), key=ranks.__getitem__, default=None)
