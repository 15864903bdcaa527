"""Commands that change topics: permission, order, many at once.

Formats: org.apache.rocketmq.tools.command.topic.
"""

from collections.abc import Container
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli import broker_options, inputs
from mq.cli.commands.topic import Permission, config_text
from mq.cli.parameters import Topic
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError, UsageError, legal
from mq.cli.runtime.options import one_of, subject
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster
from mq.client.operations.columns import flag, number, text
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import QueueData, TopicConfig, TopicRouteData

COMMANDS = {
    "topic": (
        "updateTopicPerm",
        "updateOrderConf",
        "updateTopicList",
    )
}

_PERM_COLUMNS = (
    text("brokerName", "Broker"),
    text("brokerAddr", "Address"),
    text("topic", "Topic"),
    number("oldPerm", "Old permission"),
    number("perm", "Permission"),
)


@writes
@gives(_PERM_COLUMNS)
@subject("topic", "perm")
async def update_topic_perm(
    call: Call,
    topic: Topic,
    perm: Permission,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
) -> Result:
    """Change the permission of a topic.

    Queues, order and unit flags of each broker stay the same. mqadmin gives every broker the queues
    of the first one, and removes the order flag.

    Examples:
        mq updateTopicPerm Orders 4 -c DefaultCluster
                                        stop producers
        mq updateTopicPerm Orders 6 -c DefaultCluster
                                        allow sends again
    """
    broker_options.require(broker_addr, cluster_name)
    if perm not in (2, 4, 6):
        raise UsageError(f"-p/--perm: {perm}", hint="2: write, 4: read, 6: both")
    async with call.admin() as admin:
        route = await admin.topic_route(topic)
        masters = _masters(route)
        if broker_addr is not None:
            if broker_addr not in masters:
                raise NotFound(
                    f"{broker_addr} is not the address of a master that has topic {topic}",
                    hint=f"see: mq topicRoute -t {topic}",
                )
            targets = [broker_addr]
        else:
            assert cluster_name is not None
            targets = await _masters_of(admin, cluster_name, topic, masters)
        before = {address: masters[address] for address in targets}
        if broker_addr is not None and before[broker_addr].perm == perm:
            return Result(_PERM_COLUMNS, plain="new perm equals to the old one!\n")
        configs = {
            address: _config(topic, queues, perm, bool(route.order_topic_conf))
            for address, queues in before.items()
        }

        async def change(each: "Admin", address: str) -> None:
            await each.create_topic(address, configs[address])

        done, failures = await cluster.at_each(admin, targets, change)
    rows: list[Row] = []
    plain = ""
    for address in done:
        old = before[address]
        rows.append((old.broker_name, address, topic, old.perm, perm))
        plain += f"update topic perm from {old.perm} to {perm} in {address} success.\n"
    if broker_addr is not None:
        plain += f"{config_text(configs[broker_addr])}.\n"
    return Result(_PERM_COLUMNS, rows, plain, failures=failures)


def _masters(route: "TopicRouteData") -> dict[str, "QueueData"]:
    """Return the queues at each master of a route, by the master's address."""
    from mq.protocol.names import MASTER_ID

    queues = {item.broker_name: item for item in route.queue_datas}
    return {
        broker.broker_addrs[MASTER_ID]: queues[broker.broker_name]
        for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs and broker.broker_name in queues
    }


async def _masters_of(
    admin: "Admin", cluster_name: str, topic: str, masters: Container[str]
) -> list[str]:
    """Return those `masters` of a topic that are in a cluster. Raises NotFound if there is none."""
    wanted = cluster.masters(await cluster.clusters(admin.session), cluster_name)
    found = [address for address in wanted if address in masters]
    if not found:
        raise NotFound(f"no master of cluster {cluster_name} has topic {topic}")
    return found


def _config(topic: str, queues: "QueueData", perm: int, order: bool) -> "TopicConfig":
    from mq.protocol.bodies import TopicConfig

    return TopicConfig(
        topic_name=topic,
        read_queue_nums=queues.read_queue_nums,
        write_queue_nums=queues.write_queue_nums,
        perm=perm,
        topic_sys_flag=queues.topic_sys_flag,
        order=order,
    )


_ORDER_COLUMNS = (text("topic", "Topic"), text("orderConf", "Order configuration"))


class OrderMethod(Enum):
    """The methods of `updateOrderConf -m`."""

    GET = "get"
    PUT = "put"
    DELETE = "delete"


@writes
@gives(_ORDER_COLUMNS)
@subject("topic")
async def update_order_conf(
    call: Call,
    topic: Topic,
    method: Annotated[
        OrderMethod, typer.Option("-m", "--method", help="Method: get, put or delete.")
    ],
    order_conf: Annotated[
        str | None,
        typer.Option(
            "-v", "--orderConf", metavar="BROKER:N[;…]", help="Number of queues of each broker."
        ),
    ] = None,
) -> Result:
    """Set, show or delete the order configuration of a topic.

    It defines how many queues of which brokers an ordered topic has, so that its queues stay the
    same while a broker is down. Every name server is updated.

    Examples:
        mq updateOrderConf Orders -m put -v broker-a:8
                                             order over 8 queues of broker-a
        mq updateOrderConf Orders -m get     show its order configuration
        mq updateOrderConf Orders -m delete  delete it
    """
    from mq.client.admin.name_servers import ORDER_TOPICS

    if method is OrderMethod.PUT:
        _check_order(order_conf)
    async with call.admin() as admin:
        if method is OrderMethod.GET:
            first = admin.session.name_servers[0]
            found = await admin.get_kv(first, ORDER_TOPICS, topic)
            if found is None:
                raise NotFound(f"topic {topic} has no order configuration")
            value = found
            plain = f"get orderConf success. topic=[{topic}], orderConf=[{value}] "
        elif method is OrderMethod.PUT:
            value = order_conf or ""
            await admin.put_kv(ORDER_TOPICS, topic, value)
            plain = f"update orderConf success. topic=[{topic}], orderConf=[{value}]"
        else:
            value = ""
            await admin.delete_kv(ORDER_TOPICS, topic)
            plain = f"delete orderConf success. topic=[{topic}]"
    return Result(_ORDER_COLUMNS, [(topic, value)], plain)


def _check_order(order: str | None) -> None:
    """Raise UsageError unless `order` is `broker:count;broker:count`."""
    hint = "BROKER:QUEUES, separated by semicolons: -v 'broker-a:4;broker-b:4'"
    if not order:
        raise UsageError("-m put needs -v/--orderConf", hint=hint)
    for part in order.split(";"):
        name, colon, count = part.partition(":")
        if not (name and colon and count.isdecimal()):
            raise UsageError(f"-v/--orderConf: {part!r}", hint=hint)
    from mq.protocol.bodies.route import parse_order_conf

    try:
        parse_order_conf(order)
    except ValueError as error:
        raise UsageError(f"-v/--orderConf: {error}", hint=hint) from None


_LIST_COLUMNS = (
    text("brokerAddr", "Broker"),
    text("topic", "Topic"),
    number("readQueueNums", "Read queues"),
    number("writeQueueNums", "Write queues"),
    number("perm", "Permission"),
    flag("order", "Ordered"),
)


@writes
@one_of("broker_addr", "cluster_name")
@gives(_LIST_COLUMNS)
@subject("filename")
async def update_topic_list(
    call: Call,
    filename: Annotated[
        str,
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE",
            help="JSON file with a list of topics; -: standard input.",
        ),
    ],
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
) -> Result:
    """Create or change many topics at once, from a file (5.x brokers).

    The file is a JSON list of objects with topicName and optionally readQueueNums, writeQueueNums,
    perm, order, topicSysFlag, topicFilterType and attributes. A broker accepts all of them or none.

    Examples:
        mq updateTopicList topics.json -c DefaultCluster
                                        create many topics
        mq updateTopicList topics.json -b 127.0.0.1:10911
                                        on one broker
    """
    from mq.cli.runtime.release import since_5

    configs = _read_topics(call, filename)
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name)

        async def send(each: "Admin", address: str) -> None:
            await each.create_topics(address, configs)

        done, failures = await cluster.at_each(admin, targets, since_5(call.name, send))
    plain = "".join(
        f"submit batch of topic config to {address} success, please check the result later.\n"
        for address in done
    )
    rows: list[Row] = [
        (
            address,
            item.topic_name,
            item.read_queue_nums,
            item.write_queue_nums,
            item.perm,
            item.order,
        )
        for address in done
        for item in configs
    ]
    return Result(_LIST_COLUMNS, rows, plain, failures=failures)


def read_list(call: Call, filename: str, what: str) -> list[Any]:
    """Return the JSON list in a file, or from standard input for `-`.

    Raises NotFound if it cannot be read, CommandError if it is not a list.
    """
    from mq.protocol import fastjson

    name = inputs.called(filename)
    try:
        document = fastjson.loads(inputs.content(call.environment, filename))
    except fastjson.MalformedJson as error:
        raise CommandError(f"{name}: not JSON: {error}", status=Status.BAD_DATA) from None
    if not isinstance(document, list) or not document:
        raise CommandError(f"{name}: not a list of {what}", status=Status.BAD_DATA)
    return document


def _read_topics(call: Call, filename: str) -> list["TopicConfig"]:
    from mq.protocol.bodies import TopicConfig
    from mq.protocol.errors import RemoteProtocolError
    from mq.protocol.names import check_topic

    configs = []
    for number_, item in enumerate(read_list(call, filename, "topics"), 1):
        try:
            config = TopicConfig.from_plain(item)
        except RemoteProtocolError as error:
            message = f"{inputs.called(filename)}: topic {number_}: {error}"
            raise CommandError(message, status=Status.BAD_DATA) from None
        legal(check_topic, config.topic_name)
        configs.append(config)
    return configs
