"""Invariants of a broker set, for all requests in any order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.controller.replica_set import (
    MOST_REPLICAS,
    Alter,
    ReplicaSet,
    alter,
    apply_id,
    clean,
    register,
    with_master,
    without_master,
)
from mq.daemons.dispatch import Refused

ID = st.integers(0, 5)
STEP = st.one_of(
    st.tuples(st.just("apply"), ID, st.sampled_from(["a;1", "b;2", "c;3"])),
    st.tuples(st.just("register"), ID, st.sampled_from(["a", "b", ""])),
    st.tuples(st.just("alter"), st.frozensets(ID, max_size=4), st.booleans()),
    st.tuples(st.just("elect"), ID, st.none()),
    st.tuples(st.just("fail"), st.none(), st.none()),
    st.tuples(st.just("clean"), ID, st.booleans()),
)


def take(kept: ReplicaSet | None, step: tuple[str, object, object]) -> ReplicaSet | None:
    what, one, other = step
    if what == "apply":
        assert isinstance(one, int)
        return apply_id(kept, "c", "b", one, str(other))
    if what == "register":
        assert isinstance(one, int)
        return register(kept, "b", one, str(other))
    if what == "clean":
        return clean(kept, "b", str(one) if one else "", bool(other), lambda broker_id: False)
    if kept is None:
        return None
    if what == "alter":
        assert isinstance(one, frozenset)
        epoch = kept.master_epoch if other else kept.master_epoch - 1
        asked = Alter(kept.master_id, epoch, one, kept.members_epoch)
        return alter(kept, asked, lambda broker_id: broker_id != 3)
    if what == "elect":
        return with_master(kept, one) if one in kept.replicas else kept  # type: ignore[arg-type]
    return without_master(kept)


@given(st.lists(STEP, max_size=40))
def test_ids_and_epochs_only_grow_and_members_are_of_the_set(
    steps: list[tuple[str, object, object]],
) -> None:
    kept: ReplicaSet | None = None
    given_ids: dict[int, str] = {}
    for step in steps:
        before = kept
        try:
            kept = take(before, step)
        except Refused:
            continue
        if kept is None:
            given_ids.clear()
            continue
        for broker_id, replica in kept.replicas.items():
            assert given_ids.setdefault(broker_id, replica.check_code) == replica.check_code
            assert broker_id < kept.next_id
        assert kept.members <= kept.replicas.keys()
        assert kept.master_id is None or kept.master_id in kept.members
        if before is not None:
            assert kept.master_epoch >= before.master_epoch
            assert kept.members_epoch >= before.members_epoch
            assert kept.next_id >= before.next_id
            if kept.master_id != before.master_id:
                assert kept.master_epoch > before.master_epoch
            if kept.members != before.members:
                assert kept.members_epoch > before.members_epoch
        assert ReplicaSet.decode(kept.encode(), kept.version) == kept


def test_a_set_has_a_maximal_size_and_belongs_to_one_cluster() -> None:
    kept = None
    for broker_id in range(1, MOST_REPLICAS + 1):
        kept = apply_id(kept, "c", "b", broker_id, f"a;{broker_id}")
    with pytest.raises(Refused, match=f"limit of {MOST_REPLICAS} brokers"):
        apply_id(kept, "c", "b", MOST_REPLICAS + 1, "a;0")
    with pytest.raises(Refused, match="is in the cluster c"):
        apply_id(kept, "another", "b", 1, "a;1")
    with pytest.raises(Refused, match="registerCheckCode"):
        apply_id(kept, "c", "b", 1, "")


def test_a_dead_broker_is_not_added_to_the_in_sync_set() -> None:
    kept = with_master(apply_id(apply_id(None, "c", "b", 1, "a;1"), "c", "b", 2, "b;2"), 1)
    with pytest.raises(Refused, match="don't alive"):
        alter(kept, Alter(1, 1, frozenset((1, 2)), 1), lambda broker_id: broker_id == 1)


@pytest.mark.parametrize("data", [b"{}", b"[]", b"x", b'{"clusterName":"c"}'])
def test_an_invalid_set_cannot_be_read(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a replica set|unexpected|expected|invalid"):
        ReplicaSet.decode(data, 1)
