"""The broker commands of mqadmin. Formats: org.apache.rocketmq.tools.command.broker."""

from typing import Annotated

import typer

from mq.cli import broker_options
from mq.cli.parameters import broker_option, cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import Truth, at_most_one_of, subject
from mq.cli.show import java_text
from mq.cli.show.broker_headings import broker_heads
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import milliseconds
from mq.client.operations import cluster, java_order, masking
from mq.client.operations.columns import number, text, time

COMMANDS = {
    "broker": (
        "brokerStatus",
        "getBrokerConfig",
        "updateBrokerConfig",
        "brokerConsumeStats",
    )
}

BrokerAddr = Annotated[str | None, broker_option("Address of the broker.")]
ClusterName = Annotated[
    str | None,
    cluster_option("Every broker of this cluster. Default: the only cluster."),
]

_COLUMNS = (text("brokerAddr", "Broker"), text("key", "Key"), text("value", "Value"))
_BY_ADDRESS = "an object for each broker by its address, with the text of each value by its key"


@gives(_COLUMNS, data=_BY_ADDRESS)
@at_most_one_of("broker_addr", "cluster_name")
@subject("broker_addr")
async def broker_status(
    call: Call, broker_addr: BrokerAddr = None, cluster_name: ClusterName = None
) -> Result:
    """Show the runtime status of a broker, or of each one of a cluster.

    Examples:
        mq brokerStatus 127.0.0.1:10911    status of one broker
        mq brokerStatus -c DefaultCluster  each broker of a cluster
    """
    async with call.admin() as admin:
        cluster_name = await broker_options.cluster_or_only(admin, broker_addr, cluster_name)
        targets = [broker_addr or ""]
        if cluster_name is not None:
            targets = cluster.addresses(await cluster.clusters(admin.session), cluster_name)
        tables, failures = await cluster.at_each(
            admin, targets, lambda each, address: each.broker_runtime_info(address)
        )
    rows: list[Row] = [
        (address, key, table[key]) for address, table in tables.items() for key in sorted(table)
    ]
    lines = [
        f"{key:<32}: {value}\n" if cluster_name is None else f"{address:<24} {key:<32}: {value}\n"
        for address, key, value in rows
    ]
    return Result(_COLUMNS, rows, "".join(lines), data=tables, failures=failures)


@gives(_COLUMNS, data=_BY_ADDRESS)
@at_most_one_of("broker_addr", "cluster_name")
@subject("broker_addr")
async def get_broker_config(
    call: Call, broker_addr: BrokerAddr = None, cluster_name: ClusterName = None
) -> Result:
    """Show the settings of a broker, or of each one of a cluster.

    Secrets are masked, also those that a Java broker sends.

    Examples:
        mq getBrokerConfig 127.0.0.1:10911            every setting of a broker
        mq getBrokerConfig -c DefaultCluster -o json  of each broker, for a program
    """
    async with call.admin() as admin:
        cluster_name = await broker_options.cluster_or_only(admin, broker_addr, cluster_name)
        heads = {broker_addr or "": f"============{broker_addr}============\n"}
        if cluster_name is not None:
            heads = await broker_heads(admin, cluster_name)
        settings, failures = await cluster.at_each(
            admin, heads, lambda each, address: each.broker_config(address)
        )
    rows: list[Row] = []
    plain = ""
    settings = {address: masking.fields(found) for address, found in settings.items()}
    for address, found in settings.items():
        keys = java_order.properties_order(found)
        rows += [(address, key, found[key]) for key in keys]
        plain += heads[address]
        plain += "".join(f"{key:<50}=  {found[key]}\n" for key in keys) + "\n"
    return Result(_COLUMNS, rows, plain, data=settings, failures=failures)


@writes
@gives(_COLUMNS)
@subject("key", "value")
async def update_broker_config(
    call: Call,
    key: Annotated[str, typer.Option("-k", "--key", metavar="NAME", help="Name of the setting.")],
    value: Annotated[
        str, typer.Option("-v", "--value", metavar="VALUE", help="New value of the setting.")
    ],
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
    update_all_broker: Annotated[
        Truth,
        typer.Option("-a", "--updateAllBroker", help="With -c: on the slaves too."),
    ] = Truth.FALSE,
) -> Result:
    """Change a setting of a running broker, or of each master of a cluster.

    A broker saves it in its configuration file. It refuses settings that cannot change at run time.

    Examples:
        mq updateBrokerConfig fileReservedTime 48 -b 127.0.0.1:10911
                                        keep messages for two days
        mq updateBrokerConfig fileReservedTime 48 -c DefaultCluster --dry-run
                                        show what would be sent to each master
    """
    broker_options.require(broker_addr, cluster_name)
    if not key or any(sign in key + value for sign in "\r\n") or "=" in key:
        raise UsageError("-k/--key and -v/--value must each be one line, the key without '='")
    async with call.admin() as admin:
        targets = await broker_options.targets(
            admin, broker_addr, cluster_name, replicas=bool(update_all_broker)
        )
        done, failures = await cluster.at_each(
            admin, targets, lambda each, address: each.update_broker_config(address, {key: value})
        )
    broker_options.report_notes(call, done)
    shown = masking.MASK if masking.is_secret(key, value) else value
    rows: list[Row] = [(address, key, shown) for address in done]
    plain = "".join(f"update broker config success, {address}\n" for address in done)
    return Result(_COLUMNS, rows, plain, failures=failures)


_STATS_COLUMNS = (
    text("topic", "Topic"),
    text("group", "Consumer group"),
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    number("brokerOffset", "Broker offset"),
    number("consumerOffset", "Consumer offset"),
    number("diff", "Lag"),
    time("lastConsumed", "Last consumed"),
)
_STATS_LINE = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}\n"
_STATS_HEADS = "Topic", "Group", "Broker Name", "QID", "Broker Offset", "Consumer Offset", "Diff"


@gives(_STATS_COLUMNS, totals=(number("diffTotal", "Total lag in messages"),))
@subject("broker_addr")
async def broker_consume_stats(
    call: Call,
    broker_addr: Annotated[str, broker_option("Address of the broker.")],
    timeout_millis: Annotated[
        int,
        typer.Option(
            "-t",
            "--timeoutMillis",
            metavar="MS",
            parser=milliseconds,
            help="Timeout of the request, in milliseconds.",
        ),
    ] = 50_000,
    level: Annotated[
        int, typer.Option("-l", "--level", metavar="N", help="Only queues with at least this lag.")
    ] = 0,
    order: Annotated[
        Truth, typer.Option("-o", "--order", help="Ordered topics instead of the others.")
    ] = Truth.FALSE,
) -> Result:
    """Show the lag of every consumer group on a broker.

    Plain output omits queues of which nothing was consumed yet, as mqadmin does; `Diff Total`
    counts every queue, shown or not.

    Examples:
        mq brokerConsumeStats 127.0.0.1:10911  the lag of every group there
        mq brokerConsumeStats 127.0.0.1:10911 -l 1000
                                               only queues with a lag of 1000 or more
    """
    if timeout_millis <= 0:
        raise UsageError("-t/--timeoutMillis must be positive")
    async with call.admin() as admin:
        stats = await admin.broker_consume_stats(
            broker_addr, ordered=bool(order), timeout=timeout_millis / 1000
        )
    plain = _STATS_LINE.format(*(f"#{head}" for head in _STATS_HEADS), "#LastTime")
    rows: list[Row] = []
    parts = [
        (group, part)
        for table in stats.consume_stats_list
        for group, found in table.items()
        for part in found
    ]
    for group, part in parts:
        for queue in sorted(part.offset_table):
            item = part.offset_table[queue]
            if item.lag < level:
                continue
            offsets = item.broker_offset, item.consumer_offset, item.lag
            last = item.last_timestamp
            rows.append((queue.topic, group, queue.broker_name, queue.queue_id, *offsets, last))
            if last > 0:
                names = java_text.cut(queue.topic, 64), group, java_text.cut(queue.broker_name, 32)
                when = java_text.seconds_text(last)
                plain += _STATS_LINE.format(*names, queue.queue_id, *offsets, when)
    plain += f"\nDiff Total: {stats.total_diff}\n"
    return Result(_STATS_COLUMNS, rows, plain, totals={"diffTotal": stats.total_diff})
