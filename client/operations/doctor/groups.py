"""Checks of consumer groups: lag, consistent subscriptions, dead letters."""

from collections.abc import Mapping

from mq.client.errors import BrokerError, ClientError, ConsumerNotOnline, MQError, RouteNotFound
from mq.client.operations.cluster_snapshot import reason
from mq.client.operations.doctor.examination import Examination
from mq.client.operations.doctor.finding import Severity
from mq.client.operations.plurals import counted
from mq.protocol import names
from mq.protocol.bodies import ConsumerConnection, ConsumeStats, MessageModel

# Members of a group whose subscriptions are queried; in larger groups the first ones are
# representative.
_MOST_ASKED = 50
_MOST_SHOWN = 3


async def check_groups(examination: Examination) -> None:
    """Check each group with a retry topic."""
    try:
        everything = (await examination.admin.topic_list()).topic_list
    except MQError as error:
        examination.say("group", Severity.UNKNOWN, "groups", str(error))
        return
    retry = names.RETRY_PREFIX
    groups = sorted(topic.removeprefix(retry) for topic in everything if topic.startswith(retry))
    groups = [group for group in groups if not names.is_system_group(group)]
    stats, no_stats = await examination.each(groups, examination.admin.whole_consume_stats)
    connections, no_members = await examination.each(groups, examination.admin.group_connection)
    wrong = len(examination.findings)
    _say_unknown(examination, "group", "its progress is not known", no_stats)
    silent = _say_unknown(examination, "group", "its members are not known", no_members)
    for group in groups:
        if group in silent:
            continue
        _check_lag(examination, group, stats.get(group), connections.get(group))
    for group, connection in connections.items():
        await _check_members(examination, group, connection)
    if len(examination.findings) == wrong:
        examination.say(
            "group",
            Severity.OK,
            "groups",
            f"{counted(len(groups), 'group keeps', 'groups keep')} up",
        )
    await _check_dead_letters(examination, everything)


def _say_unknown(
    examination: Examination, check: str, what: str, errors: Mapping[str, MQError]
) -> set[str]:
    """Report for each group what brokers did not answer; returns those groups."""
    said = {
        group: error
        for group, error in errors.items()
        # not errors: no member is online, or the group was deleted
        if not isinstance(error, ConsumerNotOnline | RouteNotFound)
    }
    for group, error in said.items():
        examination.say(check, Severity.UNKNOWN, group, f"{what}: {reason(error)}")
    return set(said)


def _check_lag(
    examination: Examination,
    group: str,
    stats: ConsumeStats | None,
    connection: ConsumerConnection | None,
) -> None:
    if stats is None or (
        connection is not None and connection.message_model is MessageModel.BROADCASTING
    ):
        return
    if stats.lag > examination.limits.lag:
        online = len(connection.connection_set) if connection is not None else 0
        examination.say(
            "lag",
            Severity.WARNING if online else Severity.CRITICAL,
            group,
            f"its lag is {counted(stats.lag, 'message')}, with {counted(online, 'member')} online",
            f"see: mq consumerProgress -g {group}",
        )


async def _queues(examination: Examination, connection: ConsumerConnection) -> int:
    """Return the number of queues that the members of a group share."""
    topics = [
        topic for topic in connection.subscription_table if not topic.startswith(names.RETRY_PREFIX)
    ]
    routes, _ = await examination.each(topics, examination.admin.topic_route)
    return sum(queue.read_queue_nums for route in routes.values() for queue in route.queue_datas)


def _check_client_ids(examination: Examination, group: str, connection: ConsumerConnection) -> None:
    """Check that client ids are unique: queues are assigned by them."""
    addresses: dict[str, list[str]] = {}
    for member in connection.connection_set:
        addresses.setdefault(member.client_id, []).append(member.client_addr)
    for client, several in addresses.items():
        if len(several) > 1:
            shown = ", ".join(several[:_MOST_SHOWN])
            examination.say(
                "client-id",
                Severity.CRITICAL,
                group,
                f"{counted(len(several), 'member')} have the client id {client} ({shown}): "
                "all consume the same queues, and other queues may be read by no member",
                "give each an instance name (instanceName) of its own; an old connection of a "
                "client that has connected again ends within two minutes",
            )


async def _check_members(
    examination: Examination, group: str, connection: ConsumerConnection
) -> None:
    """Check that members subscribe to the same topics, and that each has a queue."""
    members = [member.client_id for member in connection.connection_set]
    _check_client_ids(examination, group, connection)
    queues = await _queues(examination, connection)
    if connection.message_model is not MessageModel.BROADCASTING and 0 < queues < len(members):
        examination.say(
            "members",
            Severity.WARNING,
            group,
            f"{counted(len(members), 'member')} share {counted(queues, 'queue')}: "
            f"{counted(len(members) - queues, 'member has', 'members have')} none",
            "create more queues, or start fewer members",
        )
    if len(members) < 2:
        return

    async def wants(client: str) -> frozenset[tuple[str, str, str]]:
        last: MQError = ClientError("there is no master")
        for master in examination.masters:
            try:
                running = await examination.admin.consumer_running_info(master, group, client)
            except BrokerError as error:  # it may be connected to another broker
                last = error
                continue
            return frozenset(
                (wanted.topic, wanted.expression_type or "TAG", wanted.sub_string)
                for wanted in running.subscription_set
                if not wanted.topic.startswith(names.RETRY_PREFIX)
            )
        raise last

    answers, _ = await examination.each(members[:_MOST_ASKED], wants)
    if len(set(answers.values())) > 1:
        shown = "; ".join(
            f"{client}: {', '.join(f'{topic} {text}' for topic, _, text in sorted(wanted))}"
            for client, wanted in list(answers.items())[:3]
        )
        examination.say(
            "subscription",
            Severity.CRITICAL,
            group,
            f"its members subscribe differently, so messages are lost: {shown}",
            "give groups of their own to consumers that want other topics or tags",
        )


async def _check_dead_letters(examination: Examination, everything: set[str]) -> None:
    prefix = names.DEAD_LETTER_PREFIX
    topics = sorted(topic for topic in everything if topic.startswith(prefix))
    found, errors = await examination.each(topics, examination.admin.whole_topic_stats)
    named = {topic.removeprefix(prefix): error for topic, error in errors.items()}
    _say_unknown(examination, "dead-letter", "whether it has dead letters is not known", named)
    for topic, stats in found.items():
        count = sum(at.max_offset - at.min_offset for at in stats.offset_table.values())
        if count:
            group = topic.removeprefix(prefix)
            examination.say(
                "dead-letter",
                Severity.WARNING,
                group,
                f"{counted(count, 'message is', 'messages are')} in the dead letter queue",
                f"see: mq dlq show -g {group}",
            )
