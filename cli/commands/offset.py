"""The offset commands of mqadmin: reset, skip, clone and show the offsets of groups.

Formats: org.apache.rocketmq.tools.command.offset of 4.9.7; options of 5.x print the text of 5.x.
"""

from typing import Annotated

import typer

from mq.cli.parameters import Topic, cluster_option, group_option
from mq.cli.rebalance_hint import report_if_early
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import CommandError, UsageError, legal
from mq.cli.runtime.options import Truth, bare, subject
from mq.cli.runtime.status import Status
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import FORMS
from mq.cli.time_expressions import parse as parse_moment
from mq.client.operations import cluster, java_order
from mq.client.operations.columns import number, text
from mq.client.operations.consumption import consume_stats
from mq.client.operations.errors import NotFound
from mq.client.operations.offsets import reset
from mq.client.operations.offsets.reset import OffsetReset, ResetOutcome

COLUMNS = (
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    number("brokerOffset", "Broker offset"),
    number("consumerOffset", "Old offset"),
    number("timestampOffset", "Offset of that time"),
    number("offset", "New offset"),
)

COMMANDS = {
    "offset": (
        "resetOffsetByTime",
        "resetOffsetByTimeOld",
        "skipAccumulatedMessage",
        "cloneGroupOffset",
        "getConsumerStatus",
    )
}

Group = Annotated[str, group_option()]
Timestamp = Annotated[
    str,
    typer.Option(
        "-s",
        "--timestamp",
        metavar="TIME",
        help=f"Time to move to: {FORMS}.",
    ),
]
Force = Annotated[
    Truth,
    typer.Option("-f", "--force", help="If false, only go back, so that no message is skipped."),
]
RouteTopic = Annotated[
    str | None,
    cluster_option(
        "For a light topic (%LMQ%…): the cluster or parent topic that has its brokers.",
        name="--cluster",
    ),
]


def result(rows: list[ResetOutcome], plain: str, failures: list[str]) -> Result:
    """Return the result of a reset command."""
    return Result(COLUMNS, [tuple(row) for row in rows], plain, failures=failures)


def heading(wanted: OffsetReset, timestamp: str, online: bool) -> str:
    """Return the line above the table."""
    label = "group" if online else "consumerGroup"
    return (
        f"rollback consumer offset by specified {label}[{wanted.group}], topic[{wanted.topic}], "
        f"force[{java_text.truth(wanted.force)}], timestamp(string)[{timestamp}], "
        f"timestamp(long)[{wanted.timestamp}]\n"
    )


def table(rows: list[ResetOutcome], online: bool) -> str:
    """Return mqadmin's table: three columns if consumers were notified, else six."""
    if online:
        width = "{:<40}  {:<40}  {:<40}\n"
        lines = [width.format("#brokerName", "#queueId", "#offset")]
        lines += [width.format(row.broker_name[:32], row.queue_id, row.offset) for row in rows]
        return "".join(lines)
    width = "{:<20}  {:<20}  {:<20}  {:<20}  {:<20}  {:<20}\n"
    heads = "#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset"
    lines = [width.format("#brokerName", "#queueId", *heads)]
    lines += [width.format(row.broker_name[:32], *row[1:]) for row in rows]
    return "".join(lines)


@destroys("set the offsets of group {group} in topic {topic} to {timestamp}")
@bare("-c", "--cplus")
@gives(COLUMNS)
@subject("group", "topic", "timestamp")
async def reset_offset_by_time(
    call: Call,
    group: Group,
    topic: Topic,
    timestamp: Timestamp,
    force: Force = Truth.TRUE,
    cplus: Annotated[
        bool, typer.Option("--cplus", help="The consumers use the C++ client.")
    ] = False,
    broker: Annotated[
        str | None,
        typer.Option("-b", "--broker", metavar="HOST:PORT", help="With -q: only on this broker."),
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option("-q", "--queue", metavar="ID", help="With -b: only for this queue."),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option("-o", "--offset", metavar="OFFSET", help="With -b and -q: the offset to set."),
    ] = None,
    route_topic: RouteTopic = None,
) -> Result:
    """Move a consumer group to a point in time of a topic.

    Connected consumers are notified and continue there without a restart. If there is none, the
    offsets at the brokers are set. With -b and -q only one queue is set. As in 4.9, -c without a
    value means --cplus.

    Examples:
        mq resetOffsetByTime billing Orders 1h   read the last hour again
        mq resetOffsetByTime billing Orders now  skip the whole lag
        mq resetOffsetByTime billing Orders 2026-07-01T12:00 --dry-run
                                                 show what would be set
    """
    when = _time(call, timestamp)
    async with call.admin() as admin:
        if broker is None and queue is None and offset is None:
            wanted = reset.OffsetReset(topic, group, when, bool(force), cplus, route_topic)
            done = await reset.all_queues(admin, wanted, pretending=call.dry_run)
            await report_if_early(call, admin, done.without)
            plain = heading(wanted, timestamp, done.told)
            plain += table(done.moved, done.told)
            return result(done.moved, plain, done.failures)
        if broker is None or queue is None:
            raise UsageError("-b/--broker and -q/--queue (and -o/--offset) belong together")
        if when < 0:
            when = int(call.environment.clock() * 1000)
        target = await reset.offset_at(admin, broker, topic, queue, when, offset)
        row = await reset.one_queue(admin, broker, topic, group, queue, target)
        # such an offset reaches members that connect later
        if not await reset.is_of_5(admin, broker):
            await report_if_early(call, admin, [broker])
    plain = (
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], "
        f"queueId[{queue}], broker[{broker}], timestamp(string)[{timestamp}], "
        f"timestamp(long)[{when}]\nreset consumer offset to {target}\n"
    )
    return result([row], plain, [])


@destroys("set the offsets of group {group} in topic {topic} to {timestamp}")
@gives(COLUMNS)
@subject("group", "topic", "timestamp")
async def reset_offset_by_time_old(
    call: Call,
    group: Group,
    topic: Topic,
    timestamp: Timestamp,
    force: Force = Truth.TRUE,
    route_topic: RouteTopic = None,
) -> Result:
    """Set the offsets of a consumer group to a point in time; restart it afterwards.

    It only sets the offsets at the brokers. Connected consumers overwrite them, so stop them first,
    or use resetOffsetByTime.

    Examples:
        mq resetOffsetByTimeOld billing Orders 1h   set offsets to an hour ago
        mq resetOffsetByTimeOld billing Orders now  set them to the end
    """
    wanted = reset.OffsetReset(
        topic, group, _time(call, timestamp), bool(force), route_topic=route_topic
    )
    async with call.admin() as admin:
        rows, failures = await reset.at_brokers(admin, wanted)
    plain = heading(wanted, timestamp, False) + table(rows, False)
    return result(rows, plain, failures)


@destroys("skip all messages of topic {topic} that group {group} has not consumed")
@gives(COLUMNS)
@subject("group", "topic")
async def skip_accumulated_message(
    call: Call,
    group: Group,
    topic: Topic,
    force: Force = Truth.TRUE,
    route_topic: RouteTopic = None,
) -> Result:
    """Skip all messages that a consumer group has not consumed yet.

    Examples:
        mq skipAccumulatedMessage billing Orders  skip the whole lag
        mq skipAccumulatedMessage billing Orders --dry-run
                                                  show what would be set
    """
    wanted = reset.OffsetReset(topic, group, reset.TO_THE_END, bool(force), route_topic=route_topic)
    async with call.admin() as admin:
        done = await reset.all_queues(admin, wanted, pretending=call.dry_run)
        await report_if_early(call, admin, done.without)
    return result(done.moved, table(done.moved, done.told), done.failures)


def _time(call: Call, timestamp: str) -> int:
    """Return milliseconds, or TO_THE_END for `now`. Raises UsageError."""
    if timestamp == "now":
        return reset.TO_THE_END
    return parse_moment(timestamp, "-s/--timestamp", call.environment.clock())


_CLONED = (text("brokerName", "Broker"), number("queueId", "Queue"), number("offset", "Offset"))


@writes
@gives(_CLONED)
@subject("src_group", "dest_group", "topic")
async def clone_group_offset(
    call: Call,
    src_group: Annotated[
        str,
        typer.Option("-s", "--srcGroup", metavar="GROUP", help="Group to copy the offsets from."),
    ],
    dest_group: Annotated[
        str,
        typer.Option("-d", "--destGroup", metavar="GROUP", help="Group to copy the offsets to."),
    ],
    topic: Topic,
    offline: Annotated[
        str | None, typer.Option("-o", "--offline", metavar="TEXT", help="Has no effect.")
    ] = None,
) -> Result:
    """Copy the offsets of a consumer group in a topic to another group.

    Stop the consumers of the target group first: connected ones overwrite the offsets with their
    own. mqadmin copies the offsets of all topics of the group; this command copies one topic only.

    Examples:
        mq cloneGroupOffset billing invoices Orders  invoices continues at the offsets of billing
        mq cloneGroupOffset billing invoices Orders --dry-run
                                                     show what would be set
    """
    from mq.client.errors import MQError
    from mq.protocol.names import check_group

    legal(check_group, dest_group)
    async with call.admin() as admin:
        stats = await consume_stats(admin, src_group)
        route = await admin.topic_route(topic)
        addresses = {item.broker_name: cluster.any_address(item) for item in route.broker_datas}
        rows: list[Row] = []
        failures: list[str] = []
        for queue in sorted(stats.offsets):
            offset = stats.offsets[queue].consumer_offset
            if queue.topic != topic or offset < 0:
                continue
            name, queue_id = queue.broker_name, queue.queue_id
            try:
                if name not in addresses:
                    raise NotFound("the topic has no route to it; the broker may be down")
                where = addresses[name]
                await admin.update_consumer_offset(where, dest_group, topic, queue_id, offset)
            except (MQError, NotFound) as error:
                failures.append(f"{name}:{queue_id}: {error}")
            else:
                rows.append((name, queue_id, offset))
    if failures and not rows:
        raise CommandError("; ".join(failures), status=Status.UNAVAILABLE)
    if not rows:
        raise NotFound(f"group {src_group} has no offsets in topic {topic}")
    plain = (
        f"clone group offset success. srcGroup[{src_group}], destGroup=[{dest_group}], "
        f"topic[{topic}]"
    )
    return Result(_CLONED, rows, plain, failures=failures)


_STATUS = (
    text("clientId", "Consumer"),
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    number("offset", "Offset"),
)


@gives(_STATUS)
@subject("group", "topic")
async def get_consumer_status(
    call: Call,
    group: Group,
    topic: Topic,
    origin_client_id: Annotated[
        str | None, typer.Option("-i", "--originClientId", metavar="ID", help="Only this member.")
    ] = None,
) -> Result:
    """Show the offsets that each consumer of a group reports.

    A broker of the topic asks the consumers.

    Examples:
        mq getConsumerStatus billing Orders           offsets of each member
        mq getConsumerStatus billing Orders -o table  in columns
    """
    from mq.client.errors import ConsumerNotOnline

    client = origin_client_id or ""
    async with call.admin() as admin:
        brokers = (await admin.topic_route(topic)).broker_datas
        if not brokers:
            raise NotFound(f"topic {topic} has no broker now")
        address = cluster.any_address(brokers[0])
        try:
            status = await admin.consumer_status(address, topic, group, client)
        except ConsumerNotOnline as error:
            raise CommandError(str(error), status=Status.NOT_FOUND) from None
    width = "{:<50}  {:<15}  {:<15}  {:<20}\n"
    plain = (
        f"get consumer status from client. group={group}, topic={topic}, originClientId={client}\n"
    ) + width.format("#clientId", "#brokerName", "#queueId", "#offset")
    rows: list[Row] = []
    for name in java_order.hash_order(status.consumer_table):
        table = status.consumer_table[name]
        for queue in java_order.hash_order(table, java_order.queue_hash):
            row = (queue.broker_name, queue.queue_id, table[queue])
            rows.append((name, *row))
            plain += width.format(java_text.cut(name, 50), *row)
    return Result(_STATUS, rows, plain)
