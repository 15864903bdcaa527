"""The checks of every request, in TubeMQ's order and with its codes (PBParameterUtils)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from mq.daemons.tube.master.catalog import Catalog
from mq.daemons.tube.master.certificates import Client
from mq.daemons.tube.master.core import Core, MemberKey, Peer
from mq.daemons.tube.master.groups import ConsumeType, Refused
from mq.protocol.tube import names
from mq.protocol.tube.codes import UNDEFINED, Code
from mq.protocol.tube.errors import IllegalName, MalformedText
from mq.protocol.tube.messages import MasterAuthorizedInfo
from mq.protocol.tube.strings import PartitionKey, RequiredPartitions, TopicCondition

T = TypeVar("T")

# Of a list of partitions in one text.
MOST_REQUIRED_TEXT = 1024 * 1024


def legal(check: Callable[[str], T], text: str) -> T:
    """Return a checked name. Raises Refused with 400."""
    try:
        return check(text)
    except IllegalName as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from None


def consumer_of(
    core: Core, request: Any, peer: Peer, host_name: str | None = None
) -> tuple[MemberKey, Client]:
    """Return the group member of a request to an active master.

    A registration has the name of its host. Raises Refused.
    """
    client = core.certificates.check_client(
        request.authInfo,
        request.clientId,
        peer.host,
        produces=False,
        registers=host_name is not None,
    )
    consumer = legal(names.check_client_id, request.clientId)
    if host_name is not None:
        legal(names.check_host, host_name)
    group = legal(names.check_group, request.groupName)
    core.check_active(consumer)
    return MemberKey(consumer, group), client


def producer_topics(topics: Iterable[str]) -> frozenset[str]:
    """Return the topics of a producer, possibly none yet. Raises Refused with 400."""
    given = frozenset(topic.strip() for topic in topics) - {""}
    if names.OFFSET_HISTORY_TOPIC in given:
        raise Refused(
            Code.BAD_REQUEST,
            f"System Topic {names.OFFSET_HISTORY_TOPIC} does not allow client produce data!",
        )
    try:
        return names.check_topics(given)
    except IllegalName as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from None


def consumer_topics(catalog: Catalog, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics of a group. Raises Refused: 400 for none or too many, 431 for an unknown
    one.
    """
    given = list(topics)
    if not given:
        raise Refused(Code.BAD_REQUEST, "Request miss necessary subscribed topicList data!")
    kept = frozenset(topic.strip() for topic in given) - {""}
    if not kept:
        raise Refused(Code.BAD_REQUEST, "Request subscribed topicList data must not Blank!")
    if len(kept) > names.MAX_TOPICS:
        raise Refused(
            Code.BAD_REQUEST,
            f"Subscribed topicList size over max value, required max count is {names.MAX_TOPICS}",
        )
    missing = sorted(kept - catalog.deployed_topics())
    if missing:
        shown = ", ".join(one[: names.MAX_TOPIC] for one in missing[:20])
        raise Refused(Code.TOPIC_NOT_DEPLOYED, f"Requested topic [[{shown}]] not deployed!")
    return kept


def conditions(texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return filter items by topic. Raises Refused with 400 (TubeMQ skips unreadable ones)."""
    found: dict[str, frozenset[str]] = {}
    for text in texts:
        if not text.strip():
            continue
        try:
            one = TopicCondition.parse(text)
            found[one.topic] = names.check_filter_items({*found.get(one.topic, ()), *one.items})
        except (MalformedText, IllegalName) as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from None
        if len(found) > names.MAX_TOPICS:
            raise Refused(Code.BAD_REQUEST, "filter items of more topics than one may have")
    return found


def required_partitions(
    consume_type: ConsumeType, topics: frozenset[str], text: str
) -> dict[PartitionKey, int]:
    """Return the start offsets of a bound group. Raises Refused with 400."""
    if consume_type is not ConsumeType.BOUND or not text.strip():
        return {}
    if len(text) > MOST_REQUIRED_TEXT:
        raise Refused(Code.BAD_REQUEST, "[Parameter error] too many partitions")
    try:
        offsets = dict(RequiredPartitions.parse(text).offsets)
    except MalformedText as error:
        raise Refused(
            Code.BAD_REQUEST,
            f"[Parameter error] unformatted Partition-Offset value : {error} must be "
            "aa:bbb:ccc=val1,ddd:eee:ff=val2",
        ) from None
    for key in offsets:
        if key.topic not in topics:
            raise Refused(
                Code.BAD_REQUEST,
                f"[Parameter error] wrong offset reset for unsubscribed topic: reset item is {key}",
            )
    return offsets


def may_consume(
    catalog: Catalog,
    consumer: str,
    group: str,
    topics: frozenset[str],
    items: Mapping[str, frozenset[str]],
) -> None:
    """Raises Refused: 450 for a forbidden topic, 455 for forbidden items
    (DefaultMetaDataService.isConsumeTargetAuthorized)."""
    unset = sorted(items.keys() - topics)
    if unset:
        raise Refused(
            Code.BAD_REQUEST, f"Filter's Topic not subscribed :[{', '.join(unset)[:1000]}]"
        )
    closed, restricted = [], []
    for topic in sorted(topics):
        control = catalog.topic_control(topic)
        if control is None or not control.auth_enabled:
            continue
        allowed = catalog.consume_control(group, topic)
        if allowed is None or not allowed.enabled:
            closed.append(topic)
        if allowed is not None and allowed.filter_enabled:
            restricted.append(allowed)
    if closed:
        raise Refused(
            Code.CONSUME_GROUP_FORBIDDEN,
            f"[unAuthorized Group] {consumer}'s consumerGroup not authorized by administrator, "
            f"unAuthorizedTopics: [{', '.join(closed)}]",
        )
    for one in restricted:
        who = f"[Restricted Group] {consumer} : {group}"
        wanted = items.get(one.topic, frozenset())
        if not one.filters:
            text = f"{who} not allowed to consume any data of topic {one.topic}"
        elif not wanted:
            text = f"{who} must set the filter conditions of topic {one.topic}"
        elif other := sorted(wanted - set(one.filters)):
            text = (
                f"[Restricted Group] {consumer} : unAuthorized filter conditions "
                f"{{{one.topic}=[{', '.join(other)}]}}"
            )
        else:
            continue
        raise Refused(Code.CONSUME_CONTENT_FORBIDDEN, text)


def flow_fields(core: Core, group: str, def_id: int, group_id: int) -> dict[str, Any]:
    """Return the limits for a consumer: ids always, rules if its id differs."""
    cluster, control = core.catalog.cluster, core.catalog.group_control(group)
    fields: dict[str, Any] = {
        "ssdStoreId": UNDEFINED,
        "qryPriorityId": UNDEFINED,
        "defFlowCheckId": UNDEFINED,
        "groupFlowCheckId": UNDEFINED,
        "defFlowControlInfo": " ",
        "groupFlowControlInfo": " ",
    }
    if cluster.flow_enabled:
        fields["defFlowCheckId"] = cluster.audit.serial
        if def_id != cluster.audit.serial:
            fields["defFlowControlInfo"] = cluster.flow_rules
    if control is not None and control.flow_enabled:
        fields["groupFlowCheckId"] = control.audit.serial
        fields["qryPriorityId"] = control.qry_priority
        if group_id != control.audit.serial:
            fields["groupFlowControlInfo"] = control.flow_rules
    return fields


def authorized(core: Core, client: Client) -> MasterAuthorizedInfo:
    """Return the tokens of a client, for brokers and for its next requests to the master."""
    return MasterAuthorizedInfo(
        visitAuthorizedToken=core.tokens.for_clients(produces=client.produces),
        authAuthorizedToken=core.certificates.grant(client),
    )
