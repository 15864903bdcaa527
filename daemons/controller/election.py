"""Elections: who of a broker set becomes its master. Source: DefaultElectPolicy of 5.x."""

from collections.abc import Collection

from mq.daemons.controller.liveness import Liveness
from mq.daemons.controller.replica_set import ReplicaSet


def elect(
    kept: ReplicaSet, liveness: Liveness, *, designated: int | None = None, unclean: bool = False
) -> int | None:
    """The id of the next master, which is that of the present one while it may live; None where
    nobody can be.

    Only those in sync are electable, or with ``unclean`` any, if none of them lives. The best is
    who has the last epoch, of these who has most of the log, of these who has the lowest priority:
    by whole offsets (Java cuts their difference to 32 bits).

    Of a machine that has lost its power no connection ends. Who is elected is alone in sync from
    then on, and what others in sync have would not count any more: so not one who is late with a
    heartbeat, as an administrator may. (Java elects it.)
    """
    found = _of(kept, kept.members, liveness, designated)
    if found is None and unclean and not is_awaited(kept, liveness):
        found = _of(kept, kept.replicas.keys(), liveness, designated)
    return found


def is_awaited(kept: ReplicaSet, liveness: Liveness) -> bool:
    """Whether nobody in sync is known to live, and somebody may: soon more will be known of it."""
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
    # Of equals the lowest id, so that every controller would elect the same.
    return max(sorted(ranks), key=ranks.__getitem__, default=None)
