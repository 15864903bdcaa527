"""Topics: deploying, changing, deleting, removing and listing (WebTopicDeployHandler)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mq.daemons.tube.master.admin.answers import Row, data, outcome, stamped, who
from mq.daemons.tube.master.admin.brokers import deploy_row
from mq.daemons.tube.master.admin.parameters import Parameters
from mq.daemons.tube.master.catalog import ChangeRefused, DataCode
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.master.records import (
    SYSTEM_TOPIC,
    Audit,
    TopicControl,
    TopicDeploy,
    TopicStatus,
)
from mq.daemons.tube.master.storage import Changes
from mq.protocol.tube.codes import UNDEFINED


async def add(core: Core, p: Parameters) -> Row:
    """Deploy topics on brokers. topicName, brokerId, createUser, and their properties."""
    audit = p.audit(adds=True, serial=core.catalog.next_serial())
    return await _each(
        core, p, lambda broker_id, topic: _addition(core, p, broker_id, topic, audit)
    )


async def add_many(core: Core, p: Parameters) -> Row:
    """Deploy a list of records, topicJsonSet."""
    rows: list[Any] = []
    for one in p.records("topicJsonSet", "topicSet"):
        rows += (await add(core, one))["data"]
    return data(rows)


async def update(core: Core, p: Parameters) -> Row:
    """Change the properties of topics on brokers. topicName, brokerId, modifyUser."""
    audit = p.audit(adds=False, serial=core.catalog.next_serial())
    return await _each(core, p, lambda broker_id, topic: _update(core, p, broker_id, topic, audit))


async def delete(core: Core, p: Parameters) -> Row:
    """Close topics on brokers, which can be undone. They must accept nothing."""
    return await _set_status(core, p, TopicStatus.SOFT_DELETE)


async def redo(core: Core, p: Parameters) -> Row:
    """Undo a deletion."""
    return await _set_status(core, p, TopicStatus.OK)


async def remove(core: Core, p: Parameters) -> Row:
    """Let brokers remove topics with their messages."""
    return await _set_status(core, p, TopicStatus.SOFT_REMOVE)


async def query(core: Core, p: Parameters) -> Row:
    """Return topics with their brokers, as set up and as reported (admin_query_topic_info)."""
    rows = []
    for topic, deploys in _found(core, p).items():
        control = core.catalog.topic_control(topic)
        size = UNDEFINED if control is None else control.max_msg_size_in_mb
        row: Row = {
            "topicName": topic,
            "maxMsgSizeInMB": core.catalog.cluster.max_msg_size_in_mb
            if size == UNDEFINED
            else size,
            "topicInfo": [_with_run(core, one) for one in deploys],
            **_totals(core, topic, deploys),
            "authData": _auth(core, control),
        }
        rows.append(row)
    return data(rows)


async def query_deployed(core: Core, p: Parameters) -> Row:
    """Return the same in the form of later releases (admin_query_topic_deploy_info)."""
    rows = []
    for topic, deploys in _found(core, p).items():
        control = core.catalog.topic_control(topic) or TopicControl(topic)
        row: Row = {
            **control_row(control),
            "deployInfo": [_with_run(core, one) for one in deploys],
            **_totals(core, topic, deploys),
        }
        if p.flag("withGroupAuthInfo", "wGAI"):
            row["groupAuthInfo"] = [
                {"topicName": one.topic, "groupName": one.group, "consumeEnable": one.enabled}
                for one in core.catalog.consume_controls(topic)
            ]
            row["groupAuthCount"] = len(row["groupAuthInfo"])
        rows.append(row)
    return data(rows)


def control_row(control: TopicControl) -> Row:
    """Return the settings of a topic for all brokers."""
    return {
        "topicName": control.topic,
        "topicNameId": control.topic_id,
        "enableAuthControl": control.auth_enabled,
        "maxMsgSizeInMB": control.max_msg_size_in_mb,
        **control.audit.web(),
    }


def with_control(core: Core, topic: str, audit: Audit) -> dict[tuple[str, str], Any]:
    """Return the control of a topic, if none exists yet."""
    if core.catalog.topic_control(topic) is not None:
        return {}
    return {(TopicControl.kind, topic): TopicControl(topic, audit=audit)}


def _found(core: Core, p: Parameters) -> dict[str, list[TopicDeploy]]:
    topics, ids = set(p.topics(needed=False)), set(p.broker_ids(needed=False))
    status = p.number("topicStatusId", "tStsId", default=UNDEFINED, most=3)
    found: dict[str, list[TopicDeploy]] = {}
    for topic in sorted(core.catalog.deployed_topics()):
        if topics and topic not in topics:
            continue
        deploys = [
            one
            for one in core.catalog.of_topic(topic)
            if (not ids or one.broker_id in ids) and status in (UNDEFINED, one.status)
        ]
        if deploys:
            found[topic] = deploys
    return found


async def _each(core: Core, p: Parameters, step: Callable[[int, str], Changes]) -> Row:
    rows = []
    for topic in p.topics(needed=True):
        for broker_id in p.broker_ids(needed=True):

            async def change(broker_id: int = broker_id, topic: str = topic) -> None:
                await core.catalog.change(lambda: step(broker_id, topic))

            rows.append(await outcome(change, brokerId=broker_id, topicName=topic))
    return data(rows)


def _addition(core: Core, p: Parameters, broker_id: int, topic: str, audit: Audit) -> Changes:
    broker = core.catalog.broker(broker_id)
    if broker is None:
        raise _no_broker(broker_id)
    old = core.catalog.deploy(broker_id, topic)
    if old is not None:
        what = "Existed" if old.status is TopicStatus.OK else "Softly deleted"
        then = "" if old.status is TopicStatus.OK else ", please resume or remove it first"
        text = f"{what} record found for brokerId-topicName({old.key}){then}!"
        raise ChangeRefused(DataCode.EXISTED, text)
    new = TopicDeploy(broker_id, topic, props=p.props(broker.props), audit=audit)
    return {(TopicDeploy.kind, new.key): new, **with_control(core, topic, audit)}


def _update(core: Core, p: Parameters, broker_id: int, topic: str, by: Audit) -> Changes:
    old = _known(core, broker_id, topic)
    new = replace(old, props=p.props(old.props))
    if new == old:
        raise ChangeRefused(DataCode.UNCHANGED, "Topic deploy configure not changed!")
    if topic == SYSTEM_TOPIC:
        raise ChangeRefused(DataCode.ILLEGAL_VALUE, f"{topic} is the brokers' own")
    if old.status is not TopicStatus.OK:
        raise ChangeRefused(
            DataCode.ILLEGAL_STATUS,
            "Softly deleted record cannot be changed, please resume or hard remove for "
            f"brokerId-topicName({old.key}) record!",
        )
    for what in ("num_partitions", "num_topic_stores"):
        if getattr(new.props, what) < getattr(old.props, what):
            raise ChangeRefused(
                DataCode.ILLEGAL_VALUE,
                f"Illegal value: {what} of brokerId-topicName({old.key}) is "
                f"{getattr(old.props, what)}, it cannot be less than before",
            )
    return {(TopicDeploy.kind, new.key): _stamped(new, by)}


async def _set_status(core: Core, p: Parameters, status: TopicStatus) -> Row:
    by = p.audit(adds=False, serial=core.catalog.next_serial())

    def step(broker_id: int, topic: str) -> Changes:
        old = _known(core, broker_id, topic)
        if old.status is status:
            return {}
        if topic == SYSTEM_TOPIC:
            raise ChangeRefused(DataCode.ILLEGAL_VALUE, f"{topic} is the brokers' own")
        _check_transition(old, status)
        return {(TopicDeploy.kind, old.key): _stamped(replace(old, status=status), by)}

    return await _each(core, p, step)


def _check_transition(old: TopicDeploy, status: TopicStatus) -> None:
    """Raises ChangeRefused (AbsTopicDeployMapperImpl.isValidValuesChange)."""
    if old.status.is_removed:
        text = f"The topic of brokerId-topicName({old.key}) is being removed"
        raise ChangeRefused(DataCode.ILLEGAL_STATUS, text)
    if status is TopicStatus.SOFT_REMOVE and old.status is not TopicStatus.SOFT_DELETE:
        text = f"The topic of brokerId-topicName({old.key}) must be deleted before it is removed"
        raise ChangeRefused(DataCode.ILLEGAL_STATUS, text)
    is_open = old.props.accept_publish or old.props.accept_subscribe
    if status is not TopicStatus.OK and is_open:
        raise ChangeRefused(
            DataCode.ILLEGAL_STATUS,
            "The values of acceptPublish and acceptSubscribe must be false before change status of "
            f"brokerId-topicName({old.key}) record!",
        )


def _known(core: Core, broker_id: int, topic: str) -> TopicDeploy:
    if core.catalog.broker(broker_id) is None:
        raise _no_broker(broker_id)
    deploy = core.catalog.deploy(broker_id, topic)
    if deploy is None:
        raise ChangeRefused(
            DataCode.NOT_EXIST,
            f"Not found the topic {topic}'s deploy configure in broker={broker_id}, please confirm "
            "the configure first!",
        )
    return deploy


def _no_broker(broker_id: int) -> ChangeRefused:
    return ChangeRefused(
        DataCode.NOT_EXIST,
        f"Not found broker configure by brokerId={broker_id}, please create the broker's configure "
        "first!",
    )


def _stamped(deploy: TopicDeploy, by: Audit) -> TopicDeploy:
    return replace(deploy, audit=stamped(deploy.audit, by))


def _with_run(core: Core, one: TopicDeploy) -> Row:
    conf = core.catalog.broker(one.broker_id)
    assert conf is not None
    views = core.brokers.views
    info = views.produced.get(one.broker_id, one.topic)
    publishing, subscribable = views.status(one.broker_id)
    run: Row = dict.fromkeys(
        ("acceptPublish", "acceptSubscribe", "numPartitions", "brokerManageStatus"), "-"
    )
    if info is not None:
        run = {
            "acceptPublish": publishing and info.accept_publish,
            "acceptSubscribe": subscribable and info.accept_subscribe,
            "numPartitions": info.partitions,
            "numTopicStores": info.stores,
            "brokerManageStatus": conf.status.text,
        }
    return {**deploy_row(one, conf), "runInfo": run}


def _totals(core: Core, topic: str, deploys: list[TopicDeploy]) -> Row:
    views = core.brokers.views
    infos = [views.produced.get(one.broker_id, topic) for one in deploys]
    running = [info for info in infos if info is not None]
    return {
        "infoCount": len(deploys),
        "totalCfgNumPart": sum(
            one.props.num_partitions * one.props.num_topic_stores for one in deploys
        ),
        "isSrvAcceptPublish": any(
            i.accept_publish and views.status(i.broker.broker_id)[0] for i in running
        ),
        "isSrvAcceptSubscribe": any(
            i.accept_subscribe and views.status(i.broker.broker_id)[1] for i in running
        ),
        "totalRunNumPartCount": sum(info.partitions * info.stores for info in running),
    }


def _auth(core: Core, control: TopicControl | None) -> Row:
    if control is None or not control.auth_enabled:
        return {}
    allowed = core.catalog.consume_controls(control.topic)
    return {
        "enableAuthControl": True,
        "createUser": control.audit.modify_user,
        "createDate": control.audit.modify_date,
        "authConsumeGroup": [{"groupName": one.group, **who(one.audit)} for one in allowed],
        "groupCount": len(allowed),
        "authFilterCondSet": [
            {
                "groupName": one.group,
                "condStatus": 2 if one.filter_enabled else 0,
                "filterConds": ",".join(one.filters),
                **who(one.audit),
            }
            for one in allowed
        ],
        "filterCount": len(allowed),
    }
