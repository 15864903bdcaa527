"""The cluster commands of mqadmin. Formats: org.apache.rocketmq.tools.command.cluster."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.parameters import cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.options import subject
from mq.cli.runtime.repetition import Interval, ResultSource, repeatedly
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.client.operations import broker_stats, cluster, java_order
from mq.client.operations.columns import Column, number, text, time

if TYPE_CHECKING:
    from mq.client.admin import Admin

COMMANDS = {"cluster": ("clusterList",)}

_BASE = (
    text("cluster", "Cluster"),
    text("brokerName", "Broker"),
    number("brokerId", "Id"),
    text("brokerAddr", "Address"),
    text("version", "Version"),
    number("inTps", "In/s"),
    number("outTps", "Out/s"),
    number("sendQueueSize", ""),
    number("pullQueueSize", ""),
    number("pageCacheLockTimeMillis", ""),
    time("earliestMessage", ""),
    number("diskRatio", "Disk used"),
)
_MORE = (
    text("cluster", "Cluster"),
    text("brokerName", "Broker"),
    number("brokerId", "Id"),
    text("brokerAddr", "Address"),
    number("inTotalYesterday", "In yesterday"),
    number("outTotalYesterday", "Out yesterday"),
    number("inTotalToday", "In today"),
    number("outTotalToday", "Out today"),
)

Broker = tuple[str, str, int, str]  # cluster, name, id, address


@gives(_BASE, _MORE)
@subject("cluster_name")
def cluster_list(
    call: Call,
    more_stats: Annotated[
        bool,
        typer.Option("-m", "--moreStats", help="Totals of yesterday and today instead of rates."),
    ] = False,
    interval: Interval = None,
    cluster_name: Annotated[
        str | None,
        cluster_option("Only this cluster."),
    ] = None,
) -> ResultSource:
    """List clusters with their brokers, versions and rates.

    Examples:
        mq clusterList            brokers, versions and rates
        mq clusterList -m         totals of yesterday and today
        mq clusterList --watch 2  again every two seconds
    """
    return repeatedly(call, interval, lambda: _once(call, cluster_name, more=more_stats))


async def _once(call: Call, cluster_name: str | None, *, more: bool) -> Result:
    async with call.admin() as admin:
        return await _list(call, admin, cluster_name, more=more)


async def _list(call: Call, admin: "Admin", cluster_name: str | None, *, more: bool) -> Result:
    found = _brokers(await cluster.clusters(admin.session), cluster_name)
    tables, failures = await cluster.at_each(
        admin,
        dict.fromkeys(address for *_, address in found),
        lambda each, address: each.broker_runtime_info(address),
        any_will_do=True,
    )
    now = int(call.environment.clock() * 1000)
    return _result(found, tables, failures, now, more=more)


def _brokers(info: Any, only: str | None) -> list[Broker]:
    """Return every broker in Java's order: clusters as the map has them, names sorted, then ids."""
    if only is not None:
        cluster.broker_names(info, only)
    names = [only] if only is not None else java_order.hash_order(info.cluster_addr_table)
    return [
        (name, broker, broker_id, info.broker_addr_table[broker].broker_addrs[broker_id])
        for name in names
        for broker in sorted(info.cluster_addr_table[name])
        if broker in info.broker_addr_table
        for broker_id in sorted(info.broker_addr_table[broker].broker_addrs)
    ]


def _result(
    brokers: list[Broker],
    tables: Mapping[str, Mapping[str, str]],
    failures: list[str],
    now: int,
    *,
    more: bool,
) -> Result:
    columns: tuple[Column, ...] = _MORE if more else _BASE
    line = _more_line if more else _base_line
    row = _more_row if more else _base_row
    plain = _MORE_HEAD if more else _BASE_HEAD
    rows: list[Row] = []
    for broker in brokers:
        table = tables.get(broker[3])
        plain += line(broker, table, now)
        rows.append((*broker, *row(table or {})))
    return Result(columns, rows, plain, failures=failures)


_BASE_LINE = "{:<16}  {:<22}  {:<4}  {:<22} {:<16} {:>19} {:>19} {:>10} {:>5} {:>6}\n"
_BASE_HEAD = _BASE_LINE.format(
    "#Cluster Name",
    "#Broker Name",
    "#BID",
    "#Addr",
    "#Version",
    "#InTPS(LOAD)",
    "#OutTPS(LOAD)",
    "#PCWait(ms)",
    "#Hour",
    "#SPACE",
)
_MORE_LINE = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}\n"
_MORE_HEAD = _MORE_LINE.format(
    "#Cluster Name",
    "#Broker Name",
    "#InTotalYest",
    "#OutTotalYest",
    "#InTotalToday",
    "#OutTotalToday",
)


def _base_line(broker: Broker, table: Mapping[str, str] | None, now: int) -> str:
    """Return the line of a broker. One that did not answer has empty texts, a missing key reads
    null.
    """
    missing = "" if table is None else "null"
    known = table or {}

    def load(rates: str, queue: str) -> str:
        rate = java_text.fixed(broker_stats.first_number(known, rates), 2)
        size = known.get(f"{queue}ThreadPoolQueueSize", missing)
        wait = known.get(f"{queue}ThreadPoolQueueHeadWaitTimeMills", missing)
        return f"{rate:>9}({size},{wait}ms)"

    earliest = known.get("earliestMessageTimeStamp")
    hours = (now - int(earliest)) / 1000.0 / 60.0 / 60.0 if earliest else 0.0
    return _BASE_LINE.format(
        *broker,
        known.get("brokerVersionDesc", missing),
        load("putTps", "send"),
        load("getTransferedTps", "pull"),
        known.get("pageCacheLockTimeMills", missing),
        java_text.fixed(hours, 2),
        java_text.fixed(float(known.get("commitLogDiskRatio") or 0), 4),
    )


def _base_row(table: Mapping[str, str]) -> Row:
    ratio = table.get("commitLogDiskRatio")
    return (
        table.get("brokerVersionDesc"),
        _rate(broker_stats.in_rate(table), table),
        _rate(broker_stats.out_rate(table), table),
        broker_stats.integer(table, "sendThreadPoolQueueSize"),
        broker_stats.integer(table, "pullThreadPoolQueueSize"),
        broker_stats.integer(table, "pageCacheLockTimeMills"),
        broker_stats.earliest_at(table),
        round(float(ratio), 4) if ratio else None,
    )


def _rate(rate: float | None, table: Mapping[str, str]) -> float | None:
    """Return the rate. A broker that answers without a rate has 0, as in mqadmin."""
    return 0.0 if rate is None and table else rate


def _more_line(broker: Broker, table: Mapping[str, str] | None, now: int) -> str:
    return _MORE_LINE.format(*broker[:2], *(broker_stats.totals(table or {}) or (0, 0, 0, 0)))


def _more_row(table: Mapping[str, str]) -> Row:
    return broker_stats.totals(table) or (None, None, None, None)
