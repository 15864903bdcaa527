"""Commands for groups that consume now: release partitions, begin at the end."""

from mq.daemons.tube.master.admin.answers import Row, data, success
from mq.daemons.tube.master.admin.parameters import Parameters
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.master.groups import now_ms
from mq.daemons.tube.web_methods import RequestRefused


async def rebalance(core: Core, p: Parameters) -> Row:
    """Let members release their partitions and get others, or none for reJoinWait rounds.

    groupName, consumerId."""
    p.audit(adds=False, serial=0)
    (name, *_) = p.groups(needed=True)
    rounds = p.number("reJoinWait", "rjWait", default=0, most=10_000)
    members = p.consumer_ids()
    group = core.groups.get(name)
    if group is None:
        raise RequestRefused(f"The group({name}) not online!")
    for member in members:
        if member in group.leaving or member in group.resting:
            raise RequestRefused(f"Duplicated set for consumerId({member}) in group({name})!")
    group.leaving |= {member: rounds for member in members if member in group.members}
    return success()


async def from_max(core: Core, p: Parameters) -> Row:
    """Let client-balanced groups begin at the end. groupName."""
    p.audit(adds=False, serial=0)
    rows = []
    for name in p.groups(needed=True):
        group = core.groups.get(name)
        if group is not None:
            group.from_max_id = max(now_ms(), group.from_max_id + 1)
        rows.append({"groupName": name, "success": group is not None})
    return data(rows)
