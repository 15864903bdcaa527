"""The consumer commands of mqadmin. Formats: org.apache.rocketmq.tools.command.consumer."""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import broker_options
from mq.cli.parameters import cluster_option, group_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError, legal
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.options import Truth, at_most_one_of, subject
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, java_order
from mq.client.operations.columns import columns_of, number, row_of, text
from mq.client.operations.consumption import Stats, consume_stats, group_broker
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects import groups, members
from mq.protocol.names import BUILT_IN_GROUPS, RETRY_PREFIX, is_system_group

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import GroupRetryPolicy, MessageQueue, SubscriptionGroupConfig

COMMANDS = {
    "consumer": (
        "consumerProgress",
        "updateSubGroup",
    )
}


_CONFIG = (
    text("brokerAddr", "Broker"),
    text("group", "Consumer group"),
    number("retryQueueNums", "Retry queues"),
    number("retryMaxTimes", "Retries"),
)
_HELD_QUEUES = columns_of(groups.QueueProgress)
_QUEUES = _HELD_QUEUES[:-1]  # without the client
_GROUPS = (
    text("group", "Consumer group"),
    number("consumers", "Consumers"),
    text("version", "Version"),
    text("type", "Type"),
    text("model", "Model"),
    number("consumeTps", "Messages/s"),
    number("diffTotal", "Lag"),
)


@option_group
class GroupSettings:
    """The settings of a consumer group."""

    consume_enable: Annotated[
        Truth, typer.Option("-s", "--consumeEnable", help="Allow the group to consume.")
    ] = Truth.TRUE
    consume_from_min_enable: Annotated[
        Truth,
        typer.Option(
            "-m", "--consumeFromMinEnable", help="Allow it to start from the oldest message."
        ),
    ] = Truth.FALSE
    consume_broadcast_enable: Annotated[
        Truth,
        typer.Option(
            "-d", "--consumeBroadcastEnable", help="Allow it to consume in broadcast mode."
        ),
    ] = Truth.FALSE
    consume_message_orderly: Annotated[
        Truth | None,
        typer.Option("-o", "--consumeMessageOrderly", help="Consume in order (5.x brokers)."),
    ] = None
    retry_queue_nums: Annotated[
        int,
        typer.Option(
            "-q", "--retryQueueNums", metavar="N", help="Number of queues of its retry topic."
        ),
    ] = 1
    retry_max_times: Annotated[
        int,
        typer.Option(
            "-r",
            "--retryMaxTimes",
            metavar="N",
            help="Retries before a message becomes a dead letter.",
        ),
    ] = 16
    group_retry_policy: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--groupRetryPolicy",
            metavar="JSON",
            help="Retry policy with its delays (5.x brokers).",
        ),
    ] = None
    broker_id: Annotated[
        int,
        typer.Option(
            "-i", "--brokerId", metavar="ID", help="Id of the broker to read from; 0: the master."
        ),
    ] = 0
    which_broker_when_consume_slowly: Annotated[
        int,
        typer.Option(
            "-w",
            "--whichBrokerWhenConsumeSlowly",
            metavar="ID",
            help="Id of the broker to read from when consumption is slow.",
        ),
    ] = 1
    notify_consumer_ids_changed: Annotated[
        Truth,
        typer.Option(
            "-a", "--notifyConsumerIdsChanged", help="Notify members when others join or leave."
        ),
    ] = Truth.TRUE
    attributes: Annotated[
        str | None,
        typer.Option(
            "--attributes",
            metavar="+K=V,-K",
            help="Attributes to set (+) or remove (-) (5.x brokers).",
        ),
    ] = None

    def config(self, group_name: str) -> "SubscriptionGroupConfig":
        """Return the configuration. Raises UsageError for an invalid policy or attributes."""
        from mq.protocol.bodies import SubscriptionGroupConfig

        config = SubscriptionGroupConfig(
            group_name=group_name,
            consume_enable=bool(self.consume_enable),
            consume_from_min_enable=bool(self.consume_from_min_enable),
            consume_broadcast_enable=bool(self.consume_broadcast_enable),
            retry_queue_nums=self.retry_queue_nums,
            retry_max_times=self.retry_max_times,
            broker_id=self.broker_id,
            which_broker_when_consume_slowly=self.which_broker_when_consume_slowly,
            notify_consumer_ids_changed_enable=bool(self.notify_consumer_ids_changed),
        )
        if self.consume_message_orderly is not None:
            config.consume_message_orderly = bool(self.consume_message_orderly)
        if self.group_retry_policy is not None:
            config.group_retry_policy = _retry_policy(self.group_retry_policy)
        if self.attributes is not None:
            from mq.client.operations.subjects.topics import parse_attributes

            config.attributes = parse_attributes(self.attributes)
        return config


@gives(_CONFIG)
@writes
@at_most_one_of("broker_addr", "cluster_name")
@subject("group_name")
async def update_sub_group(
    call: Call,
    group_name: Annotated[str, group_option("--groupName")],
    broker_addr: broker_options.OnBroker = None,
    cluster_name: broker_options.OnMasters = None,
    *,
    settings: GroupSettings,
) -> Result:
    """Create a consumer group, or change one.

    With -c it is created on the master of every broker of the cluster, one after the other. With
    only one cluster, creating needs neither -b nor -c; changing does.

    Examples:
        mq updateSubGroup billing -c DefaultCluster  create it
        mq updateSubGroup billing -c DefaultCluster -r 3
                                                     three retries at most
    """
    from mq.protocol.names import check_group

    legal(check_group, group_name)
    config = settings.config(group_name)
    async with call.admin() as admin:
        if not broker_addr and not cluster_name:
            cluster_name = await broker_options.cluster_or_only(admin, broker_addr, cluster_name)
            await broker_options.refuse_change(
                *(admin, cluster_name, group_name, config),
                lambda address: groups.settings(admin, address, group_name),
            )
        targets = await broker_options.targets(admin, broker_addr, cluster_name)
        done, failures = await cluster.at_each(
            admin, targets, lambda each, address: each.update_subscription_group(address, config)
        )
    plain = "".join(f"create subscription group to {address} success.\n" for address in done)
    sizes = (settings.retry_queue_nums, settings.retry_max_times)
    rows: list[Row] = [(address, group_name, *sizes) for address in done]
    return Result(_CONFIG, rows, plain + _config_text(config), failures=failures)


def _retry_policy(text: str) -> "GroupRetryPolicy":
    from mq.protocol.bodies import GroupRetryPolicy
    from mq.protocol.errors import RemoteProtocolError

    try:
        return GroupRetryPolicy.decode(text.encode())
    except RemoteProtocolError as error:
        raise UsageError(
            f"-p/--groupRetryPolicy: {error}",
            hint='in ms: {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}',
        ) from None


def _config_text(config: "SubscriptionGroupConfig") -> str:
    """Return SubscriptionGroupConfig.toString of 4.9."""
    truth = java_text.truth
    return (
        f"SubscriptionGroupConfig [groupName={config.group_name}, "
        f"consumeEnable={truth(config.consume_enable)}, "
        f"consumeFromMinEnable={truth(config.consume_from_min_enable)}, "
        f"consumeBroadcastEnable={truth(config.consume_broadcast_enable)}, "
        f"retryQueueNums={config.retry_queue_nums}, retryMaxTimes={config.retry_max_times}, "
        f"brokerId={config.broker_id}, "
        f"whichBrokerWhenConsumeSlowly={config.which_broker_when_consume_slowly}, "
        "notifyConsumerIdsChangedEnable="
        f"{truth(config.notify_consumer_ids_changed_enable)}]"
    )


@gives(
    _GROUPS,
    _QUEUES,
    _HELD_QUEUES,
    totals=(
        number("consumeTps", "messages per second that the group consumes"),
        number("diffTotal", "total lag in messages"),
    ),
)
@subject("group_name", "topic_name")
async def consumer_progress(
    call: Call,
    group_name: Annotated[
        str | None,
        group_option("--groupName", text="Only this group, queue by queue."),
    ] = None,
    topic_name: Annotated[
        str | None, typer.Option("-t", "--topicName", metavar="TOPIC", help="Only this topic.")
    ] = None,
    show_client_ip: Annotated[
        Truth, typer.Option("-s", "--showClientIP", help="Show which client holds each queue.")
    ] = Truth.FALSE,
    cluster_name: Annotated[
        str | None,
        cluster_option("Only on the brokers of this cluster.", name="--cluster"),
    ] = None,
) -> Result:
    """Show the lag of consumer groups.

    With -g it also asks the members which queues they consume. If they name a broker that is not
    registered, it is reported, and the exit status is 1. The totals do not include the lag there.

    Examples:
        mq consumerProgress          the lag of every group
        mq consumerProgress billing  of one group, queue by queue
        mq consumerProgress --sort -diffTotal -o table
                                     the greatest lag first
    """
    from mq.client.errors import RouteNotFound

    async with call.admin() as admin:
        if group_name is None:
            return await _all_groups(admin)
        try:
            stats = await consume_stats(admin, group_name, topic_name, cluster_name)
        except (NotFound, RouteNotFound):
            if not await groups.exists(admin, group_name):
                raise
            return _one_group(Stats(), None)  # has consumed nothing yet
        held, failures = await _held(admin, group_name)
        # The cluster of an unregistered broker is unknown.
        absent = {} if cluster_name else await _absent(admin, held, topic_name)
    holders = {queue: client.split("@")[0] for queue, client in held.items()}
    result = _one_group(stats, holders if show_client_ip else None)
    result.failures = failures + [
        f"broker {name}: not registered now, {who}" for name, who in absent.items()
    ]
    return result


async def _held(admin: "Admin", group: str) -> tuple[dict["MessageQueue", str], list[str]]:
    """Return the client that consumes each queue, and the failures."""
    from mq.client.errors import ConsumerNotOnline, MQError, RouteNotFound

    try:
        address = await group_broker(admin, group)
        connected = (await admin.consumer_connection(address, group)).connection_set
    except (ConsumerNotOnline, RouteNotFound, NotFound):
        return {}, []
    except MQError as error:
        return {}, [f"members of group {group}: {error}"]
    # As in Java, a queue shows N/A if its client does not answer.
    said, _ = await members.running(admin, address, group, (item.client_id for item in connected))
    return members.holders(said), []


async def _absent(
    admin: "Admin", held: dict["MessageQueue", str], topic: str | None
) -> dict[str, str]:
    """Return the brokers of consumed queues that no name server has, with the queues."""
    registered = (await cluster.clusters(admin.session)).broker_addr_table if held else {}
    found: dict[str, list[MessageQueue]] = {}
    for queue in sorted(held):
        if queue.broker_name not in registered and topic in (None, queue.topic):
            found.setdefault(queue.broker_name, []).append(queue)
    return {
        name: "its queues are consumed: "
        + ", ".join(f"{queue.topic} {queue.queue_id} by {held[queue]}" for queue in queues)
        for name, queues in found.items()
    }


def _one_group(stats: Stats, holders: dict["MessageQueue", str] | None) -> Result:
    columns = _QUEUES if holders is None else _HELD_QUEUES
    rows: list[Row] = []
    width = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  "
    width += "{:<20}  {}\n" if holders is None else "{:<20} {:<20}  {}\n"
    heads = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    heads += ["#Diff", "#LastTime"] if holders is None else ["#Client IP", "#Diff", "#LastTime"]
    lines = [width.format(*heads)]
    for queue in groups.progress_rows(stats.offsets, holders or {}):
        when = java_text.seconds_text(queue.last_consumed) if queue.last_consumed else "N/A"
        offsets = (queue.broker_offset, queue.consumer_offset)
        names = (java_text.cut(queue.topic, 64), java_text.cut(queue.broker_name, 32))
        holder = () if holders is None else (queue.client or "N/A",)
        lines.append(width.format(*names, queue.queue_id, *offsets, *holder, queue.diff, when))
        rows.append(row_of(queue)[: len(columns)])
    lines.append("\n")
    lines.append(f"Consume TPS: {java_text.fixed(stats.consume_tps, 2)}\n")
    lines.append(f"Diff Total: {stats.lag}\n")
    totals = {"consumeTps": stats.consume_tps, "diffTotal": stats.lag}
    return Result(columns, rows, "".join(lines), totals=totals)


_GROUP_LINE = "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}\n"


async def _all_groups(admin: "Admin") -> Result:
    from mq.cli import listing

    heads = "#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"
    plain = _GROUP_LINE.format(*heads)
    rows: list[Row] = []
    failures: list[str] = []
    topics = java_order.hash_order(await listing.topic_names(admin.session))
    names = [name.removeprefix(RETRY_PREFIX) for name in topics if name.startswith(RETRY_PREFIX)]
    of_mqadmin = {*names}  # plain copies mqadmin's output, which lacks the others
    names += sorted(await _committed(admin) - of_mqadmin)
    for name in names:
        row = await _group_row(admin, name, failures)
        rows.append(row)
        if name not in of_mqadmin:
            continue
        group, count, version, kind, model, tps, lag = row
        shown = "OFFLINE" if count == 0 else version
        numbers = (None if tps is None else int(tps)), lag
        plain += _GROUP_LINE.format(
            *(java_text.cut(group, 64), _or_na(count), _or_na(shown), kind, model),
            *map(_or_na, numbers),
        )
    return Result(_GROUPS, rows, plain, failures=failures)


async def _committed(admin: "Admin") -> set[str]:
    """Return the groups with committed offsets; mqadmin does not list those without a retry topic.

    Only an administrator may read all offsets. Other accounts get mqadmin's list.
    """
    info = await cluster.clusters(admin.session)
    addresses = [cluster.any_address(one) for one in info.broker_addr_table.values()]
    tables, _ = await cluster.outcomes(
        admin, addresses, lambda each, address: each.all_consumer_offsets(address)
    )
    found = {key.rpartition("@")[2] for table in tables.values() for key in table}
    return {group for group in found - {*BUILT_IN_GROUPS} if not is_system_group(group)}


def _or_na(value: object) -> object:
    """Return the value, or N/A if the broker does not report it."""
    return "N/A" if value is None else value


async def _group_row(admin: "Admin", group: str, failures: list[str]) -> Row:
    """Return the row of a group. As in Java, its lag is 0 without offsets, and it is offline
    without consumers.

    A value that a broker does not report is None, with the reason added to `failures`.
    """
    from mq.client.errors import ConsumerNotOnline, MQError, RouteNotFound
    from mq.protocol.bodies import ConsumeType
    from mq.protocol.versions import version_name

    tps: float | None = 0.0
    lag: int | None = 0
    try:
        stats = await consume_stats(admin, group)
        tps, lag = stats.consume_tps, stats.lag
    except (RouteNotFound, NotFound):
        pass
    except MQError as error:
        tps = lag = None
        failures.append(f"lag of group {group}: {error}")
    try:
        found = await admin.consumer_connection(await group_broker(admin, group), group)
    except (ConsumerNotOnline, RouteNotFound, NotFound):
        return (group, 0, None, "", "", tps, lag)
    except MQError as error:
        failures.append(f"members of group {group}: {error}")
        return (group, None, None, "", "", tps, lag)
    connected = found.connection_set
    version = version_name(min(member.version for member in connected))
    active = found.consume_type is ConsumeType.CONSUME_ACTIVELY
    passive = found.consume_type is ConsumeType.CONSUME_PASSIVELY
    model = found.message_model.name if passive and found.message_model else ""
    return (group, len(connected), version, "PULL" if active else "PUSH", model, tps, lag)
