"""Commands that export metadata and settings of clusters to files.

Formats: ExportMetadataCommand, ExportConfigsCommand, ExportPopRecordCommand of
org.apache.rocketmq.tools.command.export.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli import broker_options
from mq.cli.machine.export_files import COLUMNS, PRINTED, FilePath, export
from mq.cli.parameters import cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.options import Truth, subject
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster
from mq.client.operations.columns import flag, text
from mq.protocol.names import (
    DEAD_LETTER_PREFIX,
    MASTER_ID,
    PREDEFINED_GROUPS,
    RETRY_PREFIX,
    is_system_group,
)

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import SubscriptionGroupWrapper, TopicConfigSerializeWrapper

    Tables = tuple[TopicConfigSerializeWrapper, SubscriptionGroupWrapper]

COMMANDS = {
    "export": (
        "exportMetadata",
        "exportConfigs",
        "exportPopRecord",
    )
}

Cluster = Annotated[
    str,
    cluster_option("Every broker of this cluster."),
]


async def user_topics(
    admin: "Admin", address: str, *, special: bool = False
) -> "TopicConfigSerializeWrapper":
    """Return the user topics of a broker; with `special`, retry and dead letter topics, too."""
    found = await admin.topic_configs(address)
    system = (await admin.broker_system_topics(address)).topic_list
    left_out = () if special else (RETRY_PREFIX, DEAD_LETTER_PREFIX)
    found.topic_config_table = {
        name: config
        for name, config in found.topic_config_table.items()
        if name not in system and not name.startswith(left_out)
    }
    return found


async def user_groups(admin: "Admin", address: str) -> "SubscriptionGroupWrapper":
    """Return the consumer groups of a broker that users created."""
    found = await admin.subscription_groups(address)
    found.subscription_group_table = {
        name: config
        for name, config in found.subscription_group_table.items()
        if name not in PREDEFINED_GROUPS and not is_system_group(name)
    }
    return found


@writes
@gives(COLUMNS, data=PRINTED)
async def export_metadata(
    call: Call,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
    file_path: FilePath = None,
    topic: Annotated[bool, typer.Option("-t", "--topic", help="Only the topics.")] = False,
    subscription_group: Annotated[
        bool, typer.Option("-g", "--subscriptionGroup", help="Only the consumer groups.")
    ] = False,
    special_topic: Annotated[
        bool,
        typer.Option("-s", "--specialTopic", help="Include retry and dead letter topics."),
    ] = False,
) -> Result:
    """Write the topics and consumer groups of a broker or cluster to a file.

    The file is topic.json with -t, subscriptionGroup.json with -g, else metadata.json. For a
    cluster it has the sum of the queues of its masters. (With -b mqadmin writes nothing unless -t
    or -g is given; this command writes both.)

    Examples:
        mq exportMetadata -c DefaultCluster -f -  topics and groups, to standard output
        mq exportMetadata -b 127.0.0.1:10911 -t -f export
                                                  the topics of one broker, to a directory
    """
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name)

        async def ask(each: "Admin", address: str) -> "Tables":
            topics = await user_topics(each, address, special=special_topic)
            return topics, await user_groups(each, address)

        tables, failures = await cluster.at_each(admin, targets, ask)
    name = "metadata"
    if topic or subscription_group:
        name = "topic" if topic else "subscriptionGroup"
    if broker_addr:
        topics, groups = tables[broker_addr]
        document = {} if name == "subscriptionGroup" else topics.to_plain()
        document |= {} if name == "topic" else groups.to_plain()
        return export(call, file_path, f"{name}.json", document, failures)
    document = _sums(list(tables.values()))
    if name != "metadata":
        del document["subscriptionGroupTable" if topic else "topicConfigTable"]
    document["exportTime"] = int(call.environment.clock() * 1000)
    return export(call, file_path, f"{name}.json", document, failures, "\n")


def _sums(tables: "list[Tables]") -> dict[str, Any]:
    """Return the topics and groups of all masters: the settings of the last, the queues of all."""
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for found, _ in tables:
        for name, config in found.topic_config_table.items():
            if (before := topics.get(name)) is not None:
                config.read_queue_nums += before.read_queue_nums
                config.write_queue_nums += before.write_queue_nums
            topics[name] = config
    for _, more in tables:
        for name, group in more.subscription_group_table.items():
            if (known := groups.get(name)) is not None:
                group.retry_queue_nums += known.retry_queue_nums
            groups[name] = group
    return {
        "topicConfigTable": {name: topics[name].to_plain() for name in sorted(topics)},
        "subscriptionGroupTable": {name: groups[name].to_plain() for name in sorted(groups)},
    }


# ExportConfigsCommand.needBrokerProprties
_SETTINGS = (
    *("brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime"),
    *("filterServerNums", "flushDiskType", "maxMessageSize", "messageDelayLevel"),
    *("msgTraceTopicName", "slaveReadEnable", "traceOn", "traceTopicEnable", "useTLS"),
    *("autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
)


@writes
@gives(COLUMNS, data=PRINTED)
@subject("cluster_name")
async def export_configs(call: Call, cluster_name: Cluster, file_path: FilePath = None) -> Result:
    """Write the settings and number of a cluster's brokers to configs.json.

    Examples:
        mq exportConfigs DefaultCluster -f -       settings, to standard output
        mq exportConfigs DefaultCluster -f export  to a directory
    """
    async with call.admin() as admin:
        info = await cluster.clusters(admin.session)
        brokers = cluster.brokers(info, cluster_name)
        found, failures = await cluster.at_each(
            admin,
            cluster.masters(info, cluster_name),
            lambda each, address: each.broker_config(address),
        )
    configs = {
        settings.get("brokerName", address): {
            key: settings[key] for key in _SETTINGS if key in settings
        }
        for address, settings in found.items()
    }
    replicas = sum(1 for item in brokers for number in item.broker_addrs if number != MASTER_ID)
    scale = {
        "namesrvSize": len(call.name_servers),
        "masterBrokerSize": len(found) + len(failures),
        "slaveBrokerSize": replicas,
    }
    document = {"brokerConfigs": configs, "clusterScale": scale}
    return export(call, file_path, "configs.json", document, failures)


_POP_COLUMNS = (
    text("brokerName", "Broker"),
    text("brokerAddr", "Address"),
    flag("dryRun", "Dry run"),
)


@writes
@gives(_POP_COLUMNS)
async def export_pop_record(
    call: Call,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.EachOfCluster = None,
    dry_run: Annotated[
        Truth, typer.Option("-d", "--dryRun", help="Only show the brokers that would do it.")
    ] = Truth.FALSE,
) -> Result:
    """Let brokers write popped, unacknowledged messages where older releases read them.

    This prepares a downgrade from popConsumerKVServiceEnable (5.4). With `-d true` nothing is done;
    in mqadmin 5.5.0 it is inverted: only `-d false` does nothing.

    Examples:
        mq exportPopRecord -b 127.0.0.1:10911         let a broker write them
        mq exportPopRecord -c DefaultCluster -d true  only show the brokers
    """
    from mq.cli.runtime.release import since_5

    broker_options.require(broker_addr, cluster_name)
    async with call.admin() as admin:
        names = await _broker_names(admin, broker_addr, cluster_name)
        done: dict[str, None] = dict.fromkeys(names)
        failures: list[str] = []
        if not dry_run:

            async def act(each: "Admin", address: str) -> None:
                await each.export_pop_records(address, timeout=_POP_SECONDS)

            done, failures = await cluster.at_each(admin, names, since_5(call.name, act))
    dry = "true" if dry_run else "false"
    plain = "".join(
        f"Export broker records, brokerName={names[address]}, brokerAddr={address}, dryRun={dry}\n"
        for address in done
    )
    rows: list[Row] = [(names[address], address, bool(dry_run)) for address in done]
    return Result(_POP_COLUMNS, rows, plain, failures=failures)


_POP_SECONDS = 30.0


async def _broker_names(
    admin: "Admin", broker_addr: str | None, cluster_name: str | None
) -> dict[str, str]:
    """Return the name of each broker of the options, by address."""
    if broker_addr:
        return {broker_addr: (await admin.broker_config(broker_addr)).get("brokerName", "null")}
    assert cluster_name is not None
    info = await cluster.clusters(admin.session)
    return {
        broker.broker_addrs[number]: broker.broker_name
        for broker in cluster.brokers(info, cluster_name)
        for number in sorted(broker.broker_addrs)
    }
