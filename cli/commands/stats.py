"""Rates and counts of topics and groups. Format: org.apache.rocketmq.tools.command.stats."""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from mq.cli.parameters import topic_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.options import subject
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.client.operations import java_order
from mq.client.operations.columns import number, text
from mq.client.operations.errors import NotFound
from mq.protocol.names import DEAD_LETTER_PREFIX, MASTER_ID, RETRY_PREFIX

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import BrokerStatsData

COMMANDS = {"stats": ("statsAll",)}

_COLUMNS = (
    text("topic", "Topic"),
    text("group", "Consumer group"),
    number("accumulation", "Lag"),
    number("inTps", "In/s"),
    number("outTps", "Out/s"),
    number("inMsg24Hour", "In, 24 h"),
    number("outMsg24Hour", "Out, 24 h"),
)

_LINE = "{:<64}  {:<64} {:>12} {:>11} {:>11} {:>14} {:>14}\n"


@gives(_COLUMNS)
@subject("topic")
async def stats_all(
    call: Call,
    active_topic: Annotated[
        bool, typer.Option("-a", "--activeTopic", help="Only topics with traffic.")
    ] = False,
    topic: Annotated[str | None, topic_option("Only this topic.")] = None,
) -> Result:
    """Show the rates and counts of messages in and out of topics, by consumer group.

    A topic without a group has one row, whose group is empty.

    Examples:
        mq statsAll                  every topic, with its groups
        mq statsAll -a               only topics with traffic
        mq statsAll Orders -o table  one topic
    """
    from mq.cli import listing
    from mq.client.errors import MQError, RouteNotFound

    heads = "#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS"
    plain = _LINE.format(*heads, "#InMsg24Hour", "#OutMsg24Hour")
    rows: list[Row] = []
    failures: list[str] = []
    async with call.admin() as admin:
        names = await listing.topic_names(admin.session)
        if topic is not None and topic not in names:
            raise NotFound(f"no name server has topic {topic}", hint="see: mq topicList")
        for name in java_order.hash_order(names):
            if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) or topic not in (None, name):
                continue
            try:
                found = await _topic(admin, name, active_topic, failures)
            except (RouteNotFound, NotFound):
                continue  # it was deleted meanwhile
            except MQError as error:  # as in Java, it has no line
                failures.append(f"topic {name}: {error}")
                continue
            for row, retries in found:
                rows.append(row)
                plain += _line(row, retries)
    return Result(_COLUMNS, rows, plain, failures=failures)


def _line(row: Row, retries: bool) -> str:
    """Return a line of mqadmin 4.9, which prints lag 0 for a group without a retry topic."""
    topic, group, behind, tps_in, tps_out, count_in, count_out = row
    cut = java_text.cut
    behind = behind if retries and behind is not None else 0
    if group is None:
        rate, last = "", "NO_CONSUMER"
    else:
        rate, last = java_text.fixed(tps_out, 2), count_out
    return _LINE.format(
        cut(topic, 64), cut(group or "", 64), behind, java_text.fixed(tps_in, 2), rate, count_in,
        last,
    )  # fmt: skip


class _Flow(NamedTuple):
    tps: float
    messages: int


async def _topic(
    admin: "Admin", topic: str, active: bool, failures: list[str]
) -> list[tuple[Row, bool]]:
    """Return the rows of a topic, each with whether the group has a retry topic.

    Errors of brokers are added to `failures`. (StatsAllSubCommand.printTopicDetail)
    """
    from mq.client.operations import cluster
    from mq.client.operations.wire import groups_of_topic

    brokers = (await admin.topic_route(topic)).broker_datas
    if not brokers:
        return []
    masters = [item.broker_addrs[MASTER_ID] for item in brokers if MASTER_ID in item.broker_addrs]
    groups = await groups_of_topic(admin.session, cluster.any_address(brokers[0]), topic)
    came = await _flow(admin, masters, "TOPIC_PUT_NUMS", topic, failures)
    if not groups:
        shown = came.messages > 0 or not active
        row: Row = (topic, None, 0, came.tps, None, came.messages, None)
        return [(row, True)] if shown else []
    rows: list[tuple[Row, bool]] = []
    for group in java_order.hash_order(groups):
        went = await _flow(admin, masters, "GROUP_GET_NUMS", f"{topic}@{group}", failures)
        behind, retries = await _behind(admin, group, topic, failures)
        if not active or came.messages > 0 or went.messages > 0:
            row = (topic, group, behind, came.tps, went.tps, came.messages, went.messages)
            rows.append((row, retries))
    return rows


async def _flow(
    admin: "Admin", masters: list[str], name: str, key: str, failures: list[str]
) -> _Flow:
    """Return the sum of a figure over brokers; a broker without it counts 0."""
    from mq.client.errors import MQError, NoneThere

    tps, count = 0.0, 0
    for address in masters:
        try:
            figure = await admin.broker_stats(address, name, key)
        except NoneThere:
            continue
        except MQError as error:
            failures.append(f"{name} of {key}: {error}")
            continue
        tps += figure.stats_minute.tps if figure.stats_minute else 0.0
        count += day_sum(figure)
    return _Flow(tps, count)


def day_sum(figure: "BrokerStatsData") -> int:
    """Return the sum of a day, or of a shorter span (StatsAllSubCommand.compute24HourSum)."""
    for span in (figure.stats_day, figure.stats_hour, figure.stats_minute):
        if span is not None and span.sum:
            return span.sum
    return 0


async def _behind(
    admin: "Admin", group: str, topic: str, failures: list[str]
) -> tuple[int | None, bool]:
    """Return the lag of the group, and whether it has a retry topic.

    The lag is None if a broker does not report it; the error is added to `failures`.
    """
    from mq.client.errors import MQError, RouteNotFound
    from mq.client.operations.consumption import consume_stats

    try:
        stats = await consume_stats(admin, group, topic)
    except RouteNotFound:
        return 0, False
    except NotFound:
        return 0, True
    except MQError as error:
        failures.append(f"group {group}: {error}")
        return None, True
    return max(0, stats.lag), stats.has_retry_topic
