"""Requests 20 to 22: consumers that balance their partitions among themselves."""

import logging
from collections.abc import Iterable

from mq.client.machine import clock
from mq.daemons.tube.master.core import Core, Peer
from mq.daemons.tube.master.groups import MOST_HELD, ConsumeType, Group, Member, Refused
from mq.daemons.tube.master.requests import checks
from mq.daemons.tube.master.requests.checks import authorized
from mq.daemons.tube.master.requests.consumers import joined, known
from mq.protocol.tube.codes import UNDEFINED, Code
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.messages import (
    ClientSubRepInfo,
    GetPartMetaRequestC2M,
    GetPartMetaResponseM2C,
    HeartRequestC2MV2,
    HeartResponseM2CV2,
    OpsTaskInfo,
    RegisterRequestC2MV2,
    RegisterResponseM2CV2,
)
from mq.protocol.tube.strings import BrokerInfo, Partition, PartitionKey, TopicPartitions

log = logging.getLogger(__name__)


def register(core: Core, request: RegisterRequestC2MV2, peer: Peer) -> RegisterResponseM2CV2:
    """Add a consumer to its group."""
    (consumer, group_name), client = checks.consumer_of(core, request, peer, request.hostName)
    topics = checks.consumer_topics(core.catalog, request.topicList)
    items = checks.conditions(request.topicCondition)
    if request.sourceCount > 0 and not 0 <= request.nodeId < request.sourceCount:
        raise Refused(
            Code.BAD_REQUEST, "Request nodeId value must be between in [0, sourceCount-1]!"
        )
    report = request.subRepInfo
    held = _held(core, report) if report.reportSubInfo else {}
    member = Member(
        consumer,
        group_name,
        ConsumeType.CLIENT_BALANCE,
        topics,
        items,
        over_tls=peer.over_tls,
        address=peer.address,
        source_count=request.sourceCount,
        node_id=request.nodeId,
        last_assigned=_assigned(report),
        meta_id=report.topicMetaInfoId if request.HasField("subRepInfo") else UNDEFINED,
    )
    checks.may_consume(core.catalog, consumer, group_name, topics, items)
    group = joined(core, member)
    group.not_allocated = False
    member = group.members[consumer]
    core.groups.hold(member, held)
    log.info("consumer %s of %s registers from %s", consumer, group_name, peer.address)
    answer = RegisterResponseM2CV2(
        errCode=Code.SUCCESS,
        errMsg="OK!",
        brokerConfigId=core.brokers.list_id,
        opsTaskInfo=_tasks(core, group, request.opsTaskInfo),
        authorizedInfo=authorized(core, client),
    )
    known_id = report.brokerConfigId if request.HasField("subRepInfo") else UNDEFINED
    if known_id != core.brokers.list_id:
        answer.brokerConfigList.extend(core.brokers.infos(over_tls=peer.over_tls))
    return answer


def heartbeat(core: Core, request: HeartRequestC2MV2, peer: Peer) -> HeartResponseM2CV2:
    """Process a consumer's heartbeat, with its partitions if reported."""
    (consumer, group_name), client = checks.consumer_of(core, request, peer)
    group, member = known(core, consumer, group_name)
    report, reports = request.subRepInfo, request.HasField("subRepInfo")
    if reports:
        member.last_assigned, member.meta_id = _assigned(report), report.topicMetaInfoId
    if report.reportSubInfo:
        core.groups.hold(member, _held(core, report))
    answer = HeartResponseM2CV2(
        errCode=Code.SUCCESS,
        errMsg="OK!",
        brokerConfigId=core.brokers.list_id,
        opsTaskInfo=_tasks(core, group, request.opsTaskInfo),
        authorizedInfo=authorized(core, client),
    )
    if not reports or report.brokerConfigId != core.brokers.list_id:
        answer.brokerConfigList.extend(core.brokers.infos(over_tls=peer.over_tls))
    quiet = clock.milliseconds() - member.last_assigned
    forced = core.config.max_meta_force_update_period_ms
    if member.last_assigned >= 0 and member.held and quiet > forced:
        answer.topicMetaInfoId = group.meta_id
        if group.meta_id != member.meta_id:
            answer.topicMetaInfoList.extend(group.meta.values())
    return answer


def part_meta(core: Core, request: GetPartMetaRequestC2M, peer: Peer) -> GetPartMetaResponseM2C:
    """Return the present state of brokers and topics, unless the client knows it."""
    (consumer, group_name), _ = checks.consumer_of(core, request, peer)
    group, _ = known(core, consumer, group_name)
    if group.meta_id == UNDEFINED:
        core.refresh_meta(group)
    answer = GetPartMetaResponseM2C(
        errCode=Code.SUCCESS,
        errMsg="OK!",
        topicMetaInfoId=group.meta_id,
        brokerConfigId=core.brokers.list_id,
    )
    if request.topicMetaInfoId != group.meta_id:
        answer.topicMetaInfoList.extend(group.meta.values())
    if request.brokerConfigId != core.brokers.list_id:
        answer.brokerConfigList.extend(core.brokers.infos(over_tls=peer.over_tls))
    return answer


def _assigned(report: ClientSubRepInfo) -> int:
    return report.lstAssignedTime if report.HasField("lstAssignedTime") else UNDEFINED


def _held(core: Core, report: ClientSubRepInfo) -> dict[PartitionKey, Partition]:
    """Return a consumer's reported partitions, of configured brokers. Raises Refused with 400."""
    found: dict[PartitionKey, Partition] = {}
    for key in _keys(report.partSubInfo):
        broker = core.catalog.broker(key.broker_id)
        if broker is not None:
            place = BrokerInfo(broker.broker_id, broker.ip, broker.port)
            found[key] = Partition(place, key.topic, key.partition_id)
        if len(found) > MOST_HELD:
            raise Refused(Code.BAD_REQUEST, "more partitions than one may report")
    return found


def _keys(texts: Iterable[str]) -> Iterable[PartitionKey]:
    for text in texts:
        try:
            yield from TopicPartitions.parse(text).keys
        except MalformedText as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from None


def _tasks(core: Core, group: Group, known_ids: OpsTaskInfo) -> OpsTaskInfo:
    """Return limits and commands of administrators, if the client has others (buildOpsTaskInfo)."""
    tasks = OpsTaskInfo()
    cluster, control = core.catalog.cluster, core.catalog.group_control(group.name)
    if group.from_max_id not in (UNDEFINED, known_ids.csmFrmMaxOffsetCtrlId):
        tasks.csmFrmMaxOffsetCtrlId = group.from_max_id
    if cluster.flow_enabled:
        tasks.defFlowCheckId = cluster.audit.serial
        if known_ids.defFlowCheckId != cluster.audit.serial:
            tasks.defFlowControlInfo = cluster.flow_rules
    if control is not None and control.flow_enabled:
        tasks.groupFlowCheckId = control.audit.serial
        tasks.qryPriorityId = control.qry_priority
        if known_ids.groupFlowCheckId != control.audit.serial:
            tasks.groupFlowControlInfo = control.flow_rules
    return tasks
