"""Controllers of release 5, which elect masters, and broker containers.

Formats: org.apache.rocketmq.tools.command.controller and …container.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import broker_options
from mq.cli.parameters import cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, java_order, masking
from mq.client.operations.columns import flag, number, text
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    pass

COMMANDS = {
    "controller": (
        "getControllerMetaData",
        "getControllerConfig",
        "updateControllerConfig",
        "electMaster",
        "cleanBrokerMetadata",
        "addBroker",
        "removeBroker",
    )
}

Controller = Annotated[
    str,
    typer.Option(
        "-a",
        "--controllerAddress",
        metavar="HOST:PORT",
        help="Address of any controller of the group.",
    ),
]
Controllers = Annotated[
    str,
    typer.Option(
        "-a", "--controllerAddress", metavar="HOST:PORT[;…]", help="Addresses of the controllers."
    ),
]
SetName = Annotated[
    str,
    typer.Option(
        "-bn", "--brokerName", metavar="NAME", help="Name of the replica set (the brokers' name)."
    ),
]

_METADATA_COLUMNS = (
    text("group", "Group"),
    text("leaderId", "Leader"),
    text("leaderAddress", "Address"),
    text("peers", "Controllers"),
)


@gives(_METADATA_COLUMNS)
@subject("controller_address")
async def get_controller_meta_data(call: Call, controller_address: Controller) -> Result:
    """Show the controllers of a group and their leader.

    Examples:
        mq getControllerMetaData 127.0.0.1:9878  the leader and the members
        mq getControllerMetaData 127.0.0.1:9878 -o json
                                                 for a program
    """
    async with call.admin() as admin:
        found = await admin.controller_metadata(controller_address)
    ids = found.group, found.controller_leader_id, found.controller_leader_address
    plain = "\n#ControllerGroup\t{}\n#ControllerLeaderId\t{}\n#ControllerLeaderAddress\t{}".format(
        *("null" if value is None else value for value in ids)
    )
    peers = [peer for peer in (found.peers or "").split(";") if peer]
    plain += "".join(f"\n#Peer:\t{peer}" for peer in peers) + "\n"
    return Result(_METADATA_COLUMNS, [(*ids, ";".join(peers))], plain)


_CONFIG_COLUMNS = (text("address", "Controller"), text("key", "Key"), text("value", "Value"))


def _addresses(controllers: str) -> list[str]:
    found = [part.strip() for part in controllers.split(";") if part.strip()]
    if not found:
        raise UsageError("-a/--controllerAddress is empty")
    return found


@gives(_CONFIG_COLUMNS, data="The settings of each controller, by its address.")
@subject("controller_address")
async def get_controller_config(call: Call, controller_address: Controllers) -> Result:
    """Show the settings of controllers.

    Secrets are masked, also those that a Java controller sends.

    Examples:
        mq getControllerConfig 127.0.0.1:9878  settings of a controller
        mq getControllerConfig '127.0.0.1:9878;127.0.0.1:9868' -o json
                                               of two controllers
    """
    async with call.admin() as admin:
        found, failures = await cluster.at_each(
            admin,
            _addresses(controller_address),
            lambda each, address: each.controller_config(address),
        )
    found = {address: masking.fields(settings) for address, settings in found.items()}
    plain = ""
    rows: list[Row] = []
    for address in java_order.hash_order(found, capacity=4):
        settings = found[address]
        plain += f"============{address}============\n"
        for key in java_order.properties_order(settings):
            plain += f"{key:<50}=  {settings[key]}\n"
            rows.append((address, key, settings[key]))
    return Result(_CONFIG_COLUMNS, rows, plain, data=found, failures=failures)


@writes
@gives(_CONFIG_COLUMNS)
@subject("key", "value")
async def update_controller_config(
    call: Call,
    controller_address: Controllers,
    key: Annotated[str, typer.Option("-k", "--key", metavar="NAME", help="Name of the setting.")],
    value: Annotated[
        str, typer.Option("-v", "--value", metavar="VALUE", help="New value of the setting.")
    ],
) -> Result:
    """Change a setting of controllers.

    Examples:
        mq updateControllerConfig scanNotActiveBrokerInterval 5000 -a 127.0.0.1:9878
                                        check every five seconds
        mq updateControllerConfig notifyBrokerRoleChanged false -a 127.0.0.1:9878
                                        do not notify brokers
    """
    if not key or any(sign in key + value for sign in "\r\n") or "=" in key:
        raise UsageError("-k/--key and -v/--value must each be one line, the key without '='")
    addresses = _addresses(controller_address)
    async with call.admin() as admin:
        done, failures = await cluster.at_each(
            admin,
            addresses,
            lambda each, address: each.update_controller_config(address, {key: value}),
        )
    broker_options.report_notes(call, done)
    shown_value = masking.MASK if masking.is_secret(key, value) else value
    plain = f"update controller config success![{', '.join(done)}]\n{key} : {shown_value}\n"
    rows: list[Row] = [(address, key, shown_value) for address in done]
    return Result(_CONFIG_COLUMNS, rows, plain, failures=failures)


_ELECTED_COLUMNS = (
    text("cluster", "Cluster"),
    text("brokerName", "Broker"),
    number("brokerId", "Id"),
    text("brokerAddr", "Address"),
    flag("master", "Master"),
    number("masterEpoch", "Epoch"),
    number("syncStateSetEpoch", "Epoch of the set"),
)


@writes
@gives(_ELECTED_COLUMNS)
async def elect_master(
    call: Call,
    controller_address: Controller,
    broker_id: Annotated[
        int,
        typer.Option(
            "-b", "--brokerId", metavar="ID", help="Id of the broker that becomes the master."
        ),
    ],
    broker_name: SetName,
    cluster_name: Annotated[
        str,
        cluster_option("Cluster of the replica set."),
    ],
) -> Result:
    """Make a broker the master of its replica set, by the controllers.

    Examples:
        mq electMaster -a 127.0.0.1:9878 -b 2 -bn broker-a -c DefaultCluster
                                        make broker 2 the master
    """
    async with call.admin() as admin:
        elected, body = await admin.elect_master(
            controller_address, cluster_name, broker_name, broker_id
        )
    epochs = elected.master_epoch, elected.sync_state_set_epoch
    plain = (
        f"\n#ClusterName\t{cluster_name}\n#BrokerName\t{broker_name}"
        f"\n#BrokerMasterAddr\t{elected.master_address}\n#MasterEpoch\t{epochs[0]}"
        f"\n#SyncStateSetEpoch\t{epochs[1]}\n"
    )
    # mqadmin means to print the members, but reads them from the wrong field.
    group = body.broker_member_group
    members = group.broker_addrs if group is not None else {}
    rows: list[Row] = [
        (*(cluster_name, broker_name, member, address), member == elected.master_broker_id, *epochs)
        for member, address in sorted(members.items())
    ]
    return Result(_ELECTED_COLUMNS, rows, plain)


_CLEANED_COLUMNS = (text("brokerName", "Broker"), text("brokerIds", "Removed"))


@destroys("remove brokers of {broker_name} from the controllers")
@gives(_CLEANED_COLUMNS)
async def clean_broker_metadata(
    call: Call,
    controller_address: Controller,
    broker_name: SetName,
    broker_controller_ids_to_clean: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--brokerControllerIdsToClean",
            metavar="ID[;…]",
            help="Ids of the brokers to remove. Default: all.",
        ),
    ] = None,
    cluster_name: Annotated[
        str | None,
        cluster_option("Cluster of the replica set; required without -l."),
    ] = None,
    clean_living_broker: Annotated[
        bool, typer.Option("-l", "--cleanLivingBroker", help="Remove brokers that are alive, too.")
    ] = False,
) -> Result:
    """Remove brokers of a replica set from the controllers.

    Examples:
        mq cleanBrokerMetadata -a 127.0.0.1:9878 -bn broker-a -b 3 -c DefaultCluster
                                        remove broker 3
        mq cleanBrokerMetadata -a 127.0.0.1:9878 -bn broker-a -l --dry-run
                                        show what would be sent for all
    """
    if not clean_living_broker and not cluster_name:
        raise UsageError("-c/--clusterName is required unless -l/--cleanLivingBroker is given")
    ids = broker_controller_ids_to_clean
    if ids is not None and not all(part.strip().isdecimal() for part in ids.split(";")):
        raise UsageError(f"-b/--brokerControllerIdsToClean: {ids!r} is not in the form 1;2;3")
    async with call.admin() as admin:
        await admin.clean_broker_metadata(
            controller_address,
            broker_name,
            cluster=cluster_name,
            ids=ids,
            living=clean_living_broker,
        )
    plain = f"clear broker {broker_name} metadata from controller success! \n"
    return Result(_CLEANED_COLUMNS, [(broker_name, ids)], plain)


ContainerAddress = Annotated[
    str,
    typer.Option(
        "-c", "--brokerContainerAddr", metavar="HOST:PORT", help="Address of the broker container."
    ),
]
_CONTAINER_COLUMNS = (text("containerAddr", "Container"), text("broker", "Broker"))


@writes
@gives(_CONTAINER_COLUMNS)
async def add_broker(
    call: Call,
    broker_container_addr: ContainerAddress,
    broker_config_path: Annotated[
        str,
        typer.Option(
            "-b",
            "--brokerConfigPath",
            metavar="FILE",
            help="Settings file of the broker, on the container's machine.",
        ),
    ],
) -> Result:
    """Start a broker in a broker container (5.x).

    Examples:
        mq addBroker -c 127.0.0.1:10811 -b /etc/rocketmq/broker-b.conf
                                        start another broker
    """
    async with call.admin() as admin:
        await admin.add_broker(broker_container_addr, broker_config_path)
    plain = f"add broker to {broker_container_addr} success\n"
    return Result(_CONTAINER_COLUMNS, [(broker_container_addr, broker_config_path)], plain)


_BROKER_NOT_EXIST = 211  # in release 5; in 4.9.8 the code has another meaning


@writes
@gives(_CONTAINER_COLUMNS)
async def remove_broker(
    call: Call,
    broker_container_addr: ContainerAddress,
    broker_identity: Annotated[
        str,
        typer.Option(
            "-b", "--brokerIdentity", metavar="CLUSTER:NAME:ID", help="The broker to stop."
        ),
    ],
) -> Result:
    """Stop a broker in a broker container (5.x).

    Examples:
        mq removeBroker -c 127.0.0.1:10811 -b DefaultCluster:broker-b:0
                                        stop a broker
    """
    parts = [part.strip() for part in broker_identity.split(":")]
    if len(parts) != 3 or not all(parts) or not parts[2].isdecimal():
        raise UsageError(
            f"-b/--brokerIdentity: {broker_identity!r}", hint="DefaultCluster:broker-a:0"
        )
    from mq.client.errors import BrokerError

    async with call.admin() as admin:
        try:
            await admin.remove_broker(broker_container_addr, parts[0], parts[1], int(parts[2]))
        except BrokerError as error:
            if error.code != _BROKER_NOT_EXIST:
                raise
            message = f"{broker_container_addr} has no broker {broker_identity}"
            raise NotFound(message, hint="see: mq clusterList") from error
    plain = f"remove broker from {broker_container_addr} success\n"
    return Result(_CONTAINER_COLUMNS, [(broker_container_addr, broker_identity)], plain)
