"""Settings of the cluster and of groups: ports and sizes, limits of consumption, priorities of
queries (WebMasterInfoHandler, WebAdminFlowRuleHandler, WebGroupResCtrlHandler).
"""

from collections.abc import Callable
from dataclasses import replace

import orjson

from mq.daemons.tube.master.admin.answers import Row, data, outcome, stamped
from mq.daemons.tube.master.admin.parameters import Parameters
from mq.daemons.tube.master.catalog import ChangeRefused
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.master.records import ClusterSettings, GroupControl
from mq.daemons.tube.master.storage import Changes
from mq.daemons.tube.web_methods import RequestRefused
from mq.protocol.tube.codes import UNDEFINED


async def set_cluster(core: Core, p: Parameters) -> Row:
    """Set ports and topics of new brokers, the size of messages, limits for all groups."""
    await _set_cluster(core, p, enabled=p.flag("flowCtrlEnable", "fCtrlEn"))
    return data([_cluster_row(core)])


async def query_cluster(core: Core, p: Parameters) -> Row:
    return data([_cluster_row(core)])


async def set_default_flow(core: Core, p: Parameters) -> Row:
    """Set limits for all groups without their own. flowCtrlInfo, statusId (1: in force)."""
    await _set_cluster(core, p, enabled=_status(p))
    return data([_cluster_flow(core)])


async def remove_default_flow(core: Core, p: Parameters) -> Row:
    """Remove the limits for groups without their own."""
    by = p.audit(adds=False, serial=core.catalog.next_serial())

    def step() -> Changes:
        old = core.catalog.cluster
        new = replace(old, flow_enabled=False, flow_count=0, flow_rules="[]")
        return {(new.kind, new.key): replace(new, audit=stamped(old.audit, by))}

    await _change(core, step)
    return data([_cluster_flow(core)])


async def query_default_flow(core: Core, p: Parameters) -> Row:
    return data([_cluster_flow(core)])


async def set_group_flow(core: Core, p: Parameters) -> Row:
    """Set limits of groups. groupName, flowCtrlInfo, statusId, qryPriorityId."""
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
            new = replace(new, audit=stamped(old.audit, by))
        return {(new.kind, new.key): new}

    return await _each_group(core, p, step)


async def remove_group_flow(core: Core, p: Parameters) -> Row:
    """Remove the limits of groups."""
    by = p.audit(adds=False, serial=core.catalog.next_serial())

    def step(group: str) -> Changes:
        old = core.catalog.group_control(group)
        if old is None:
            return {}
        new = replace(old, flow_enabled=False, flow_count=0, flow_rules="[]", qry_priority=301)
        return {(new.kind, new.key): replace(new, audit=stamped(old.audit, by))}

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
    """Set how many brokers may serve one member. groupName, alwdBrokerClientRate."""
    by = p.audit(adds=True, serial=core.catalog.next_serial())
    rate = p.number("alwdBrokerClientRate", "allowedBClientRate", "abcr", default=0)

    def step(group: str) -> Changes:
        old = core.catalog.group_control(group)
        new = replace(
            old or GroupControl(group, audit=by), res_check=rate > 0, broker_client_rate=rate
        )
        if old is not None:
            new = replace(new, audit=stamped(old.audit, by))
        return {(new.kind, new.key): new}

    return await _each_group(core, p, step)


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
        audit = by if old == ClusterSettings() else stamped(old.audit, by)
        return {(new.kind, new.key): replace(new, audit=audit)}

    await _change(core, step)


async def _change(core: Core, step: Callable[[], Changes]) -> None:
    try:
        await core.catalog.change(step)
    except ChangeRefused as refused:
        raise RequestRefused(str(refused), refused.code) from None


async def _each_group(core: Core, p: Parameters, step: Callable[[str], Changes]) -> Row:
    rows = []
    for each in p.groups(needed=True):

        async def change(group: str = each) -> None:
            await core.catalog.change(lambda: step(group))

        rows.append(await outcome(change, groupName=each))
    return data(rows)


def _status(p: Parameters) -> bool | None:
    """Return statusId: 1 for on, 0 for off."""
    value = p.number("statusId", default=UNDEFINED, most=1)
    return None if value == UNDEFINED else value == 1


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
