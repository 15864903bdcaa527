"""Rounds: every group gets its partitions repeatedly (TMaster.balance).

A group whose members have pending events waits for the next round. In the first round after a
start, or after another master was active, groups whose members have no partitions get contiguous
slices (`balance.first`). TubeMQ does so with all groups, and moves assigned partitions. Partitions
at a broker that has not yet registered with this master stay with their members, too.
"""

import logging
from collections.abc import Collection, Mapping

from mq.daemons.tube.master import balance
from mq.daemons.tube.master.core import Core, MemberKey
from mq.daemons.tube.master.groups import ConsumeType, Group
from mq.protocol.tube.strings import Partition, PartitionKey

log = logging.getLogger(__name__)


def balance_all(core: Core) -> None:
    """Run one round."""
    first = core.rounds == 0
    core.rounds += 1
    core.rounds_in_all += 1
    core.round_id += 1
    for group in core.groups:
        if group.consume_type is ConsumeType.CLIENT_BALANCE:
            core.refresh_meta(group)
            continue
        alive = {m for m in group.members if MemberKey(m, group.name) in core.consumer_beats}
        if not group.events.is_busy(alive):
            balance_one(core, group, first=first)


def balance_one(core: Core, group: Group, *, first: bool = False) -> None:
    """Assign the partitions of a group, as events for its members with changes."""
    # Forbidden topics are not assigned at all: partitions that stay free would prevent the
    # balancing of the others.
    topics = group.topics - core.catalog.forbidden_topics(group.name)
    available = {one.key: one for one in core.brokers.views.partitions(topics)}
    available = {**_held_of_awaited(core, group, topics), **available}
    if group.is_waiting_bound:
        shares = _bound(group, available)
    elif _has_members_enough(core, group):
        shares = _shares(core, group, topics, available, first=first)
    else:
        return
    held = {member.id: member.held or {} for member in group.members.values()}
    for member, change in balance.changes(held, shares).items():
        group.events.add(
            member,
            core.round_id,
            [held[member][key] for key in change.lost],
            [available[key] for key in change.got],
        )
        core.events_made += bool(change.lost) + bool(change.got)
        log.info(
            "round %d: %s of %s releases %d partitions and gets %d",
            core.round_id,
            member,
            group.name,
            len(change.lost),
            len(change.got),
        )


def _held_of_awaited(
    core: Core, group: Group, topics: Collection[str]
) -> dict[PartitionKey, Partition]:
    """Return the members' partitions at brokers that have not had the time to register."""
    awaited = core.awaited_brokers()
    if not awaited:
        return {}
    return {
        key: partition
        for member in group.members.values()
        for key, partition in (member.held or {}).items()
        if key.topic in topics and key.broker_id in awaited
    }


def _shares(
    core: Core,
    group: Group,
    topics: Collection[str],
    available: Mapping[PartitionKey, Partition],
    *,
    first: bool,
) -> balance.PartitionsByMember[PartitionKey]:
    members = group.members
    if first and not any(member.held for member in members.values()):
        views = core.brokers.views
        parts = [[one.key for one in views.partitions_of(topic)] for topic in sorted(topics)]
        return balance.first(members, parts)
    resting = {member for member, rounds in group.resting.items() if rounds > 0}
    group.resting = {member: rounds - 1 for member, rounds in group.resting.items() if rounds > 0}
    leaving = set(group.leaving) & members.keys()
    for member in leaving:
        if group.leaving[member] > 0:
            group.resting[member] = group.leaving[member]
            resting.add(member)
    leaving -= resting
    group.leaving.clear()
    return balance.later(
        {member.id: list(member.held or ()) for member in members.values()},
        list(available),
        waiting={member.id for member in members.values() if member.held is None},
        leaving=leaving,
        resting=resting,
    )


def _bound(
    group: Group, available: Mapping[PartitionKey, Partition]
) -> balance.PartitionsByMember[PartitionKey]:
    """Give a complete bound group the partitions that its members name, in its first two rounds."""
    if len(group.members) < group.source_count:
        group.bound_checks += 1
        if group.bound_checks % 15 == 1:
            log.info(
                "bound group %s has %d of %d members: it waits for the others",
                group.name,
                len(group.members),
                group.source_count,
            )
        return {}
    group.bound_rounds += 1
    shares: balance.PartitionsByMember[PartitionKey] = {}
    for key, member in group.booked().items():
        if key in available:
            shares.setdefault(member, []).append(key)
    return shares


def _has_members_enough(core: Core, group: Group) -> bool:
    """Return whether each member has few enough brokers; checked until it was true once."""
    if group.consume_type is not ConsumeType.NORMAL or group.checked:
        return True
    brokers = core.brokers.views.most_brokers(group.topics)
    fewest = balance.fewest_members(brokers, len(group.members), core.allowed_rate(group.name))
    group.rate = brokers // len(group.members) if group.members else 0
    group.check_failed = fewest > 0
    if fewest:
        if group.fewest_members != fewest:
            log.warning(
                "group %s gets no partitions: it has %d members, and needs %d",
                group.name,
                len(group.members),
                fewest,
            )
        group.fewest_members = fewest
        return False
    group.checked, group.fewest_members = True, -2
    return True
