"""Shares of partitions: none is lost, none is assigned twice, and few move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.tube.master import balance

MEMBERS = [f"c{number:02}" for number in range(12)]


def holders(shares: dict[str, list[int]]) -> dict[int, str]:
    """Return the member of each partition. Fails if two have it."""
    found: dict[int, str] = {}
    for member, share in shares.items():
        for partition in share:
            assert partition not in found, f"{partition}: {member} and {found[partition]}"
            found[partition] = member
    return found


members = st.lists(st.sampled_from(MEMBERS), unique=True, min_size=1)
partitions = st.lists(st.integers(0, 200), unique=True, max_size=60)


@st.composite
def held(draw: st.DrawFn) -> tuple[dict[str, list[int]], list[int]]:
    """The reports of members, which may be wrong, and the existing partitions."""
    ids = draw(members)
    says = {member: draw(st.lists(st.integers(0, 60), unique=True, max_size=20)) for member in ids}
    return says, draw(st.lists(st.integers(0, 60), unique=True, max_size=40))


@st.composite
def all_held(draw: st.DrawFn) -> tuple[dict[str, list[int]], list[int]]:
    """Check that every partition has one member."""
    ids, there = draw(members), draw(partitions)
    says: dict[str, list[int]] = {member: [] for member in ids}
    for partition in there:
        says[draw(st.sampled_from(ids))].append(partition)
    return says, there


def test_the_first_round_cuts_each_topic_into_slices_of_sorted_lists() -> None:
    shares = balance.first(["b", "a", "c"], [list(range(7)), [10, 11]])
    assert shares == {"a": [0, 1, 2, 10], "b": [3, 4, 11], "c": [5, 6]}


@given(members, st.lists(partitions, max_size=4))
def test_the_first_round_gives_everything_to_somebody(
    ids: list[str], topics: list[list[int]]
) -> None:
    named = [[(index, p) for p in sorted(topic)] for index, topic in enumerate(topics)]
    shares = balance.first(ids, named)
    assert sorted(p for share in shares.values() for p in share) == sorted(
        p for topic in named for p in topic
    )
    for index, topic in enumerate(named):
        counts = [sum(p[0] == index for p in shares[member]) for member in sorted(ids)]
        assert counts == sorted(counts, reverse=True)
        assert max(counts) - min(counts) <= 1
        assert [p for m in sorted(ids) for p in shares[m] if p[0] == index] == topic


@given(held())
def test_later_everything_is_held_by_exactly_one(
    case: tuple[dict[str, list[int]], list[int]],
) -> None:
    says, there = case
    shares = balance.later(says, there)
    assert sorted(holders(shares)) == sorted(there)


@given(held())
def test_while_something_is_free_nobody_gives_anything_up(
    case: tuple[dict[str, list[int]], list[int]],
) -> None:
    says, there = case
    before = {p for share in says.values() for p in share}
    if set(there) <= before:
        return
    shares = balance.later(says, there)
    for member, share in shares.items():
        others = {p for other, s in shares.items() if other != member for p in s}
        assert {p for p in says[member] if p in there} <= set(share) | others
    kept = {p: m for m, share in says.items() for p in share if p in there}
    after = holders(shares)
    assert all(after[p] in {m for m, share in says.items() if p in share} for p in kept)


@given(all_held())
def test_evening_out_takes_one_round_and_moves_what_is_above_and_no_more(
    case: tuple[dict[str, list[int]], list[int]],
) -> None:
    says, there = case
    shares = balance.later(says, there)
    counts = sorted(map(len, shares.values()))
    assert not counts or counts[-1] - counts[0] <= 1
    after = holders(shares)
    moved = sum(1 for m, share in says.items() for p in share if after[p] != m)
    # Sorted by load, the first n mod c may keep one more: partitions below that do not move.
    least, above = divmod(len(there), len(says))
    loads = sorted(map(len, says.values()), reverse=True)
    assert moved == sum(max(0, n - least - (i < above)) for i, n in enumerate(loads))
    assert balance.later(shares, there) == shares


@given(all_held())
def test_a_calm_group_changes_nothing(case: tuple[dict[str, list[int]], list[int]]) -> None:
    says, there = case
    calm = balance.later(says, there)
    assert balance.changes(calm, balance.later(calm, there)) == {}


def test_members_that_have_said_nothing_get_what_others_have_too_much_of_only() -> None:
    says: dict[str, list[int]] = {"a": [1, 2, 3, 4], "new": []}
    assert balance.later(says, [1, 2, 3, 4, 5], waiting={"new"}) == {
        "a": [1, 2, 3, 4, 5],
        "new": [],
    }
    assert balance.later(says, [1, 2, 3, 4], waiting={"new"}) == {"a": [3, 4], "new": [1, 2]}
    assert balance.later({"new": []}, [1], waiting={"new"}) == {"new": []}


def test_one_that_leaves_gets_other_partitions_and_one_that_rests_none() -> None:
    says = {"a": [1, 2], "b": [3, 4]}
    assert balance.later(says, [1, 2, 3, 4], leaving={"a"}) == {"a": [], "b": [3, 4, 1, 2]}
    assert balance.later(says, [1, 2, 3, 4], resting={"a"}) == {"a": [], "b": [3, 4, 1, 2]}
    assert balance.later(says, [1, 2, 3, 4, 5], leaving={"a"})["a"] == [5]
    assert balance.later({"a": [1, 2]}, [1, 2], leaving={"a"}) == {"a": [1, 2]}
    assert balance.later({"a": [1, 2]}, [1, 2], resting={"a"}) == {"a": []}


def test_changes_are_what_is_lost_and_what_is_got() -> None:
    assert balance.changes({"a": [1, 2]}, {"a": [2, 3], "b": [1], "c": []}) == {
        "a": ([1], [3]),
        "b": ([], [1]),
    }


@pytest.mark.parametrize(
    ("brokers", "count", "rate", "fewest"),
    [(10, 5, 2, 0), (10, 4, 2, 0), (11, 3, 2, 6), (1000, 1, 1000, 0), (2001, 2, 1000, 0),
     (2002, 1, 1000, 3), (5, 0, 1, 0), (-1, 3, 1, 0)],
)  # fmt: skip
def test_a_group_needs_a_member_for_so_many_brokers(
    brokers: int, count: int, rate: int, fewest: int
) -> None:
    assert balance.fewest_members(brokers, count, rate) == fewest


def test_what_is_free_is_given_out_without_a_look_at_every_member_for_each_partition() -> None:
    looks = 0

    class Name(str):
        """Counts the lookups of a member."""

        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return str.__hash__(self)

    held: dict[str, list[int]] = {Name(f"member-{n:04}"): [] for n in range(300)}
    shares = balance.later(held, range(900))
    assert {len(share) for share in shares.values()} == {3}
    assert looks < 20 * (300 + 900)
