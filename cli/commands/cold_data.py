"""Cold data: messages that brokers of release 5 read from the disk, not from the page cache.

Formats: …ColdDataFlowCtr… and CommitLogSetReadAheadSubCommand of
org.apache.rocketmq.tools.command.broker.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli import broker_options
from mq.cli.parameters import group_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.release import since_5
from mq.cli.show import java_text
from mq.cli.show.broker_headings import broker_heads
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster
from mq.client.operations.columns import number, text

if TYPE_CHECKING:
    from mq.client.admin import Admin

COMMANDS = {
    "broker": (
        "getColdDataFlowCtrInfo",
        "updateColdDataFlowCtrGroupConfig",
        "removeColdDataFlowCtrGroupConfig",
        "setCommitLogReadAheadMode",
    )
}

Group = Annotated[str, group_option("--consumerGroup")]

_INFO_COLUMNS = (
    text("brokerAddr", "Broker"),
    text("group", "Consumer group"),
    number("threshold", "Limit"),
    number("coldAcc", "Read"),
)


async def _heads(admin: "Admin", broker_addr: str | None, name: str | None) -> dict[str, str]:
    """Return the line above the output of each broker, by address."""
    broker_options.require(broker_addr, name)
    if broker_addr:
        return {broker_addr: f"============{broker_addr}============\n"}
    assert name is not None
    return await broker_heads(admin, name)


@gives(_INFO_COLUMNS, data="By broker: the limits, and the bytes that each group read this second.")
@subject("broker_addr")
async def get_cold_data_flow_ctr_info(
    call: Call,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.EachOfCluster = None,
) -> Result:
    """Show the limits of consumer groups for cold data, and the bytes read (5.x brokers).

    Examples:
        mq getColdDataFlowCtrInfo 127.0.0.1:10911    limits and counts of one broker
        mq getColdDataFlowCtrInfo -c DefaultCluster  of every broker
    """
    async with call.admin() as admin:
        heads = await _heads(admin, broker_addr, cluster_name)

        async def ask(each: "Admin", address: str) -> dict[str, Any] | None:
            return _read(await each.cold_data_info(address), address)

        found, failures = await cluster.at_each(admin, heads, since_5(call.name, ask))
    plain = ""
    rows: list[Row] = []
    for address, info in found.items():
        plain += f" {heads[address]}"
        if info is None:
            plain += f"Broker[{address}] has no cold ctr table !\n"
            continue
        plain += _page(info)
        limits, running = info.get("configTable", {}), info.get("runtimeTable", {})
        for group in sorted({*limits, *running}):
            accumulated = running.get(group, {}).get("coldAcc")
            limit = limits.get(group, info.get("cgColdReadThreshold"))
            rows.append((address, group, limit, accumulated))
    return Result(_INFO_COLUMNS, rows, plain, data=found, failures=failures)


def _read(body: bytes, address: str) -> dict[str, Any] | None:
    from mq.client.errors import BadAnswer
    from mq.protocol import fastjson

    if not body:
        return None
    try:
        info = fastjson.loads(body)
    except fastjson.MalformedJson as error:
        raise BadAnswer(address, str(error)) from None
    if not isinstance(info, dict):
        raise BadAnswer(address, "not a table of limits")
    return info


def _page(info: dict[str, Any]) -> str:
    """Return the JSON as Java shows it: runtime times as text, at the end."""
    from mq.cli.machine.rocks import pretty

    running = {}
    for group, state in info.get("runtimeTable", {}).items():
        shown = {key: value for key, value in state.items() if not key.endswith("TimeMills")}
        shown["lastColdReadTimeFormat"] = java_text.seconds_text(state["lastColdReadTimeMills"])
        shown["createTimeFormat"] = java_text.seconds_text(state["createTimeMills"])
        running[group] = shown
    return pretty({**info, "runtimeTable": running}) + "\n"


_LIMIT_COLUMNS = (
    text("brokerAddr", "Broker"),
    text("group", "Consumer group"),
    number("threshold", "Limit"),
)


@writes
@gives(_LIMIT_COLUMNS)
@subject("consumer_group", "threshold")
async def update_cold_data_flow_ctr_group_config(
    call: Call,
    consumer_group: Group,
    threshold: Annotated[
        int,
        typer.Option(
            "-v", "--threshold", metavar="BYTES", help="Bytes per second that it may read."
        ),
    ],
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
) -> Result:
    """Limit how much cold data a consumer group may read (5.x brokers).

    Examples:
        mq updateColdDataFlowCtrGroupConfig billing 3145728 -c DefaultCluster
                                        three MiB per second
        mq updateColdDataFlowCtrGroupConfig billing 0 -b 127.0.0.1:10911
                                        no limit, on one broker
    """
    if not consumer_group or any(sign in consumer_group for sign in "=\r\n"):
        raise UsageError(f"-g/--consumerGroup: {consumer_group!r}")
    limits = {consumer_group: threshold}
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name)

        async def act(each: "Admin", address: str) -> None:
            await each.update_cold_data_limits(address, limits)

        done, failures = await cluster.at_each(admin, targets, since_5(call.name, act))
    plain = "".join(f"updateColdDataFlowCtrGroupConfig success, {address}\n" for address in done)
    rows: list[Row] = [(address, consumer_group, threshold) for address in done]
    return Result(_LIMIT_COLUMNS, rows, plain, failures=failures)


_REMOVED_COLUMNS = (text("brokerAddr", "Broker"), text("group", "Consumer group"))


@writes
@gives(_REMOVED_COLUMNS)
@subject("consumer_group")
async def remove_cold_data_flow_ctr_group_config(
    call: Call,
    consumer_group: Group,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
) -> Result:
    """Remove the limit of a consumer group for cold data (5.x brokers).

    Examples:
        mq removeColdDataFlowCtrGroupConfig billing -c DefaultCluster
                                        on every master
        mq removeColdDataFlowCtrGroupConfig billing -b 127.0.0.1:10911
                                        on one broker
    """
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name)

        async def act(each: "Admin", address: str) -> None:
            await each.remove_cold_data_limit(address, consumer_group)

        done, failures = await cluster.at_each(admin, targets, since_5(call.name, act))
    plain = "".join(f"remove broker cold read threshold success, {address}\n" for address in done)
    rows: list[Row] = [(address, consumer_group) for address in done]
    return Result(_REMOVED_COLUMNS, rows, plain, failures=failures)


_MODE_COLUMNS = (text("brokerAddr", "Broker"), text("answer", "Answer"))


@writes
@gives(_MODE_COLUMNS)
@subject("commit_log_read_ahead_mode")
async def set_commit_log_read_ahead_mode(
    call: Call,
    commit_log_read_ahead_mode: Annotated[
        str,
        typer.Option(
            "-m",
            "--commitLogReadAheadMode",
            metavar="MODE",
            help="0: the default of the system; 1: random access.",
        ),
    ],
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.EachOfCluster = None,
) -> Result:
    """Choose how the system reads ahead in the commit log (5.x brokers).

    Mode 1 spares the page cache of a broker whose consumers read scattered old messages.

    Examples:
        mq setCommitLogReadAheadMode 1 -b 127.0.0.1:10911
                                        for consumers of old messages
        mq setCommitLogReadAheadMode 0 -c DefaultCluster
                                        back to the default, on all brokers
    """
    if commit_log_read_ahead_mode not in ("0", "1"):
        raise UsageError("-m/--commitLogReadAheadMode: 0 (default) or 1 (random access)")
    mode = int(commit_log_read_ahead_mode)
    async with call.admin() as admin:
        heads = await _heads(admin, broker_addr, cluster_name)

        async def act(each: "Admin", address: str) -> str:
            return await each.set_read_ahead(address, mode)

        done, failures = await cluster.at_each(admin, heads, since_5(call.name, act))
    plain = "".join(
        f" {heads[address]}commitLog set readAhead mode rstStr{answer or 'null'}\n"
        for address, answer in done.items()
    )
    return Result(_MODE_COLUMNS, list(done.items()), plain, failures=failures)
