"""Requests 4 to 6: consumers whose partitions the master assigns."""

import logging
from collections.abc import Iterable
from typing import Any

from mq.client.machine import clock
from mq.daemons.tube.master.balance import fewest_members
from mq.daemons.tube.master.core import Core, MemberKey, Peer
from mq.daemons.tube.master.groups import MOST_HELD, ConsumeType, Group, Member, Refused
from mq.daemons.tube.master.liveness import Unknown
from mq.daemons.tube.master.requests import checks
from mq.daemons.tube.master.requests.checks import authorized, legal
from mq.daemons.tube.master.requests.producers import OK
from mq.protocol.tube.codes import Code
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.messages import (
    CloseRequestC2M,
    CloseResponseM2C,
    EventProto,
    HeartRequestC2M,
    HeartResponseM2C,
    RegisterRequestC2M,
    RegisterResponseM2C,
)
from mq.protocol.tube.names import check_session_key
from mq.protocol.tube.strings import Partition, PartitionKey, SubscribeInfo

log = logging.getLogger(__name__)


def register(core: Core, request: RegisterRequestC2M, peer: Peer) -> RegisterResponseM2C:
    """Add a consumer to its group."""
    (consumer, group_name), client = checks.consumer_of(core, request, peer, request.hostName)
    member = _member(core, request, consumer, group_name, peer)
    _check_bound(core, member)
    checks.may_consume(core.catalog, consumer, group_name, member.topics, member.conditions)
    held = _held(request.subscribeInfo)
    group = joined(core, member)
    if held:
        core.groups.hold(group.members[consumer], held)
    if held or (request.HasField("notAllocated") and not request.notAllocated):
        group.not_allocated = False
    log.info("consumer %s of %s registers from %s", consumer, group_name, peer.address)
    answer = RegisterResponseM2C(
        **OK,
        **_flow(core, request, group_name),
        authorizedInfo=authorized(core, client),
        notAllocated=group.not_allocated,
    )
    return answer


def heartbeat(core: Core, request: HeartRequestC2M, peer: Peer) -> HeartResponseM2C:
    """Process a consumer's heartbeat, with its partitions and finished events if reported; return
    its
    next event."""
    (consumer, group_name), client = checks.consumer_of(core, request, peer)
    group, member = known(core, consumer, group_name)
    if member.held is None:
        member.held = {}
    round_id = request.event.rebalanceId if request.HasField("event") else 0
    if request.reportSubscribeInfo:
        changed = core.groups.hold(member, _held(request.subscribeInfo))
        if changed and round_id <= 0:
            log.info("%s of %s has other partitions than assigned", consumer, group_name)
    if round_id > 0:
        group.not_allocated = False
        if group.events.done(consumer, round_id, request.event.opType) is not None:
            core.events_done += 1
    answer = HeartResponseM2C(
        **OK,
        **_flow(core, request, group_name),
        authorizedInfo=authorized(core, client),
        notAllocated=group.not_allocated,
    )
    event = group.events.next(consumer, peer.address)
    if event is not None:
        proto = EventProto(rebalanceId=event.round_id, opType=event.kind)
        proto.subscribeInfo.extend(
            str(SubscribeInfo(consumer, group_name, _reachable(core, member, one)))
            for one in event.partitions
        )
        answer.event.CopyFrom(proto)
    return answer


def close(core: Core, request: CloseRequestC2M, peer: Peer) -> CloseResponseM2C:
    """Remove a consumer."""
    (consumer, group_name), _ = checks.consumer_of(core, request, peer)
    core.remove_consumer(MemberKey(consumer, group_name))
    log.info("consumer %s of %s closes", consumer, group_name)
    return CloseResponseM2C(**OK)


def joined(core: Core, member: Member) -> Group:
    """Return the group of a joined consumer, which sends heartbeats from now on. Raises Refused."""
    group = core.groups.join(member)
    # Before any other refusal: a member without expiry would stay for ever.
    core.consumer_beats.begin(MemberKey(member.id, member.group), core.now())
    return group


def known(core: Core, consumer: str, group_name: str) -> tuple[Group, Member]:
    """Return a group and its member, and renew the member. Raises Refused with 411."""
    group = core.groups.get(group_name)
    if group is None:
        raise Refused(Code.HB_NO_NODE, f"Not found groupName {group_name} in holder!")
    member = group.members.get(consumer)
    try:
        core.consumer_beats.renew(MemberKey(consumer, group_name), core.now())
    except Unknown as error:
        text = f"Update consumer node exception:{error}"
        raise Refused(Code.HB_NO_NODE, text) from None
    if member is None:
        text = f"Not found client {consumer} in group({group_name})"
        raise Refused(Code.HB_NO_NODE, text)
    return group, member


def _member(
    core: Core, request: RegisterRequestC2M, consumer: str, group_name: str, peer: Peer
) -> Member:
    topics = checks.consumer_topics(core.catalog, request.topicList)
    consume_type = ConsumeType.BOUND if request.requireBound else ConsumeType.NORMAL
    required = checks.required_partitions(consume_type, topics, request.requiredPartition)
    return Member(
        consumer,
        group_name,
        consume_type,
        topics,
        checks.conditions(request.topicCondition),
        over_tls=peer.over_tls,
        address=peer.address,
        session_key=request.sessionKey.strip(),
        session_time=request.sessionTime or clock.milliseconds(),
        source_count=request.totalCount if request.HasField("totalCount") else -1,
        selects_big=not request.HasField("selectBig") or request.selectBig,
        required=required,
    )


def _check_bound(core: Core, member: Member) -> None:
    """Check the further requirements of a bound group. Raises Refused with 400
    (checkConsumerInputInfo).
    """
    if member.consume_type is not ConsumeType.BOUND:
        return
    if not member.session_key:
        raise Refused(Code.BAD_REQUEST, "[Parameter error] blank value of sessionKey!")
    legal(check_session_key, member.session_key)
    if member.source_count <= 0:
        raise Refused(Code.BAD_REQUEST, "[Parameter error] totalSourceCount must over zero!")
    control = core.catalog.group_control(member.group)
    if core.config.start_offset_reset_check and control is None:
        raise Refused(
            Code.BAD_REQUEST,
            "[unauthorized subscribe] ConsumeGroup must be authorized by administrator before "
            "using bound subscribe, please contact to administrator!",
        )
    brokers = core.brokers.views.most_brokers(member.topics)
    fewest = fewest_members(brokers, member.source_count, core.allowed_rate(member.group))
    if fewest:
        raise Refused(
            Code.BAD_REQUEST,
            f"[Parameter error] System requires at least {fewest} clients to consume data "
            "together, please add client resources!",
        )


def _held(texts: Iterable[str]) -> dict[PartitionKey, Partition]:
    """Return a consumer's reported partitions. Raises Refused with 400 (TubeMQ skips unreadable
    ones,
    and assigns them to other members)."""
    found: dict[PartitionKey, Partition] = {}
    for text in texts:
        if not text.strip():
            continue
        try:
            partition = SubscribeInfo.parse(text).partition
        except MalformedText as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from None
        found[partition.key] = partition
        if len(found) > MOST_HELD:
            raise Refused(Code.BAD_REQUEST, "more partitions than one may report")
    return found


def _reachable(core: Core, member: Member, partition: Partition) -> Partition:
    """Return a partition with the broker's port that the member uses."""
    if not member.over_tls:
        return partition
    run = core.brokers.runs.get(partition.broker.broker_id)
    if run is None or not run.tls_port:
        return partition
    broker = partition.broker.with_port(run.tls_port)
    return Partition(broker, partition.topic, partition.partition_id)


def _flow(core: Core, request: Any, group: str) -> dict[str, Any]:
    if not (request.HasField("defFlowCheckId") or request.HasField("groupFlowCheckId")):
        return {}
    return checks.flow_fields(core, group, request.defFlowCheckId, request.groupFlowCheckId)
