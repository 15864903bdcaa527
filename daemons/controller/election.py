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
    """
    found = _of(kept, kept.members, liveness, designated)
    if found is None and unclean:
        found = _of(kept, kept.replicas.keys(), liveness, designated)
    return found


def _of(
    kept: ReplicaSet, candidates: Collection[int], liveness: Liveness, designated: int | None
) -> int | None:
    master = kept.master_id
    if master in candidates and designated in (None, master):
        assert master is not None
        if liveness.may_live(kept.name, master):
            return master
    alive = {id_: liveness.get(kept.name, id_) for id_ in candidates if id_ in kept.replicas}
    ranks = {id_: live.rank() for id_, live in alive.items() if live is not None}
    if designated is not None:
        return designated if designated in ranks else None
    # Of equals the lowest id, so that every controller would elect the same.
    return max(sorted(ranks), key=ranks.__getitem__, default=None)
