"""The assignment of partitions in a consumer group: pure functions, no clock and no randomness.

    first   the first round after a start: per topic, contiguous slices of sorted lists
    later   every other round: free partitions are assigned; only a group without free partitions
            is balanced

Sources: DefaultLoadBalancer of TubeMQ (bukAssign, balanceCluster). Two parts differ, both within
its rules. It assigns free partitions to random members, ours to those with the fewest, so that
fewer move later. And if it takes a partition from a full member while no other is below the
minimum, it leaves it free until the next round; ours assigns it to one below the maximum.

A partition is any hashable; those of `later` are compared by equality only.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

P = TypeVar("P", bound=Hashable)

# Partitions by member.
PartitionsByMember = dict[str, list[P]]


def first(members: Iterable[str], topics: Iterable[Sequence[P]]) -> PartitionsByMember[P]:
    """Return shares if no member has partitions. `topics` has a sorted sequence for each topic."""
    ids = sorted(members)
    shares: PartitionsByMember[P] = {member: [] for member in ids}
    for partitions in topics:
        each, extra = divmod(len(partitions), len(ids))
        start = 0
        for index, member in enumerate(ids):
            end = start + each + (index < extra)
            shares[member].extend(partitions[start:end])
            start = end
    return shares


def later(
    held: Mapping[str, Collection[P]],
    partitions: Iterable[P],
    *,
    waiting: Collection[str] = (),
    leaving: Collection[str] = (),
    resting: Collection[str] = (),
) -> PartitionsByMember[P]:
    """Return the next shares.

    `held` has the reported partitions of every member; `waiting` are members that have not reported
    yet: they get no free partitions, but the surplus of others. Members that are `leaving` release
    all and get others, `resting` ones release all and get none (admin_rebalance_group_allocate).
    """
    shares: PartitionsByMember[P] = {member: [] for member in sorted(held)}
    free = dict.fromkeys(partitions)
    count = len(free)
    for member in shares:
        if member in leaving or member in resting:
            continue
        for partition in held[member]:
            if partition in free:  # if two report it, one keeps it
                del free[partition]
                shares[member].append(partition)
    able = [member for member in shares if member not in resting]
    if free:
        takers = [member for member in able if member not in waiting]
        _give_out(list(free), takers, shares, {m: held[m] for m in leaving if m in held})
    elif able:
        stay = [member for member in able if member not in leaving]
        _even_out(stay, count, shares)
    return shares


def _give_out(
    free: list[P],
    takers: list[str],
    shares: PartitionsByMember[P],
    given_up: Mapping[str, Collection[P]],
) -> None:
    """Assign free partitions to members with the fewest; none returns to its last member, unless
    alone.
    """
    if not takers:
        return
    gave = {member: frozenset(partitions) for member, partitions in given_up.items()}
    loads = [(len(shares[member]), order) for order, member in enumerate(takers)]
    heapify(loads)  # a thousand members that join at once must not block other work
    for partition in free:
        passed = []
        while loads and partition in gave.get(takers[loads[0][1]], ()):
            passed.append(heappop(loads))
        load, order = heappop(loads) if loads else passed.pop(0)
        shares[takers[order]].append(partition)
        for one in (*passed, (load + 1, order)):
            heappush(loads, one)


def _even_out(members: list[str], count: int, shares: PartitionsByMember[P]) -> None:
    """Give each member `count` / members, rounded down or up, with the fewest moves."""
    if not members:
        return
    least, above = divmod(count, len(members))
    most = least + (above > 0)
    surplus: list[P] = []
    for member in members:
        share = shares[member]
        if len(share) < most:
            continue
        keep = most if above > 0 else least
        above -= 1
        too_many = len(share) - keep
        surplus += share[:too_many]
        del share[:too_many]
    for limit in (least, most):
        for member in members:
            while surplus and len(shares[member]) < limit:
                shares[member].append(surplus.pop(0))


class AssignmentChange(NamedTuple, Generic[P]):
    """The partitions that a member must release, and the ones that it gets."""

    lost: list[P]
    got: list[P]


def changes(
    held: Mapping[str, Collection[P]], shares: PartitionsByMember[P]
) -> dict[str, AssignmentChange[P]]:
    """Return the changes by member, without members that have none."""
    found = {}
    for member, share in shares.items():
        now, then = dict.fromkeys(held.get(member, ())), dict.fromkeys(share)
        change = AssignmentChange(
            [p for p in now if p not in then], [p for p in then if p not in now]
        )
        if change.lost or change.got:
            found[member] = change
    return found


def fewest_members(brokers: int, members: int, rate: int) -> int:
    """Return how many members a group needs if `rate` brokers may serve one at most; 0 if it has
    enough. `brokers` are those of its topic with the most (checkConsumerInputInfo)."""
    if members <= 0 or brokers // members <= rate:
        return 0
    return -(-brokers // rate)
