"""The topic commands of mqadmin. Formats: org.apache.rocketmq.tools.command.topic."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli import broker_options
from mq.cli.parameters import Topic, cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import legal
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.options import Truth, at_most_one_of, subject
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, java_order
from mq.client.operations.columns import columns_of, flag, number, row_of, text
from mq.client.operations.errors import NextStep, NotFound
from mq.client.operations.subjects import topics
from mq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import TopicConfig, TopicRouteData

COMMANDS = {
    "topic": (
        "updateTopic",
        "deleteTopic",
        "topicList",
        "topicRoute",
        "topicStatus",
        "topicClusterList",
    )
}


_CONFIG_COLUMNS = (
    text("brokerAddr", "Broker"),
    text("topic", "Topic"),
    number("readQueueNums", "Read queues"),
    number("writeQueueNums", "Write queues"),
    text("perm", "Permission"),
    flag("order", "Ordered"),
)
_DELETED = (text("role", "Role"), text("address", "Address"), text("topic", "Deleted topic"))
_TOPICS = (text("topic", "Topic"),)
_GROUPS = (text("cluster", "Cluster"), text("topic", "Topic"), text("group", "Consumer group"))
_ROUTE = columns_of(topics.RouteRow)
_QUEUES = columns_of(topics.QueueStatus)
_CLUSTERS = (text("cluster", "Cluster"),)

Permission = Annotated[
    int,
    typer.Option(
        "-p", "--perm", metavar="2|4|6", help="Permission: 2 to send, 4 to consume, 6 for both."
    ),
]


@option_group
class TopicSettings:
    """The settings of a topic at each of its brokers."""

    attributes: Annotated[
        str | None,
        typer.Option(
            "-a",
            "--attributes",
            metavar="+K=V,-K",
            help="Attributes to set (+) or remove (-) (5.x brokers).",
        ),
    ] = None
    read_queue_nums: Annotated[
        int,
        typer.Option("-r", "--readQueueNums", metavar="N", help="Number of queues to read from."),
    ] = 8
    write_queue_nums: Annotated[
        int,
        typer.Option("-w", "--writeQueueNums", metavar="N", help="Number of queues to write to."),
    ] = 8
    perm: Permission = 6
    order: Annotated[Truth, typer.Option("-o", "--order", help="Make it an ordered topic.")] = (
        Truth.FALSE
    )
    unit: Annotated[Truth, typer.Option("-u", "--unit", help="Make it a unit topic.")] = Truth.FALSE
    has_unit_sub: Annotated[
        Truth, typer.Option("-s", "--hasUnitSub", help="Mark it as subscribed to by units.")
    ] = Truth.FALSE

    def of(self, topic: str) -> "TopicConfig":
        """Return these settings for a topic name."""
        from mq.protocol.bodies import TopicConfig

        return TopicConfig(
            topic_name=topic,
            read_queue_nums=self.read_queue_nums,
            write_queue_nums=self.write_queue_nums,
            perm=self.perm,
            topic_sys_flag=(1 if self.unit else 0) | (2 if self.has_unit_sub else 0),
            order=bool(self.order),
            attributes=topics.parse_attributes(self.attributes) if self.attributes else None,
        )


@writes
@gives(_CONFIG_COLUMNS)
@at_most_one_of("broker_addr", "cluster_name")
@subject("topic")
async def update_topic(
    call: Call,
    topic: Topic,
    broker_addr: broker_options.OnBroker = None,
    cluster_name: broker_options.OnMasters = None,
    *,
    settings: TopicSettings,
) -> Result:
    """Create a topic, or change one.

    With -c it is created on the master of every broker of the cluster, one after the other. With
    only one cluster, creating needs neither -b nor -c; changing does.

    Examples:
        mq updateTopic Orders -c DefaultCluster  create it, with 8 queues per broker
        mq updateTopic Orders -c DefaultCluster -r 16 -w 16
                                                 change it to 16 queues
        mq updateTopic Orders -b 127.0.0.1:10911 --dry-run
                                                 show what would be sent to one broker
    """
    from mq.protocol.names import check_topic

    legal(check_topic, topic)
    config = settings.of(topic)
    async with call.admin() as admin:
        if broker_addr is None and cluster_name is None:
            cluster_name = await broker_options.cluster_or_only(admin, broker_addr, cluster_name)
            await broker_options.refuse_change(
                *(admin, cluster_name, topic, config),
                lambda address: topics.settings(admin, address, topic),
            )
        if broker_addr is not None:
            made = await topics.make_at_broker(admin, broker_addr, config)
        else:
            assert cluster_name is not None
            made = await topics.make_in_cluster(admin, cluster_name, config)
    return _made(made, config, whole_cluster=broker_addr is None)


def _config_row(address: str, config: "TopicConfig") -> Row:
    from mq.protocol.flags import permission_text

    permission = permission_text(config.perm)
    queues = config.read_queue_nums, config.write_queue_nums
    return (address, config.topic_name, *queues, permission, config.order)


def _made(made: "topics.TopicCreation", config: "TopicConfig", *, whole_cluster: bool) -> Result:
    plain = "".join(f"create topic to {address} success.\n" for address in made.done)
    if made.order_conf is not None:
        whose = "cluster" if whole_cluster else "broker"
        order = f"set {whose} orderConf. isOrder=true, orderConf=[{made.order_conf}]"
        plain = plain + order if whole_cluster else order + plain
    rows = [_config_row(address, config) for address in made.done]
    return Result(_CONFIG_COLUMNS, rows, plain + config_text(config), failures=list(made.failures))


def config_text(config: "TopicConfig") -> str:
    """Return TopicConfig.toString."""
    from mq.protocol.flags import permission_text

    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={permission_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type.name}, topicSysFlag={config.topic_sys_flag}, "
        f"order={java_text.truth(config.order)}]"
    )


@gives(_DELETED)
@destroys("delete topic {topic} and its messages from cluster {cluster_name}")
@subject("topic")
async def delete_topic(
    call: Call,
    topic: Topic,
    cluster_name: Annotated[
        str,
        cluster_option("Cluster to delete it from."),
    ],
) -> Result:
    """Delete a topic from the brokers of a cluster and from the name servers.

    Examples:
        mq deleteTopic Orders -c DefaultCluster  delete it; asks first on a terminal
        mq deleteTopic Orders -c DefaultCluster --dry-run
                                                 show what would be deleted
    """
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        masters = cluster.masters(info, cluster_name)
        removed = await topics.remove(admin, masters, topic, cluster_name)
    return Result(
        *(_DELETED, list(removed.rows), removed_text(removed, topic, cluster_name)),
        failures=[*removed.failures, *cluster.kept(info, cluster_name)],
    )


def removed_text(removed: "topics.TopicDeletion", topic: str, cluster_name: str) -> str:
    """Return the output of DeleteTopicSubCommand; empty if a broker still has the topic."""
    if removed.failures:
        return ""
    return (
        f"delete topic [{topic}] from cluster [{cluster_name}] success.\n"
        f"delete topic [{topic}] from NameServer success.\n"
    )


@gives(_TOPICS, _GROUPS)
async def topic_list(
    call: Call,
    cluster_model: Annotated[
        bool, typer.Option("-c", "--clusterModel", help="Show clusters and consumer groups, too.")
    ] = False,
) -> Result:
    """List every topic.

    Examples:
        mq topicList          every topic
        mq topicList -c       with clusters and consumer groups
        mq topicList -o json  for a program
    """
    from mq.cli import listing

    if cluster_model:
        async with call.admin() as admin:
            return await _topics_with_groups(admin)
    async with call.session() as session:
        names = java_order.hash_order(await listing.topic_names(session))
    plain = "".join(f"{topic}\n" for topic in names)
    return Result(_TOPICS, [(topic,) for topic in names], plain)


async def _topics_with_groups(admin: "Admin") -> Result:
    from mq.cli import listing
    from mq.client.errors import MQError
    from mq.client.operations.wire import groups_of_topic

    info = await cluster.clusters(admin.session)
    rows: list[Row] = []
    lines = [f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}\n"]
    for topic in java_order.hash_order(await listing.topic_names(admin.session)):
        if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            continue
        name, groups = "", [""]
        try:
            route = await admin.topic_route(topic)
            name = cluster.cluster_of(info, route.broker_datas[0].broker_name) or "null"
            first = cluster.any_address(route.broker_datas[0])
            found = await groups_of_topic(admin.session, first, topic)
            groups = java_order.hash_order(found) or [""]
        except (MQError, IndexError):
            pass  # as in Java, the cells stay empty
        for group in groups:
            rows.append((name, topic, group))
            cut = java_text.cut
            lines.append(f"{cut(name, 20):<20}  {cut(topic, 64):<64}  {cut(group, 64):<64}\n")
    return Result(_GROUPS, rows, "".join(lines))


@gives(
    _ROUTE,
    totals=(
        number("readQueueNums", "read queues at all brokers"),
        number("writeQueueNums", "write queues at all brokers"),
    ),
)
@subject("topic")
async def topic_route(
    call: Call,
    topic: Topic,
    as_list: Annotated[bool, typer.Option("-l", "--list", help="Show it as a list.")] = False,
) -> Result:
    """Show the brokers that hold a topic.

    Examples:
        mq topicRoute Orders              its brokers and queues
        mq topicRoute Orders -l -o table  a line for each broker
    """
    async with call.admin() as admin:
        route = await admin.topic_route(topic)
    queues = {item.broker_name: item for item in route.queue_datas}
    rows: list[Row] = []
    for broker in sorted(route.broker_datas, key=lambda item: item.broker_name):
        held = queues.get(broker.broker_name)
        counts = (held.read_queue_nums, held.write_queue_nums, held.perm) if held else (0, 0, 0)
        rows.append((broker.cluster, broker.broker_name, _addresses(broker), *counts))
    plain = _route_list(rows, len(queues)) if as_list else _route_json(route)
    totals = {"readQueueNums": sum(row[3] for row in rows)}
    totals["writeQueueNums"] = sum(row[4] for row in rows)
    return Result(_ROUTE, rows, plain, totals=totals)


def _addresses(broker: Any) -> str:
    """Return the map of broker ids to addresses as Java writes it: `{0=10.0.0.1:10911}`."""
    addresses = broker.broker_addrs
    return java_text.map_text(addresses, sorted(addresses))


_ROUTE_LINE = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}\n"


def _route_list(rows: list[Row], brokers: int) -> str:
    heads = "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"
    lines = [_ROUTE_LINE.format(*heads)]
    lines += [_ROUTE_LINE.format(*row) for row in rows]
    lines.append("-" * 158 + "\n")
    sums = sum(row[3] for row in rows), sum(row[4] for row in rows)
    lines.append(_ROUTE_LINE.format("Total:", brokers, "", *sums, ""))
    return "".join(lines)


def _route_json(route: "TopicRouteData") -> str:
    """Return the route as fastjson writes it, with the fields of 4.9; 5.x sends more."""
    from mq.protocol import fastjson

    plain = route.to_plain()
    plain.pop("topicQueueMappingByBroker", None)
    for broker in plain["brokerDatas"]:
        broker.pop("zoneName", None)
        broker.pop("enableActingMaster", None)
    return fastjson.dumps_pretty(plain).decode() + "\n"


@gives(_QUEUES)
@subject("topic")
async def topic_status(
    call: Call,
    topic: Topic,
    route_topic: Annotated[
        str | None,
        cluster_option(
            "Only the brokers of this cluster, or of this parent topic of a light topic.",
            name="--cluster",
        ),
    ] = None,
) -> Result:
    """Show the offsets of a topic's queues.

    Examples:
        mq topicStatus Orders            the offsets of each queue
        mq topicStatus Orders --watch 2  again every two seconds
        mq topicStatus Orders --sort -maxOffset -o table
                                         the queues with most messages first
    """
    async with call.admin() as admin:
        queues = topics.queue_rows(await admin.whole_topic_stats(topic, route_topic))
    if not queues:
        raise NotFound(f"no broker has offsets of topic {topic}")
    rows: list[Row] = []
    lines = [
        f"{'#Broker Name':<32}  {'#QID':<4}  {'#Min Offset':<20}  {'#Max Offset':<20}    "
        "#Last Updated\n"
    ]
    for queue in queues:
        updated = queue.last_updated
        rows.append(row_of(queue))
        when = java_text.milliseconds_text(updated) if updated else ""
        lines.append(
            f"{java_text.cut(queue.broker_name, 32):<32}  {queue.queue_id:<4}  "
            f"{queue.min_offset:<20}  {queue.max_offset:<20}    {when}\n"
        )
    return Result(_QUEUES, rows, "".join(lines))


@gives(_CLUSTERS)
@subject("topic")
async def topic_cluster_list(
    call: Call,
    topic: Topic,
) -> Result:
    """List the clusters that hold a topic.

    Examples:
        mq topicClusterList Orders          the clusters that hold the topic
        mq topicClusterList Orders -o json  for a program
    """
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        route = await admin.topic_route(topic)
    if not route.broker_datas:
        raise NotFound(f"the route of {topic} has no broker", hint=NextStep.LIST_CLUSTERS)
    first = route.broker_datas[0].broker_name
    names = [name for name, brokers in info.cluster_addr_table.items() if first in brokers]
    names = java_order.hash_order(names)
    plain = "".join(f"{name}\n" for name in names)
    return Result(_CLUSTERS, [(name,) for name in names], plain)
