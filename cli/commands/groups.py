"""Consumer groups: deletion, settings, consume mode.

Formats: DeleteSubscriptionGroupCommand, GetConsumerConfigSubCommand, SetConsumeModeSubCommand and
UpdateSubGroupListSubCommand of org.apache.rocketmq.tools.command.consumer.
"""

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli import broker_options, inputs
from mq.cli.parameters import group_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import CommandError, UsageError, legal
from mq.cli.runtime.options import Truth, one_of, subject
from mq.cli.runtime.status import Status
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, java_order
from mq.client.operations.columns import flag, nested, number, text
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects import groups

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import SubscriptionGroupConfig

COMMANDS = {
    "consumer": (
        "updateSubGroupList",
        "deleteSubGroup",
        "getConsumerConfig",
        "setConsumeMode",
    )
}

Group = Annotated[str, group_option("--groupName")]

_DELETED_COLUMNS = (text("role", "Role"), text("address", "Address"), text("name", "Deleted"))


@destroys("delete consumer group {group_name}")
@gives(_DELETED_COLUMNS)
@subject("group_name")
async def delete_sub_group(
    call: Call,
    group_name: Group,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
    remove_offset: Annotated[
        Truth, typer.Option("-r", "--removeOffset", help="Delete its offsets too.")
    ] = Truth.FALSE,
) -> Result:
    """Delete a consumer group, and with -c its retry and dead letter topics.

    Without -r, a group that is created again continues at the old offsets.

    Examples:
        mq deleteSubGroup billing -c DefaultCluster  delete it; asks on a terminal
        mq deleteSubGroup billing -c DefaultCluster -r true --dry-run
                                                     show what would be deleted, with offsets
    """
    from mq.cli.commands.topic import removed_text

    in_cluster = cluster_name if not broker_addr else None
    async with call.admin() as admin:
        removed = await groups.remove_group(
            admin,
            await broker_options.targets(admin, broker_addr, cluster_name),
            group_name,
            in_cluster,
            clean_offset=bool(remove_offset),
        )
        kept: list[str] = []
        if in_cluster:
            kept = cluster.kept(await cluster.clusters(admin.session), in_cluster)
    suffix = "" if broker_addr else f" in cluster [{cluster_name}]"
    plain = "".join(
        f"delete subscription group [{group_name}] from broker [{address}]{suffix} success.\n"
        for address in removed.done
    )
    rows: list[Row] = [("broker", address, group_name) for address in removed.done]
    for topic, gone in removed.topics:
        plain += removed_text(gone, topic, str(in_cluster))
        rows += gone.rows
    return Result(_DELETED_COLUMNS, rows, plain, failures=[*removed.failures, *kept])


_CONFIG_COLUMNS = (
    text("cluster", "Cluster"),
    text("brokerName", "Broker"),
    text("key", "Setting"),
    text("value", "Value"),
)
_CONFIG_DATA = (
    text("cluster", "Cluster"),
    text("brokerName", "Broker"),
    nested("config", "The settings of the group there"),
)
# The fields of SubscriptionGroupConfig in 4.9, in the order of declaration.
_FIELDS_OF_4 = (
    *("groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable"),
    *("retryQueueNums", "retryMaxTimes", "brokerId", "whichBrokerWhenConsumeSlowly"),
    "notifyConsumerIdsChangedEnable",
)


@gives(_CONFIG_COLUMNS, data=_CONFIG_DATA)
@subject("group_name")
async def get_consumer_config(call: Call, group_name: Group) -> Result:
    """Show the settings of a consumer group at each broker.

    Examples:
        mq getConsumerConfig billing          settings of a group
        mq getConsumerConfig billing -o json  for a program
    """
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        homes = {
            cluster.any_address(broker): name
            for name in java_order.hash_order(info.broker_addr_table)
            if (broker := info.broker_addr_table[name]).broker_addrs
        }
        configs, failures = await cluster.at_each(
            admin, homes, lambda each, address: groups.settings(each, address, group_name)
        )
    plain = ""
    rows: list[Row] = []
    data: list[dict[str, Any]] = []
    for address, config in configs.items():
        if config is None:
            continue
        name = cluster.cluster_of(info, homes[address])
        settings = config.to_plain()
        line = "=" * 29
        plain += f"{line}{name or 'null'}:{homes[address]}{line}\n"
        plain += "".join(f"{key:<40}=  {_text(settings[key])}\n" for key in _FIELDS_OF_4)
        rows += [(name, homes[address], key, _text(value)) for key, value in settings.items()]
        data.append({"cluster": name, "brokerName": homes[address], "config": settings})
    if not data and not failures:
        raise NotFound(
            f"no broker has consumer group {group_name}", hint="see: mq consumerProgress"
        )
    return Result(_CONFIG_COLUMNS, rows, plain, data=data, failures=failures)


def _text(value: Any) -> str:
    return java_text.truth(value) if isinstance(value, bool) else str(value)


class Mode(Enum):
    """How a group consumes a topic."""

    PULL = "pull"
    POP = "pop"


_MODE_COLUMNS = (
    text("brokerAddr", "Broker"),
    text("topic", "Topic"),
    text("group", "Consumer group"),
    text("mode", "Mode"),
    number("popShareQueueNum", "Queues shared"),
)


@writes
@gives(_MODE_COLUMNS)
@subject("group_name", "topic_name", "mode")
async def set_consume_mode(
    call: Call,
    topic_name: Annotated[
        str, typer.Option("-t", "--topicName", metavar="TOPIC", help="Topic name.")
    ],
    group_name: Group,
    mode: Annotated[Mode, typer.Option("-m", "--mode", help="Mode: PULL or POP.")],
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
    pop_share_queue_num: Annotated[
        int,
        typer.Option(
            "-q",
            "--popShareQueueNum",
            metavar="N",
            help="Number of further queues that each member pops from.",
        ),
    ] = 0,
) -> Result:
    """Choose whether a consumer group pulls a topic or pops it (5.x brokers).

    A popping group gets messages from the broker one by one; its members share queues.

    Examples:
        mq setConsumeMode billing Orders pop -c DefaultCluster
                                        pop from now on
        mq setConsumeMode billing Orders pull -c DefaultCluster
                                        pull again
    """
    from mq.cli.runtime.release import since_5
    from mq.protocol.bodies import MessageRequestMode

    chosen = MessageRequestMode[mode.name]
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name)

        async def act(each: "Admin", address: str) -> None:
            await each.set_message_request_mode(
                address, topic_name, group_name, chosen, pop_share_queue_num
            )

        done, failures = await cluster.at_each(admin, targets, since_5(call.name, act))
    plain = "".join(f"set consume mode to {address} success.\n" for address in done)
    plain += (
        f"topic[{topic_name}] group[{group_name}] consume mode[{mode.name}] "
        f"popShareQueueNum[{pop_share_queue_num}]"
    )
    rows: list[Row] = [
        (address, topic_name, group_name, mode.name, pop_share_queue_num) for address in done
    ]
    return Result(_MODE_COLUMNS, rows, plain, failures=failures)


_LIST_COLUMNS = (
    text("brokerAddr", "Broker"),
    text("group", "Consumer group"),
    flag("consumeEnable", "May consume"),
    number("retryQueueNums", "Retry queues"),
    number("retryMaxTimes", "Retries"),
)


@writes
@gives(_LIST_COLUMNS)
@one_of("broker_addr", "cluster_name")
@subject("filename")
async def update_sub_group_list(
    call: Call,
    filename: Annotated[
        str,
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE",
            help="JSON file with a list of groups; -: standard input.",
        ),
    ],
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
) -> Result:
    """Create or change many consumer groups at once, from a file (5.x brokers).

    The file is a JSON list of objects with groupName and optionally consumeEnable,
    consumeFromMinEnable, consumeBroadcastEnable, retryQueueNums, retryMaxTimes, brokerId and other
    fields that getConsumerConfig -o json shows.

    Examples:
        mq updateSubGroupList groups.json -c DefaultCluster
                                        create all groups of the file
        mq updateSubGroupList groups.json -b 127.0.0.1:10911
                                        on one broker
    """
    from mq.cli.runtime.release import since_5

    configs = _read_groups(call, filename)
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name)

        async def send(each: "Admin", address: str) -> None:
            await each.update_subscription_groups(address, configs)

        done, failures = await cluster.at_each(admin, targets, since_5(call.name, send))
    what = "group config" if broker_addr else "subscription group config"
    plain = "".join(
        f"submit batch of {what} to {address} success, please check the result later.\n"
        for address in done
    )
    rows: list[Row] = [
        (address, item.group_name, item.consume_enable, item.retry_queue_nums, item.retry_max_times)
        for address in done
        for item in configs
    ]
    return Result(_LIST_COLUMNS, rows, plain, failures=failures)


def _read_groups(call: Call, filename: str) -> list["SubscriptionGroupConfig"]:
    from mq.cli.commands.topic_settings import read_list
    from mq.protocol.bodies import SubscriptionGroupConfig
    from mq.protocol.errors import RemoteProtocolError
    from mq.protocol.names import check_group

    configs = []
    for position, item in enumerate(read_list(call, filename, "consumer groups"), 1):
        try:
            config = SubscriptionGroupConfig.from_plain(item)
        except RemoteProtocolError as error:
            message = f"{inputs.called(filename)}: group {position}: {error}"
            raise CommandError(message, status=Status.BAD_DATA) from None
        if not config.group_name:
            raise UsageError(f"{inputs.called(filename)}: group {position} has no groupName")
        legal(check_group, config.group_name)
        configs.append(config)
    return configs
