"""The replication of brokers (release 5).

Formats: HAStatusSubCommand and GetSyncStateSetSubCommand of org.apache.rocketmq.tools.command.ha,
GetBrokerEpochSubCommand and ResetMasterFlushOffsetSubCommand of …broker.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli import broker_options
from mq.cli.parameters import broker_option, cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.release import since_5
from mq.cli.runtime.repetition import Interval, ResultSource, repeatedly
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, java_order
from mq.client.operations.columns import flag, number, text
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import EpochEntryCache, HARuntimeInfo, ReplicasInfo

COMMANDS = {
    "ha": (
        "haStatus",
        "getSyncStateSet",
        "getBrokerEpoch",
        "resetMasterFlushOffset",
    )
}

_STATUS_COLUMNS = (
    text("brokerAddr", "Broker"),
    text("role", "Role"),
    text("peerAddr", "Peer"),
    number("offset", "Offset"),
    number("diff", "Lag (bytes)"),
    number("bytesPerSecond", "Bytes/s"),
    flag("inSync", "In sync"),
)
_REPLICA_LINE = "{:<32}  {:<16} {:>16} {:>16} {:>16} {:>16}\n"
_REPLICA_HEADS = (
    *("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)"),
    *("#Status", "#TransferFromWhere"),
)


@gives(_STATUS_COLUMNS, data="The replication status of each broker, by its address.")
@subject("broker_addr")
def ha_status(
    call: Call,
    cluster_name: broker_options.ClusterName = None,
    broker_addr: broker_options.BrokerAddr = None,
    interval: Interval = None,
) -> ResultSource:
    """Show the state of replication, at a master or a slave (5.x brokers).

    Examples:
        mq haStatus 127.0.0.1:10911    replication of one broker
        mq haStatus -c DefaultCluster  of every master
    """
    broker_options.require(broker_addr, cluster_name)
    return repeatedly(call, interval, lambda: _ha_status(call, cluster_name, broker_addr))


async def _ha_status(call: Call, cluster_name: str | None, broker_addr: str | None) -> Result:
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name)

        async def ask(each: "Admin", address: str) -> "HARuntimeInfo":
            return await each.ha_status(address)

        found, failures = await cluster.at_each(admin, targets, since_5(call.name, ask))
    plain = ""
    rows: list[Row] = []
    data: dict[str, Any] = {}
    for address, info in found.items():
        plain += _of_master(address, info) if info.master else _of_replica(info)
        rows += _status_rows(address, info)
        data[address] = info.to_plain()
    return Result(_STATUS_COLUMNS, rows, plain, data=data, failures=failures)


def _of_master(address: str, info: "HARuntimeInfo") -> str:
    plain = (
        f"\n#MasterAddr\t{address}\n"
        f"#MasterCommitLogMaxOffset\t{info.master_commit_log_max_offset}\n"
        f"#SlaveNum\t{len(info.ha_connection_info)}\n"
        f"#InSyncSlaveNum\t{info.in_sync_slave_nums}\n"
    )
    plain += _REPLICA_LINE.format(*_REPLICA_HEADS)
    for item in info.ha_connection_info:
        speed = java_text.fixed(item.transferred_byte_in_second / 1024, 2)
        status = "OK" if item.in_sync else "Fall Behind"
        offsets = item.slave_ack_offset, item.diff, speed, status, item.transfer_from_where
        plain += _REPLICA_LINE.format(item.addr or "null", *offsets)
    return plain


def _of_replica(info: "HARuntimeInfo") -> str:
    own = info.ha_client_runtime_info
    when = java_text.milliseconds_text
    return (
        f"\n#MasterAddr\t{own.master_addr or 'null'}\n"
        f"#CommitLogMaxOffset\t{own.max_offset}\n"
        f"#TransferSpeed(KB/s)\t{java_text.fixed(own.transferred_byte_in_second / 1024, 2)}\n"
        f"#LastReadTime\t{when(own.last_read_timestamp)}\n"
        f"#LastWriteTime\t{when(own.last_write_timestamp)}\n"
        f"#MasterFlushOffset\t{own.master_flush_offset}\n"
    )


def _status_rows(address: str, info: "HARuntimeInfo") -> list[Row]:
    own = info.ha_client_runtime_info
    if not info.master:
        speed = own.transferred_byte_in_second
        return [(address, "replica", own.master_addr, own.max_offset, None, speed, None)]
    if not info.ha_connection_info:
        return [(address, "master", None, info.master_commit_log_max_offset, None, None, None)]
    return [
        (
            *(address, "master", item.addr, item.slave_ack_offset, item.diff),
            *(item.transferred_byte_in_second, item.in_sync),
        )
        for item in info.ha_connection_info
    ]


_EPOCH_COLUMNS = (
    text("cluster", "Cluster"),
    text("brokerName", "Broker"),
    text("brokerAddr", "Address"),
    number("brokerId", "Id"),
    number("epoch", "Epoch"),
    number("startOffset", "From offset"),
    number("endOffset", "To offset"),
)


@gives(_EPOCH_COLUMNS)
@subject("broker_name")
def get_broker_epoch(
    call: Call,
    cluster_name: broker_options.EachOfCluster = None,
    broker_name: Annotated[
        str | None,
        typer.Option("-b", "--brokerName", metavar="NAME", help="Only the brokers of this name."),
    ] = None,
    interval: Interval = None,
) -> ResultSource:
    """Show which master wrote which part of the log (5.x, with a controller).

    Examples:
        mq getBrokerEpoch broker-a           the master of each part
        mq getBrokerEpoch -c DefaultCluster  of every broker
    """
    if not cluster_name and not broker_name:
        raise UsageError("one of -b/--brokerName or -c/--clusterName is required")
    return repeatedly(call, interval, lambda: _epochs(call, cluster_name, broker_name))


async def _epochs(call: Call, cluster_name: str | None, broker_name: str | None) -> Result:
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        if broker_name:
            broker = info.broker_addr_table.get(broker_name)
            if broker is None:
                raise NotFound(f"no broker {broker_name!r}", hint="see: mq clusterList")
            targets = java_order.hash_order(broker.broker_addrs.values())
        else:
            targets = cluster.addresses(info, cluster_name or "")

        async def ask(each: "Admin", address: str) -> "EpochEntryCache":
            return await each.epochs(address)

        found, failures = await cluster.at_each(admin, targets, since_5(call.name, ask))
    plain = ""
    rows: list[Row] = []
    for address, cache in found.items():
        where_ = cache.cluster_name, cache.broker_name, address, cache.broker_id
        titles = "clusterName", "brokerName", "brokerAddr", "brokerId"
        plain += "".join(f"\n#{title}\t{v}" for title, v in zip(titles, where_, strict=True))
        for position, item in enumerate(cache.epoch_list, 1):
            # The last part is still written: it ends at the end of the log.
            last = position == len(cache.epoch_list)
            end = cache.max_offset if last else item.end_offset
            plain += (
                f"\n#Epoch: EpochEntry{{epoch={item.epoch}, startOffset={item.start_offset}, "
                f"endOffset={end}}}"
            )
            rows.append((*where_, item.epoch, item.start_offset, end))
        plain += "\n"
    return Result(_EPOCH_COLUMNS, rows, plain, failures=failures)


_RESET_COLUMNS = (text("brokerAddr", "Broker"), number("masterFlushOffset", "Offset"))


@writes
@gives(_RESET_COLUMNS)
@subject("broker_addr", "offset")
async def reset_master_flush_offset(
    call: Call,
    broker_addr: Annotated[str, broker_option("Address of the slave.")],
    offset: Annotated[
        int,
        typer.Option(
            "-o", "--offset", metavar="N", help="Offset up to which the master has flushed."
        ),
    ],
) -> Result:
    """Set the offset up to which a slave considers its master's log flushed (5.x brokers).

    Examples:
        mq resetMasterFlushOffset 127.0.0.1:10911 4096
                                        set it at a slave
        mq resetMasterFlushOffset 127.0.0.1:10911 4096 --dry-run
                                        show what would be sent
    """
    async with call.admin() as admin:

        async def act(each: "Admin", address: str) -> None:
            await each.reset_master_flush_offset(address, offset)

        await cluster.at_each(admin, [broker_addr], since_5(call.name, act))
    plain = f"reset master flush offset to {offset} success\n"
    return Result(_RESET_COLUMNS, [(broker_addr, offset)], plain)


_SET_COLUMNS = (
    text("brokerName", "Broker"),
    number("brokerId", "Id"),
    text("brokerAddr", "Address"),
    flag("master", "Master"),
    flag("inSync", "In sync"),
    flag("alive", "Alive"),
)


@gives(_SET_COLUMNS, data="The replicas of each set, by its name.")
@subject("controller_address")
def get_sync_state_set(
    call: Call,
    controller_address: Annotated[
        str,
        typer.Option(
            "-a", "--controllerAddress", metavar="HOST:PORT", help="Address of the controller."
        ),
    ],
    cluster_name: Annotated[
        str | None,
        cluster_option("Every replica set of this cluster."),
    ] = None,
    broker_name: Annotated[
        str | None,
        typer.Option("-b", "--brokerName", metavar="NAME", help="Only the brokers of this name."),
    ] = None,
    interval: Interval = None,
) -> ResultSource:
    """Show which replicas of a set are in sync, according to a controller (5.x).

    Examples:
        mq getSyncStateSet 127.0.0.1:9878 -b broker-a
                                        replicas in sync and not in sync
        mq getSyncStateSet 127.0.0.1:9878 -c DefaultCluster
                                        of every replica set
    """
    if not cluster_name and not broker_name:
        raise UsageError("one of -b/--brokerName or -c/--clusterName is required")
    address = controller_address.split(";")[0].strip()
    return repeatedly(call, interval, lambda: _sync_state(call, address, cluster_name, broker_name))


async def _sync_state(
    call: Call, address: str, cluster_name: str | None, broker_name: str | None
) -> Result:
    async with call.admin() as admin:
        names = [broker_name or ""]
        if not broker_name:
            info = await cluster.clusters(admin.session)
            names = cluster.broker_names(info, cluster_name or "")
        table = (await admin.sync_state(address, names)).replicas_info_table
    plain = ""
    rows: list[Row] = []
    for name in java_order.hash_order(table):
        item = table[name]
        plain += _set_page(name, item)
        rows += [
            (
                *(replica.broker_name, replica.broker_id, replica.broker_address),
                *(replica.broker_id == item.master_broker_id, in_sync, replica.alive),
            )
            for replicas, in_sync in (
                (item.in_sync_replicas, True),
                (item.not_in_sync_replicas, False),
            )
            for replica in replicas
        ]
    data = {name: item.to_plain() for name, item in table.items()}
    return Result(_SET_COLUMNS, rows, plain, data=data)


def _set_page(name: str, item: "ReplicasInfo") -> str:
    def shown(value: object) -> object:
        return "null" if value is None else value

    plain = (
        f"\n#brokerName\t{name}\n#MasterBrokerId\t{shown(item.master_broker_id)}\n"
        f"#MasterAddr\t{shown(item.master_address)}\n#MasterEpoch\t{shown(item.master_epoch)}\n"
        f"#SyncStateSetEpoch\t{shown(item.sync_state_set_epoch)}\n"
        f"#SyncStateSetNums\t{len(item.in_sync_replicas)}\n"
    )
    for title, replicas in (
        ("InSyncReplica", item.in_sync_replicas),
        ("NotInSyncReplica", item.not_in_sync_replicas),
    ):
        for replica in replicas:
            plain += (
                f"\n{title}:\tReplicaIdentity{{brokerName='{replica.broker_name}', "
                f"brokerId={replica.broker_id}, brokerAddress='{replica.broker_address}', "
                f"alive={java_text.truth(replica.alive)}}}\n"
            )
    return plain
