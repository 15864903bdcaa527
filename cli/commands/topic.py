"""The topic commands of mqadmin. Formats: org.apache.rocketmq.tools.command.topic."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli import where
from mq.cli.parameters import Topic
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import UsageError, legal
from mq.cli.runtime.options import Truth, one_of
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row, flag, number, text, time
from mq.client.operations import cluster, java_order
from mq.client.operations.errors import NotFound
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
_ROUTE = (
    text("cluster", "Cluster"),
    text("brokerName", "Broker"),
    text("brokerAddrs", "Addresses"),
    number("readQueueNums", "Read queues"),
    number("writeQueueNums", "Write queues"),
    number("perm", "Permission"),
)
_QUEUES = (
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    number("minOffset", "Min offset"),
    number("maxOffset", "Max offset"),
    time("lastUpdated", "Last updated"),
)
_CLUSTERS = (text("cluster", "Cluster"),)


@writes
@gives(_CONFIG_COLUMNS)
@one_of("broker_addr", "cluster_name")
async def update_topic(
    call: Call,
    topic: Topic,
    broker_addr: where.OnBroker = None,
    cluster_name: where.OnMasters = None,
    attributes: Annotated[
        str | None,
        typer.Option("-a", "--attributes", metavar="+K=V,-K", help="Attributes (5.x brokers)."),
    ] = None,
    read_queue_nums: Annotated[
        int, typer.Option("-r", "--readQueueNums", metavar="N", help="Queues to read from.")
    ] = 8,
    write_queue_nums: Annotated[
        int, typer.Option("-w", "--writeQueueNums", metavar="N", help="Queues to write to.")
    ] = 8,
    perm: Annotated[
        int,
        typer.Option("-p", "--perm", metavar="2|4|6", help="2: write, 4: read, 6: both."),
    ] = 6,
    order: Annotated[
        Truth, typer.Option("-o", "--order", help="Whether it is an ordered topic.")
    ] = Truth.FALSE,
    unit: Annotated[
        Truth, typer.Option("-u", "--unit", help="Whether it is a unit topic.")
    ] = Truth.FALSE,
    has_unit_sub: Annotated[
        Truth, typer.Option("-s", "--hasUnitSub", help="Whether units subscribe to it.")
    ] = Truth.FALSE,
) -> Result:
    """Create a topic, or change one.

    With -c it is made on the master of every broker of the cluster, one after the other.
    """
    from mq.protocol.bodies import TopicConfig
    from mq.protocol.names import check_topic

    legal(check_topic, topic)
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=read_queue_nums,
        write_queue_nums=write_queue_nums,
        perm=perm,
        topic_sys_flag=(1 if unit else 0) | (2 if has_unit_sub else 0),
        order=bool(order),
        attributes=parse_attributes(attributes, "-a/--attributes") if attributes else None,
    )
    async with call.admin() as admin:
        if broker_addr is not None:
            return await _update_on_broker(admin, broker_addr, config)
        assert cluster_name is not None
        return await _update_on_cluster(admin, cluster_name, config)


def parse_attributes(text: str, flags: str) -> dict[str, str]:
    """Read `+key=value,-key`. Raises UsageError (AttributeParser.parseToMap)."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if key in found or key[:1] != ("+" if equals else "-") or (equals and not value):
            raise UsageError(
                f"{flags}: {part!r}",
                hint="+key=value sets one, -key removes one, each once",
            )
        found[key] = value
    return found


def _config_row(address: str, config: "TopicConfig") -> Row:
    from mq.protocol.flags import permission_text

    permission = permission_text(config.perm)
    queues = config.read_queue_nums, config.write_queue_nums
    return (address, config.topic_name, *queues, permission, config.order)


async def _update_on_broker(admin: "Admin", address: str, config: "TopicConfig") -> Result:
    await admin.create_topic(address, config)
    plain = ""
    if config.order:
        name = cluster.broker_name(await cluster.clusters(admin.session), address)
        mine = f"{name}:{config.write_queue_nums}"
        await _merge_order_conf(admin, config.topic_name, mine)
        plain = f"set broker orderConf. isOrder=true, orderConf=[{mine}]"
    plain += f"create topic to {address} success.\n{config_text(config)}"
    return Result(_CONFIG_COLUMNS, [_config_row(address, config)], plain)


async def _update_on_cluster(admin: "Admin", name: str, config: "TopicConfig") -> Result:
    info = await cluster.clusters(admin.session)
    masters = cluster.masters(info, name)
    done, failures = await cluster.at_each(
        admin, masters, lambda each, address: each.create_topic(address, config)
    )
    plain = "".join(f"create topic to {address} success.\n" for address in done)
    if config.order:
        from mq.client.admin.name_servers import ORDER_TOPICS

        names = java_order.hash_order(info.cluster_addr_table[name])
        order = ";".join(f"{broker}:{config.write_queue_nums}" for broker in names)
        await admin.put_kv(ORDER_TOPICS, config.topic_name, order)
        plain += f"set cluster orderConf. isOrder=true, orderConf=[{order}]"
    plain += config_text(config)
    rows = [_config_row(address, config) for address in done]
    return Result(_CONFIG_COLUMNS, rows, plain, failures=failures)


async def _merge_order_conf(admin: "Admin", topic: str, mine: str) -> None:
    """Add `broker:queues` to the topic's order configuration, in place of the broker's old one."""
    from mq.client.admin.name_servers import ORDER_TOPICS

    first = admin.session.name_servers[0]
    old = await admin.get_kv(first, ORDER_TOPICS, topic) or ""
    parts = {part.split(":")[0]: part for part in old.split(";") if part}
    parts[mine.split(":")[0]] = mine
    order = ";".join(parts[name] for name in java_order.hash_order(parts))
    await admin.put_kv(ORDER_TOPICS, topic, order)


def config_text(config: "TopicConfig") -> str:
    """TopicConfig.toString."""
    from mq.protocol.flags import permission_text

    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={permission_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type.name}, topicSysFlag={config.topic_sys_flag}, "
        f"order={java_text.truth(config.order)}]"
    )


@gives(_DELETED)
@destroys("delete topic {topic} and its messages from cluster {cluster_name}")
async def delete_topic(
    call: Call,
    topic: Topic,
    cluster_name: Annotated[
        str, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="From this cluster.")
    ],
) -> Result:
    """Delete a topic from the brokers of a cluster and from the name servers."""
    async with call.admin() as admin:
        masters = cluster.masters(await cluster.clusters(admin.session), cluster_name)
        return await remove_topic(admin, masters, topic, cluster_name)


async def remove_topic(admin: "Admin", masters: list[str], topic: str, cluster_name: str) -> Result:
    """Delete a topic at the masters of a cluster, then at the name servers."""
    done, failures = await cluster.at_each(
        admin, masters, lambda each, address: each.delete_topic_in_broker(address, topic)
    )
    rows: list[Row] = [("broker", address, topic) for address in done]
    plain = f"delete topic [{topic}] from cluster [{cluster_name}] success.\n"
    if failures:
        # While a broker still has the topic it would bring the route back at once.
        plain = ""
    else:
        for address in admin.session.name_servers:
            await admin.delete_topic_in_name_server(address, topic, cluster_name)
            rows.append(("name server", address, topic))
        plain += f"delete topic [{topic}] from NameServer success.\n"
    return Result(_DELETED, rows, plain, failures=failures)


@gives(_TOPICS, _GROUPS)
async def topic_list(
    call: Call,
    cluster_model: Annotated[
        bool, typer.Option("-c", "--clusterModel", help="With clusters and consumer groups.")
    ] = False,
) -> Result:
    """List every topic."""
    from mq.cli import listing

    if cluster_model:
        async with call.admin() as admin:
            return await _topics_with_groups(admin)
    async with call.session() as session:
        topics = java_order.hash_order(await listing.topic_names(session))
    plain = "".join(f"{topic}\n" for topic in topics)
    return Result(_TOPICS, [(topic,) for topic in topics], plain)


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
            pass  # as in Java: what cannot be asked stays empty
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
async def topic_route(
    call: Call,
    topic: Topic,
    as_list: Annotated[bool, typer.Option("-l", "--list", help="As a list.")] = False,
) -> Result:
    """Show which brokers hold a topic."""
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
    """The map of broker ids to addresses as Java writes it: `{0=10.0.0.1:10911}`."""
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
    """The route as fastjson writes it, with what a 4.9 route has; 5.x name servers tell more."""
    from mq.protocol import fastjson

    plain = route.to_plain()
    plain.pop("topicQueueMappingByBroker", None)
    for broker in plain["brokerDatas"]:
        broker.pop("zoneName", None)
        broker.pop("enableActingMaster", None)
    return fastjson.dumps_pretty(plain).decode() + "\n"


@gives(_QUEUES)
async def topic_status(
    call: Call,
    topic: Topic,
    route_topic: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--cluster",
            metavar="CLUSTER",
            help="Ask the brokers of this cluster, or of this parent of a light topic.",
        ),
    ] = None,
) -> Result:
    """Show the offsets of a topic's queues."""
    async with call.admin() as admin:
        offsets = (await admin.whole_topic_stats(topic, route_topic)).offset_table
    if not offsets:
        raise NotFound(f"no broker has offsets of topic {topic}")
    rows: list[Row] = []
    lines = [
        f"{'#Broker Name':<32}  {'#QID':<4}  {'#Min Offset':<20}  {'#Max Offset':<20}    "
        "#Last Updated\n"
    ]
    for queue in sorted(offsets):
        offset = offsets[queue]
        updated = offset.last_update_timestamp
        rows.append(
            (queue.broker_name, queue.queue_id, offset.min_offset, offset.max_offset, updated)
        )
        when = java_text.milliseconds_text(updated) if updated > 0 else ""
        lines.append(
            f"{java_text.cut(queue.broker_name, 32):<32}  {queue.queue_id:<4}  "
            f"{offset.min_offset:<20}  {offset.max_offset:<20}    {when}\n"
        )
    return Result(_QUEUES, rows, "".join(lines))


@gives(_CLUSTERS)
async def topic_cluster_list(
    call: Call,
    topic: Topic,
) -> Result:
    """List the clusters that hold a topic."""
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        route = await admin.topic_route(topic)
    first = route.broker_datas[0].broker_name
    names = [name for name, brokers in info.cluster_addr_table.items() if first in brokers]
    names = java_order.hash_order(names)
    plain = "".join(f"{name}\n" for name in names)
    return Result(_CLUSTERS, [(name,) for name in names], plain)
