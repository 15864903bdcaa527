"""What goes for the cluster, for topics and for groups: sizes, limits, who may consume what
(WebMasterInfoHandler, WebAdminFlowRuleHandler, WebAdminTopicAuthHandler, WebAdminGroupCtrlHandler).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from mq.daemons.tube.master.admin.answers import Row, data, outcome, success
from mq.daemons.tube.master.admin.parameters import Parameters
from mq.daemons.tube.master.catalog import ChangeRefused, DataCode
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.master.groups import now_ms
from mq.daemons.tube.master.records import (
    Audit,
    ClusterSettings,
    ConsumeControl,
    GroupControl,
    TopicControl,
    touched,
)
from mq.daemons.tube.master.storage import Changes
from mq.daemons.tube.web import RequestRefused
from mq.protocol.tube.codes import UNDEFINED


async def set_cluster(core: Core, p: Parameters) -> Row:
    """Ports and topics of new brokers, the size of messages, limits for all groups."""
    await _set_cluster(core, p, enabled=p.flag("flowCtrlEnable", "fCtrlEn"))
    return data([_cluster_row(core)])


async def query_cluster(core: Core, p: Parameters) -> Row:
    return data([_cluster_row(core)])


async def set_default_flow(core: Core, p: Parameters) -> Row:
    """Limits for all groups that have no own. flowCtrlInfo, statusId (1: they are in force)."""
    await _set_cluster(core, p, enabled=_status(p))
    return data([_cluster_flow(core)])


async def remove_default_flow(core: Core, p: Parameters) -> Row:
    """No limits for groups that have no own."""
    by = p.audit(adds=False, serial=core.catalog.next_serial())

    def step() -> Changes:
        old = core.catalog.cluster
        new = replace(old, flow_enabled=False, flow_count=0, flow_rules="[]")
        return {(new.kind, new.key): replace(new, audit=_stamped(old.audit, by))}

    await _change(core, step)
    return data([_cluster_flow(core)])


async def query_default_flow(core: Core, p: Parameters) -> Row:
    return data([_cluster_flow(core)])


async def set_group_flow(core: Core, p: Parameters) -> Row:
    """Limits of groups. groupName, flowCtrlInfo, statusId, qryPriorityId."""
    by = p.audit(adds=True, serial=core.catalog.next_serial())
    rules, enabled, priority = p.flow_rules(), _status(p), p.qry_priority()

    def step(group: str) -> Changes:
        old = core.catalog.group_control(group)
        new = old or GroupControl(group, audit=by)
        if rules is not None:
            new = replace(new, flow_count=rules[0], flow_rules=rules[1])
        if enabled is not None:
            new = replace(new, flow_enabled=enabled)
        if priority != UNDEFINED:
            new = replace(new, qry_priority=priority)
        if old is not None:
            new = replace(new, audit=_stamped(old.audit, by))
        return {(new.kind, new.key): new}

    return await _each_group(core, p, step)


async def remove_group_flow(core: Core, p: Parameters) -> Row:
    """No limits of their own for groups."""
    by = p.audit(adds=False, serial=core.catalog.next_serial())

    def step(group: str) -> Changes:
        old = core.catalog.group_control(group)
        if old is None:
            return {}
        new = replace(old, flow_enabled=False, flow_count=0, flow_rules="[]", qry_priority=301)
        return {(new.kind, new.key): replace(new, audit=_stamped(old.audit, by))}

    return await _each_group(core, p, step)


async def query_group_flow(core: Core, p: Parameters) -> Row:
    wanted = set(p.groups(needed=False))
    return data(
        [
            {
                "groupName": one.group,
                "statusId": int(one.flow_enabled),
                "qryPriorityId": one.qry_priority,
                "ruleCnt": one.flow_count,
                "flowCtrlInfo": orjson.loads(one.flow_rules),
                **one.audit.web(),
            }
            for one in core.catalog.group_controls()
            if not wanted or one.group in wanted
        ]
    )


async def set_group_resources(core: Core, p: Parameters) -> Row:
    """How many brokers one member may be served by. groupName, alwdBrokerClientRate."""
    by = p.audit(adds=True, serial=core.catalog.next_serial())
    rate = p.number("alwdBrokerClientRate", "allowedBClientRate", "abcr", default=0)

    def step(group: str) -> Changes:
        old = core.catalog.group_control(group)
        new = replace(
            old or GroupControl(group, audit=by), res_check=rate > 0, broker_client_rate=rate
        )
        if old is not None:
            new = replace(new, audit=_stamped(old.audit, by))
        return {(new.kind, new.key): new}

    return await _each_group(core, p, step)


async def set_topic_authorization(core: Core, p: Parameters) -> Row:
    """Whether only groups that are allowed to may consume topics. topicName, isEnable."""
    by = p.audit(adds=True, serial=core.catalog.next_serial())
    return await _authorize(core, p, by, enabled=bool(p.flag("isEnable", default=False)))


async def delete_topic_authorization(core: Core, p: Parameters) -> Row:
    """Let all groups consume topics."""
    by = p.audit(adds=False, serial=core.catalog.next_serial())
    return await _authorize(core, p, by, enabled=False)


async def query_topic_authorization(core: Core, p: Parameters) -> Row:
    wanted = set(p.topics(needed=False))
    return data(
        [
            {
                "topicName": control.topic,
                "isEnable": control.auth_enabled,
                **_who(control.audit),
                "authConsumeGroup": [
                    {"topicName": one.topic, "groupName": one.group, **_who(one.audit)}
                    for one in core.catalog.consume_controls(control.topic)
                ],
                "groupCount": len(core.catalog.consume_controls(control.topic)),
            }
            for control in core.catalog.topic_controls()
            if not wanted or control.topic in wanted
        ]
    )


async def allow_group(core: Core, p: Parameters) -> Row:
    """Let groups consume topics that only those may that are allowed. groupName, topicName."""
    return await _consume(core, p, "Old API add, enable consume", adds=True, enabled=True)


async def forbid_group(core: Core, p: Parameters) -> Row:
    """The opposite."""
    return await _consume(core, p, "Old API delete, disable consume", adds=False, enabled=False)


async def blacklist_group(core: Core, p: Parameters) -> Row:
    """Give groups nothing of topics, whoever else may consume them."""
    text = "Old API add blacklist, disable consume"
    return await _consume(core, p, text, adds=True, enabled=False)


async def query_allowed(core: Core, p: Parameters) -> Row:
    topics, groups = set(p.topics(needed=False)), set(p.groups(needed=False))
    return data(
        [
            {"topicName": one.topic, "groupName": one.group, **_who(one.audit)}
            for one in core.catalog.consume_controls()
            if one.enabled
            and (not topics or one.topic in topics)
            and (not groups or one.group in groups)
        ]
    )


async def set_filter(core: Core, p: Parameters) -> Row:
    """Let groups consume only some filter items of topics. condStatus (2: it is in force),
    filterConds."""
    return await _filter(core, p, adds=True)


async def update_filter(core: Core, p: Parameters) -> Row:
    return await _filter(core, p, adds=False)


async def delete_filter(core: Core, p: Parameters) -> Row:
    """Let groups consume all of topics."""
    by = p.audit(adds=False, serial=core.catalog.next_serial())

    def step(group: str, topic: str) -> Changes:
        old = core.catalog.consume_control(group, topic)
        if old is None or not old.filter_enabled:
            return {}
        new = replace(old, filter_enabled=False, filters=[], audit=_stamped(old.audit, by))
        return {(new.kind, new.key): new}

    return await _each_pair(core, p, step)


async def query_filter(core: Core, p: Parameters) -> Row:
    topics, groups = set(p.topics(needed=False)), set(p.groups(needed=False))
    return data(
        [
            {
                "topicName": one.topic,
                "groupName": one.group,
                "condStatus": 2 if one.filter_enabled else 0,
                "filterConds": f",{','.join(one.filters)}," if one.filters else "",
                **_who(one.audit),
            }
            for one in core.catalog.consume_controls()
            if (not topics or one.topic in topics) and (not groups or one.group in groups)
        ]
    )


async def rebalance(core: Core, p: Parameters) -> Row:
    """Have members give their partitions up, and get others, or none for reJoinWait rounds.
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
    """Have groups that balance themselves begin at the end. groupName."""
    p.audit(adds=False, serial=0)
    rows = []
    for name in p.groups(needed=True):
        group = core.groups.get(name)
        if group is not None:
            group.from_max_id = max(now_ms(), group.from_max_id + 1)
        rows.append({"groupName": name, "success": group is not None})
    return data(rows)


async def _set_cluster(core: Core, p: Parameters, *, enabled: bool | None) -> None:
    by = p.audit(adds=True, serial=core.catalog.next_serial())
    rules, priority = p.flow_rules(), p.qry_priority()

    def step() -> Changes:
        old = core.catalog.cluster
        new = replace(
            old,
            max_msg_size_in_mb=p.number(
                "maxMsgSizeInMB", default=old.max_msg_size_in_mb, least=1, most=20
            ),
            broker_port=p.number("brokerPort", default=old.broker_port, least=1, most=65535),
            broker_tls_port=p.number(
                "brokerTLSPort", default=old.broker_tls_port, least=1, most=65535
            ),
            broker_web_port=p.number(
                "brokerWebPort", "bWebPort", default=old.broker_web_port, least=1, most=65535
            ),
            qry_priority=old.qry_priority if priority == UNDEFINED else priority,
            flow_enabled=old.flow_enabled if enabled is None else enabled,
            flow_count=old.flow_count if rules is None else rules[0],
            flow_rules=old.flow_rules if rules is None else rules[1],
            props=p.props(old.props),
        )
        audit = by if old == ClusterSettings() else _stamped(old.audit, by)
        return {(new.kind, new.key): replace(new, audit=audit)}

    await _change(core, step)


async def _change(core: Core, step: Callable[[], Changes]) -> None:
    try:
        await core.catalog.change(step)
    except ChangeRefused as refused:
        raise RequestRefused(str(refused), refused.code) from None


async def _authorize(core: Core, p: Parameters, by: Audit, *, enabled: bool) -> Row:
    def step(topic: str) -> Changes:
        old = core.catalog.topic_control(topic)
        new = replace(old or TopicControl(topic, audit=by), auth_enabled=enabled)
        if old is not None:
            new = replace(new, audit=_stamped(old.audit, by))
        return {(new.kind, new.key): new}

    rows = []
    for each in p.topics(needed=True):

        async def change(topic: str = each) -> None:
            await core.catalog.change(lambda: step(topic))

        rows.append(await outcome(change, topicName=each))
    return data(rows)


async def _consume(core: Core, p: Parameters, reason: str, *, adds: bool, enabled: bool) -> Row:
    by = p.audit(adds=adds, serial=core.catalog.next_serial())

    def step(group: str, topic: str) -> Changes:
        old = core.catalog.consume_control(group, topic)
        if old is None and not adds:
            return {}
        if old is not None and old.enabled is enabled:
            return {}
        _check_deployed(core, topic)
        new = replace(old or ConsumeControl(group, topic, audit=by), enabled=enabled, reason=reason)
        if old is not None:
            new = replace(new, audit=_stamped(old.audit, by))
        return {(new.kind, new.key): new}

    return await _each_pair(core, p, step)


async def _filter(core: Core, p: Parameters, *, adds: bool) -> Row:
    by = p.audit(adds=adds, serial=core.catalog.next_serial())
    items = p.filter_items()
    status = p.number("condStatus", default=UNDEFINED, most=2)

    def step(group: str, topic: str) -> Changes:
        old = core.catalog.consume_control(group, topic)
        if old is None and not adds:
            raise ChangeRefused(DataCode.NOT_EXIST, "Record not exist")
        _check_deployed(core, topic)
        new = old or ConsumeControl(group, topic, audit=by)
        new = replace(
            new,
            reason="Old API set filter conditions",
            filter_enabled=new.filter_enabled if status == UNDEFINED else status == 2,
            filters=new.filters if items is None else items,
        )
        if old is not None:
            new = replace(new, audit=_stamped(old.audit, by))
        return {(new.kind, new.key): new}

    return await _each_pair(core, p, step)


def _check_deployed(core: Core, topic: str) -> None:
    if topic not in core.catalog.deployed_topics():
        raise ChangeRefused(
            DataCode.NOT_EXIST, f"Not found the topic {topic} in the deployed topics"
        )


async def _each_group(core: Core, p: Parameters, step: Callable[[str], Changes]) -> Row:
    rows = []
    for each in p.groups(needed=True):

        async def change(group: str = each) -> None:
            await core.catalog.change(lambda: step(group))

        rows.append(await outcome(change, groupName=each))
    return data(rows)


async def _each_pair(core: Core, p: Parameters, step: Callable[[str, str], Changes]) -> Row:
    rows = []
    topics = p.topics(needed=True)
    for group in p.groups(needed=True):
        for topic in topics:

            async def change(group: str = group, topic: str = topic) -> None:
                await core.catalog.change(lambda: step(group, topic))

            rows.append(await outcome(change, groupName=group, topicName=topic))
    return data(rows)


def _status(p: Parameters) -> bool | None:
    """statusId: 1 for on, 0 for off."""
    value = p.number("statusId", default=UNDEFINED, most=1)
    return None if value == UNDEFINED else value == 1


def _stamped(old: Audit, by: Audit) -> Audit:
    return touched(
        old,
        user=by.modify_user,
        date=by.modify_date,
        serial=by.serial,
        version=by.data_version,
    )


def _cluster_row(core: Core) -> Row:
    one = core.catalog.cluster
    return {
        "brokerPort": one.broker_port,
        "brokerTLSPort": one.broker_tls_port,
        "brokerWebPort": one.broker_web_port,
        "maxMsgSizeInMB": one.max_msg_size_in_mb,
        "qryPriorityId": one.qry_priority,
        "flowCtrlEnable": one.flow_enabled,
        "flowCtrlRuleCount": one.flow_count,
        "flowCtrlInfo": orjson.loads(one.flow_rules),
        **one.props.web(),
        **one.audit.web(),
    }


def _cluster_flow(core: Core) -> Row:
    one = core.catalog.cluster
    return {
        "statusId": int(one.flow_enabled),
        "maxMsgSizeInMB": one.max_msg_size_in_mb,
        "qryPriorityId": one.qry_priority,
        "ruleCnt": one.flow_count,
        "flowCtrlInfo": orjson.loads(one.flow_rules),
        **one.audit.web(),
    }


def _who(audit: Audit) -> dict[str, Any]:
    return {
        "createUser": audit.create_user,
        "createDate": audit.create_date,
        "modifyUser": audit.modify_user,
        "modifyDate": audit.modify_date,
    }
