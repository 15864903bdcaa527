"""Connected clients. Formats: org.apache.rocketmq.tools.command.connection and .producer."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.parameters import broker_option, group_option, topic_option
from mq.cli.rebalance_hint import report_if_early
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.options import subject
from mq.cli.show.result import Result, Row
from mq.client.operations import connections, java_order
from mq.client.operations.columns import number, text, time
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.protocol.bodies import Connection, ConsumerConnection, ProducerInfo

COMMANDS = {
    "connection": (
        "consumerConnection",
        "producerConnection",
    ),
    "producer": ("producer",),
}

_CLIENTS = (
    text("clientId", "Client"),
    text("clientAddr", "Address"),
    text("language", "Language"),
    text("version", "Version"),
)


@gives(
    _CLIENTS,
    data="The group: consumers, subscriptions, consumeType, messageModel, consumeFromWhere.",
)
@subject("consumer_group")
async def consumer_connection(
    call: Call,
    consumer_group: Annotated[str, group_option("--consumerGroup")],
    broker_addr: Annotated[
        str | None,
        broker_option("Address of the broker to ask."),
    ] = None,
) -> Result:
    """Show which consumers of a group are connected, and what they subscribe to.

    Examples:
        mq consumerConnection billing          its members and subscriptions
        mq consumerConnection billing -o json  for a program
    """
    from mq.client.errors import ConsumerNotOnline, RouteNotFound
    from mq.client.operations.subjects import groups

    async with call.admin() as admin:
        try:
            if broker_addr is not None:
                found = await admin.consumer_connection(broker_addr, consumer_group)
            else:
                found = await admin.group_connection(consumer_group)
        except (ConsumerNotOnline, RouteNotFound) as error:
            if not await groups.exists(admin, consumer_group):
                raise
            if isinstance(error, ConsumerNotOnline):
                await report_if_early(call, admin, [error.address])
            return _no_members(consumer_group)
    rows = [_client(item) for item in found.connection_set]
    subscriptions = [
        (found.subscription_table[name].topic, found.subscription_table[name].sub_string)
        for name in java_order.properties_order(found.subscription_table)
    ]
    width = "{:<36} {:<22} {:<10} {}\n"
    plain = width.format("#ClientId", "#ClientAddr", "#Language", "#Version")
    plain += "".join(width.format(*row) for row in rows)
    plain += f"\nBelow is subscription:\n{'#Topic':<20} #SubExpression\n"
    plain += "".join(f"{topic:<20} {expression}\n" for topic, expression in subscriptions)
    ways = _ways(found)
    names = "ConsumeType", "MessageModel", "ConsumeFromWhere"
    plain += "\n" + "".join(
        f"{name}: {way or 'null'}\n" for name, way in zip(names, ways.values(), strict=True)
    )
    fields = [column.name for column in _CLIENTS]
    data: dict[str, Any] = {
        "consumers": [dict(zip(fields, row, strict=True)) for row in rows],
        "subscriptions": [
            {"topic": topic, "expression": expression} for topic, expression in subscriptions
        ],
        **ways,
    }
    notes = [f"subscribes to {topic}: {expression}" for topic, expression in subscriptions]
    return Result(_CLIENTS, rows, plain, data=data, notes=notes)


def _no_members(group: str) -> Result:
    """Return the result for an existing group without connected members."""
    data: dict[str, Any] = {"consumers": [], "subscriptions": []}
    data |= dict.fromkeys(("consumeType", "messageModel", "consumeFromWhere"))
    line = f"no consumer of group {group} is connected"
    return Result(_CLIENTS, plain=f"{line}\n", data=data, notes=[line])


def _ways(found: "ConsumerConnection") -> dict[str, str | None]:
    """Return the consume settings of the group, by JSON name; None if the broker does not report
    them.
    """
    ways = {
        "consumeType": found.consume_type,
        "messageModel": found.message_model,
        "consumeFromWhere": found.consume_from_where,
    }
    return {name: None if way is None else way.name for name, way in ways.items()}


def _client(connection: "Connection | ProducerInfo") -> Row:
    found = connections.client_of(connection)
    return (found.client_id, found.address, found.language or "null", found.version)


@gives(_CLIENTS)
@subject("producer_group", "topic")
async def producer_connection(
    call: Call,
    producer_group: Annotated[
        str, typer.Option("-g", "--producerGroup", metavar="GROUP", help="Producer group.")
    ],
    topic: Annotated[str, topic_option("Topic that it sends to.")],
) -> Result:
    """Show which producers of a group are connected to a broker of a topic.

    Examples:
        mq producerConnection shop Orders          the producers of a group
        mq producerConnection shop Orders -o json  for a program
    """
    from mq.client.errors import NoneThere
    from mq.client.operations import cluster

    async with call.admin() as admin:
        brokers = (await admin.topic_route(topic)).broker_datas
        if not brokers:
            raise NotFound(f"topic {topic} has no broker now")
        address = cluster.any_address(brokers[0])
        try:
            found = await admin.producer_connection(address, producer_group)
        except NoneThere as error:
            raise NotFound(str(error)) from None
    if not found.connection_set:
        raise NotFound(f"no producer of group {producer_group} is connected to {address}")
    rows = [_client(item) for item in found.connection_set]
    plain = "".join(
        f"{index:04}  {client:<32} {where:<22} {language:<8} {version}\n"
        for index, (client, where, language, version) in enumerate(rows, 1)
    )
    return Result(_CLIENTS, rows, plain)


_PRODUCERS = (
    text("group", "Producer group"),
    *_CLIENTS,
    number("versionNumber", ""),
    time("lastUpdate", "Last heartbeat"),
)


@gives(_PRODUCERS)
@subject("broker")
async def producer(
    call: Call,
    broker: Annotated[
        str, typer.Option("-b", "--broker", metavar="HOST:PORT", help="Address of the broker.")
    ],
) -> Result:
    """Show every producer that is connected to a broker.

    Examples:
        mq producer -b 127.0.0.1:10911          every producer of a broker
        mq producer -b 127.0.0.1:10911 -o json  for a program
    """
    async with call.admin() as admin:
        groups = (await admin.producers(broker)).data
    rows: list[Row] = []
    plain = ""
    for group in java_order.hash_order(groups):
        if not groups[group]:
            plain += f"producer group ({group}) instances are empty\n"
        for item in groups[group]:
            client = _client(item)
            rows.append((group, *client, item.version, item.last_update_timestamp))
            plain += (
                f"producer group ({group}) instance : clientId={item.client_id},"
                f"remoteIP={item.remote_ip}, language={client[2]}, version={item.version}, "
                f"lastUpdateTimestamp={item.last_update_timestamp}\n"
            )
    return Result(_PRODUCERS, rows, plain)
