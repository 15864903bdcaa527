"""Brokers: setting up, enabling, disabling and listing (WebBrokerConfHandler)."""

from dataclasses import replace
from itertools import islice
from typing import Any

from mq.daemons.tube.master.admin.answers import Row, data, outcome, stamped, success
from mq.daemons.tube.master.admin.parameters import Parameters
from mq.daemons.tube.master.broker_run import Step
from mq.daemons.tube.master.catalog import ChangeRefused, DataCode
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.master.records import (
    SYSTEM_TOPIC,
    Audit,
    BrokerConf,
    ManageStatus,
    Props,
    TopicControl,
    TopicDeploy,
)
from mq.daemons.tube.master.storage import MOST_CHANGES, Changes
from mq.daemons.tube.web_methods import RequestRefused
from mq.protocol.tube.codes import UNDEFINED

_SYSTEM_PROPS = Props(num_topic_stores=1, num_partitions=10)
_STATUSES = {status.text: status for status in ManageStatus}


async def add(core: Core, p: Parameters) -> Row:
    """Set a broker up. brokerIp, createUser; brokerId, ports and its defaults for topics."""
    return data([await _add(core, p)])


async def add_many(core: Core, p: Parameters) -> Row:
    """Set up a list of records, brokerJsonSet."""
    return data([await _add(core, one) for one in p.records("brokerJsonSet", "brokerSet")])


async def update(core: Core, p: Parameters) -> Row:
    """Change ports and the defaults for topics. brokerId, modifyUser."""
    return data([await _update(core, p, each) for each in p.broker_ids(needed=True)])


async def online(core: Core, p: Parameters) -> Row:
    """Let brokers serve. brokerId, modifyUser."""
    return await _set_status(core, p, lambda _: ManageStatus.ONLINE)


async def offline(core: Core, p: Parameters) -> Row:
    """Take brokers out of service for producers and consumers. brokerId, modifyUser."""
    return await _set_status(core, p, lambda _: ManageStatus.OFFLINE)


async def read_or_write(core: Core, p: Parameters) -> Row:
    """Let brokers only be written to, or only read from. acceptPublish or acceptSubscribe."""
    publishes = p.flag("acceptPublish", "accPub")
    subscribes = p.flag("acceptSubscribe", "accSub")
    if publishes is None and subscribes is None:
        raise RequestRefused(
            "Fields acceptPublish or acceptSubscribe must exist at this method!",
            DataCode.ILLEGAL_VALUE,
        )

    def wanted(old: BrokerConf) -> ManageStatus:
        if old.status is ManageStatus.DRAFT:
            raise ChangeRefused(
                DataCode.CONDITION_LACK,
                "The broker configure under draft status, please online first!",
            )
        return ManageStatus.of(
            publishes=old.status.publishes if publishes is None else publishes,
            subscribes=old.status.subscribes if subscribes is None else subscribes,
        )

    return await _set_status(core, p, wanted)


async def reload(core: Core, p: Parameters) -> Row:
    """Send brokers their settings again. brokerId, modifyUser."""
    p.audit(adds=False, serial=0)
    rows = []
    for broker_id in p.broker_ids(needed=True):
        conf = core.catalog.broker(broker_id)
        row: Row = {"brokerId": broker_id, "brokerIp": "", "success": False}
        if conf is None:
            row |= {"errCode": DataCode.NOT_EXIST, "errInfo": "The broker configure not exist!"}
        elif not conf.status.is_online:
            text = (
                f"The broker manage status by brokerId={broker_id} is not in online status, can't "
                "reload this configure! "
            )
            row |= {"errCode": DataCode.ILLEGAL_STATUS, "errInfo": text}
        else:
            core.brokers.reload(broker_id)
            row |= {"brokerIp": conf.ip, "success": True}
            row |= {"errCode": DataCode.SUCCESS, "errInfo": "Ok!"}
        rows.append(row)
    return data(rows)


async def delete(core: Core, p: Parameters) -> Row:
    """Delete brokers that are offline and have no topics, or with isReservedData=true also with
    topics:
    then their files remain."""
    p.audit(adds=False, serial=0)
    keeps = p.flag("isReservedData", "isRsvDt", default=False)

    def step(broker_id: int) -> Changes:
        conf = core.catalog.broker(broker_id)
        if conf is None:
            return {}
        if conf.status.is_online:
            raise ChangeRefused(
                DataCode.ILLEGAL_STATUS, "Broker manage status is online, please offline first!"
            )
        topics = [t for t in core.catalog.of_broker(broker_id) if t.topic != SYSTEM_TOPIC]
        if topics and not keeps:
            raise ChangeRefused(
                DataCode.UNCLEANED,
                f"Illegal operate conditions, the broker({broker_id})'s topic deploy configure "
                "uncleaned, please delete them first!",
            )
        open_ones = [t for t in topics if t.props.accept_publish or t.props.accept_subscribe]
        if open_ones:
            raise ChangeRefused(
                DataCode.ILLEGAL_STATUS,
                "The values of acceptPublish and acceptSubscribe must be false before delete "
                f"brokerId-topicName({open_ones[0].key}) record!",
            )
        gone: dict[tuple[str, str], None] = {
            (TopicDeploy.kind, one.key): None for one in core.catalog.of_broker(broker_id)
        }
        if len(gone) >= MOST_CHANGES:  # the broker is deleted with its last topics
            return dict(islice(gone.items(), MOST_CHANGES))
        return {(BrokerConf.kind, conf.key): None, **gone}

    rows = []
    for each in p.broker_ids(needed=True):

        async def forget(broker_id: int = each) -> None:
            while len(await core.catalog.change(lambda: step(broker_id))) == MOST_CHANGES:
                pass

        rows.append(await outcome(forget, brokerId=each, brokerIp=""))
    return data(rows)


async def query(core: Core, p: Parameters) -> Row:
    """Return brokers as set up; with withTopic=true with their topics."""
    ids, topics = p.broker_ids(needed=False), set(p.topics(needed=False))
    status, with_topic = p.text("manageStatus", "mSts"), p.flag("withTopic", "wTopic")
    rows = []
    for conf in core.catalog.brokers():
        deployed = core.catalog.of_broker(conf.broker_id)
        if (
            (ids and conf.broker_id not in ids)
            or (status and conf.status.text != status)
            or (topics and topics.isdisjoint(one.topic for one in deployed))
        ):
            continue
        row = _row(core, conf)
        if with_topic:
            row["topicSet"] = [deploy_row(one, conf) for one in deployed]
        rows.append(row)
    return data(rows)


async def run_status(core: Core, p: Parameters) -> Row:
    """Return the state of brokers; with withDetail=true also the progress of changes."""
    ids, detail = p.broker_ids(needed=False), p.flag("withDetail", "wDtl")
    rows = []
    for conf in core.catalog.brokers():
        if ids and conf.broker_id not in ids:
            continue
        abnormal = core.brokers.abnormal.get(conf.broker_id)
        if p.flag("onlyAbnormal", "oAbn") and abnormal is None:
            continue
        rows.append(_status_row(core, conf, detail=bool(detail)))
    return data(rows)


async def release_forbidden(core: Core, p: Parameters) -> Row:
    """No effect: no broker is taken out of service automatically."""
    p.broker_ids(needed=True)
    return success()


def deploy_row(one: TopicDeploy, conf: BrokerConf) -> Row:
    """Return a topic on a broker."""
    return {
        "topicName": one.topic,
        "brokerId": one.broker_id,
        "topicNameId": UNDEFINED,
        "brokerIp": conf.ip,
        "brokerPort": conf.port,
        "topicStatusId": int(one.status),
        **one.props.web(),
        **one.audit.web(),
    }


async def _add(core: Core, p: Parameters) -> Row:
    cluster = core.catalog.cluster
    ip = p.ip()
    broker_id = p.number("brokerId", default=0) or _id_of(ip)
    status = p.text("manageStatus", "mSts") or ManageStatus.DRAFT.text
    if status not in _STATUSES:
        raise RequestRefused(
            f"Illegal manageStatus parameter value :{status[:40]}", DataCode.ILLEGAL_VALUE
        )
    audit = p.audit(adds=True, serial=core.catalog.next_serial())
    conf = BrokerConf(
        broker_id,
        ip,
        p.number("brokerPort", default=cluster.broker_port, least=1, most=65535),
        p.number("brokerTLSPort", default=cluster.broker_tls_port, least=1, most=65535),
        p.number("brokerWebPort", "bWebPort", default=cluster.broker_web_port, least=1, most=65535),
        _STATUSES[status],
        p.number("regionId", default=0),
        p.number("groupId", "gId", default=0),
        p.props(cluster.props),
        audit,
    )
    return await outcome(
        lambda: core.catalog.change(lambda: addition(core, conf)), brokerId=broker_id, brokerIp=ip
    )


def addition(core: Core, conf: BrokerConf) -> Changes:
    """Return the records of a broker with the system topic. Raises ChangeRefused if it exists.

    TubeMQ allows one broker per address; ours allows one per address and port.
    """
    for other in core.catalog.brokers():
        if other.broker_id == conf.broker_id:
            text = f"Duplicated broker configure record, query by brokerId : {conf.broker_id}"
            raise ChangeRefused(DataCode.EXISTED, text)
        if (other.ip, other.port) == (conf.ip, conf.port):
            text = f"Duplicated broker configure record, query by brokerIp : {conf.ip}:{conf.port}"
            raise ChangeRefused(DataCode.EXISTED, text)
    audit = replace(conf.audit, create_user="systemSelf", modify_user="systemSelf")
    system = TopicDeploy(conf.broker_id, SYSTEM_TOPIC, props=_SYSTEM_PROPS, audit=audit)
    changes: dict[tuple[str, str], Any] = {
        (BrokerConf.kind, conf.key): conf,
        (TopicDeploy.kind, system.key): system,
    }
    if core.catalog.topic_control(SYSTEM_TOPIC) is None:
        changes[TopicControl.kind, SYSTEM_TOPIC] = TopicControl(SYSTEM_TOPIC, audit=audit)
    return changes


async def _update(core: Core, p: Parameters, broker_id: int) -> Row:
    audit = p.audit(adds=False, serial=core.catalog.next_serial())

    def step() -> Changes:
        old = _known(core, broker_id)
        new = replace(
            old,
            port=p.number("brokerPort", default=old.port, least=1, most=65535),
            tls_port=p.number("brokerTLSPort", default=old.tls_port, least=1, most=65535),
            web_port=p.number("brokerWebPort", "bWebPort", default=old.web_port, most=65535),
            region=p.number("regionId", default=old.region),
            group=p.number("groupId", "gId", default=old.group),
            props=p.props(old.props),
        )
        if new == old:
            raise ChangeRefused(DataCode.UNCHANGED, "Broker configure not changed!")
        return {(BrokerConf.kind, new.key): _stamped(new, audit)}

    return await outcome(lambda: core.catalog.change(step), brokerId=broker_id, brokerIp="")


async def _set_status(core: Core, p: Parameters, wanted: Any) -> Row:
    audit = p.audit(adds=False, serial=core.catalog.next_serial())

    def step(broker_id: int) -> Changes:
        old = _known(core, broker_id)
        status = wanted(old)
        if status is old.status:
            return {}
        return {(BrokerConf.kind, old.key): _stamped(replace(old, status=status), audit)}

    rows = []
    for each in p.broker_ids(needed=True):
        conf = core.catalog.broker(each)
        ip = conf.ip if conf is not None else ""

        async def change(broker_id: int = each) -> None:
            await core.catalog.change(lambda: step(broker_id))

        rows.append(await outcome(change, brokerId=each, brokerIp=ip))
    return data(rows)


def _known(core: Core, broker_id: int) -> BrokerConf:
    conf = core.catalog.broker(broker_id)
    if conf is None:
        raise ChangeRefused(DataCode.NOT_EXIST, "The broker configure not exist!")
    return conf


def _stamped(conf: BrokerConf, by: Audit) -> BrokerConf:
    return replace(conf, audit=stamped(conf.audit, by))


def _id_of(ip: str) -> int:
    """Return the id of a broker without one: its address as a number, without a sign."""
    number = int.from_bytes(bytes(map(int, ip.split("."))), "big", signed=True)
    return abs(number)


def _row(core: Core, conf: BrokerConf) -> Row:
    run = core.brokers.runs.get(conf.broker_id)
    return {
        "brokerId": conf.broker_id,
        "brokerIp": conf.ip,
        "brokerPort": conf.port,
        "brokerTLSPort": conf.tls_port,
        "brokerWebPort": conf.web_port,
        "manageStatus": conf.status.text,
        "isConfChanged": run is not None and run.config_changed,
        "isConfLoaded": run is not None and run.config_loaded,
        "regionId": conf.region,
        "groupId": conf.group,
        **conf.props.web(),
        **conf.audit.web(),
    }


def _status_row(core: Core, conf: BrokerConf, *, detail: bool) -> Row:
    run = core.brokers.runs.get(conf.broker_id)
    abnormal = core.brokers.abnormal.get(conf.broker_id)
    row: Row = {
        "brokerId": conf.broker_id,
        "brokerIp": conf.ip,
        "brokerPort": conf.port,
        "brokerWebPort": conf.web_port,
        "manageStatus": conf.status.text,
        "brokerTLSPort": conf.tls_port,
        "enableTLS": "-" if run is None else bool(run.tls_port),
        "isRepAbnormal": abnormal is not None,
    }
    if abnormal is not None:
        row["repStatus"] = abnormal.read_status * 10 + abnormal.write_status
    row["isAutoForbidden"] = False
    if run is None or conf.status is ManageStatus.DRAFT:
        names = ("isConfChanged", "isConfLoaded", "isBrokerOnline", "brokerVersion")
        row["runStatus"] = "-" if conf.status is ManageStatus.DRAFT else "unRegister"
        row |= dict.fromkeys(("subStatus", *names, "acceptPublish", "acceptSubscribe"), "-")
        return row
    row["runStatus"] = "running" if run.online else "notRegister"
    row["subStatus"] = "idle" if run.step is Step.IDLE else "processing_event"
    if run.step is not Step.IDLE:
        row["stepOp"] = int(run.step)
    row |= {
        "isConfChanged": str(run.config_changed).lower(),
        "isConfLoaded": str(run.config_loaded).lower(),
        "isBrokerOnline": str(run.online).lower(),
        "brokerVersion": "-",
        "acceptPublish": str(conf.status.publishes).lower(),
        "acceptSubscribe": str(conf.status.subscribes).lower(),
    }
    if detail:
        row["BrokerRunStatusInfo"] = {
            "type": "BrokerRunStatusInfo",
            "brokerInfo": str(run.broker),
            "curStepStatus": run.step.text,
            "isOnline": run.online,
            "isOverTLS": run.over_tls,
            "BrokerSyncData": {
                "syncDownDataConfId": run.config_id,
                "syncDownDataChkSumId": run.checksum,
                "syncUpTopicInfoMap": {name: str(t) for name, t in run.topics.items()},
            },
        }
    return row
