"""The state of consumers, producers and the master's settings (WebOtherInfoHandler)."""

from typing import Any

from mq.daemons.tube.master.admin.answers import Row, data
from mq.daemons.tube.master.admin.parameters import Parameters
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.master.groups import ConsumeType, Group, Member
from mq.daemons.tube.web_methods import RequestRefused
from mq.protocol.tube.codes import UNDEFINED


async def subscriptions(core: Core, p: Parameters) -> Row:
    """Return groups with their topics and numbers of members."""
    groups, topics = set(p.groups(needed=False)), set(p.topics(needed=False))
    return data(
        [
            {
                "consumeGroup": group.name,
                "topicSet": sorted(group.topics),
                "consumerNum": len(group.members),
            }
            for group in core.groups
            if (not groups or group.name in groups) and (not topics or topics & group.topics)
        ]
    )


async def group_detail(core: Core, p: Parameters) -> Row:
    """Return a group with its members and their partitions."""
    found = p.groups(needed=True)
    if len(found) != 1:
        raise RequestRefused("Parameter groupName: expected one group")
    group = core.groups.get(found[0])
    row: Row = {
        "result": True,
        "errCode": 0,
        "errMsg": "OK",
        "count": len(group.members) if group else 0,
        "topicSet": sorted(group.topics) if group else [],
        "consumeGroup": found[0],
        "re-rebalance": {},
        "isBandConsume": (group.consume_type if group else ConsumeType.NORMAL).value,
    }
    if group is None:
        return {**row, "rebInfo": {"isRebalanced": False}, "filterConds": {}, "data": []}
    row["re-rebalance"] = {
        member: {"clientId": member, "waitDuration": rounds}
        for member, rounds in (group.leaving | group.resting).items()
    }
    if group.consume_type is ConsumeType.BOUND:
        row |= {
            "isNotAllocate": group.not_allocated,
            "sessionKey": group.session_key,
            "isSelectBig": group.selects_big,
            "reqSourceCount": group.source_count,
            "curSourceCount": len(group.members),
            "rebalanceCheckTime": group.bound_checks,
        }
    elif group.consume_type is ConsumeType.CLIENT_BALANCE:
        row |= {"topicMetaId": group.meta_id, "metaDetails": list(group.meta.values())}
    row["rebInfo"] = _rebalanced(core, group)
    row["filterConds"] = {t: sorted(items) for t, items in group.conditions.items()}
    row["data"] = [_member(group, group.members[m]) for m in sorted(group.members)]
    return row


async def groups_by_topic(core: Core, p: Parameters) -> Row:
    """Return the present groups, by topic."""
    wanted = p.topics(needed=False)
    by_topic: dict[str, list[str]] = {topic: [] for topic in wanted}
    for group in core.groups:
        for topic in group.topics:
            if not wanted or topic in by_topic:
                by_topic.setdefault(topic, []).append(group.name)
    return data(
        [
            {"topicName": topic, "groupSet": names, "groupCnt": len(names)}
            for topic, names in sorted(by_topic.items())
        ]
    )


async def version(core: Core, p: Parameters) -> Row:
    from importlib import metadata

    return data([{"version": metadata.version("mq")}])


def _rebalanced(core: Core, group: Group) -> Row:
    if not (group.checked or group.check_failed):
        return {"isRebalanced": False}
    control = core.catalog.group_control(group.name)
    row: dict[str, Any] = {
        "isRebalanced": True,
        "checkPasted": group.checked,
        "defBClientRate": core.config.max_group_broker_consume_rate,
        "confBClientRate": control.broker_client_rate if control is not None else UNDEFINED,
        "curBClientRate": group.rate,
    }
    if not group.checked:
        row["minRequireClientCnt"] = group.fewest_members
    return row


def _member(group: Group, member: Member) -> Row:
    row: Row = {
        "consumerId": member.id,
        "receivedFrom": member.address,
        "isOverTLS": member.over_tls,
    }
    if group.consume_type is ConsumeType.BOUND:
        row["initReSetPartCount"] = len(member.required)
        row["initReSetPartInfo"] = [
            {"partitionKey": str(key), "Offset": offset} for key, offset in member.required.items()
        ]
    elif group.consume_type is ConsumeType.CLIENT_BALANCE:
        row |= {"sourceCount": member.source_count, "nodeId": member.node_id}
    held = sorted((member.held or {}).values())
    row["parCount"] = len(held)
    row["parInfo"] = [
        {"partId": one.partition_id, "brokerAddr": str(one.broker), "topicName": one.topic}
        for one in held
    ]
    return row
