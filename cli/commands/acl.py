"""The accounts of 4.9 (plain_acl.yml). Formats: org.apache.rocketmq.tools.command.acl of 4.9.7.

No command shows a secret key. mqadmin's getAclConfig does if the broker sends it.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli import broker_options
from mq.cli.commands.users import secret
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.options import Truth, one_of, subject
from mq.cli.runtime.release import until_5
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, java_order
from mq.client.operations.columns import flag, nested, number, text, time
from mq.client.operations.subjects import accounts

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import AclConfig, PlainAccessConfig

COMMANDS = {
    "acl": (
        "updateAclConfig",
        "deleteAclConfig",
        "updateGlobalWhiteAddr",
        "clusterAclConfigVersion",
        "getAclConfig",
    )
}

AccessKey = Annotated[
    str, typer.Option("-a", "--accessKey", metavar="KEY", help="Access key of the account.")
]

_MASK = "******"

_CHANGED = (text("brokerAddr", "Broker"), text("accessKey", "Access key"))


@option_group
class AccountOptions:
    """The permissions of an account."""

    white_remote_address: Annotated[
        str | None,
        typer.Option(
            "-w",
            "--whiteRemoteAddress",
            metavar="PATTERN",
            help="Addresses that need no signature.",
        ),
    ] = None
    default_topic_perm: Annotated[
        str | None,
        typer.Option(
            "-i",
            "--defaultTopicPerm",
            metavar="PERMISSION",
            help="For other topics: DENY, PUB, SUB or PUB|SUB.",
        ),
    ] = None
    default_group_perm: Annotated[
        str | None,
        typer.Option(
            "-u",
            "--defaultGroupPerm",
            metavar="PERMISSION",
            help="For other groups: DENY, PUB, SUB or PUB|SUB.",
        ),
    ] = None
    topic_perms: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--topicPerms",
            metavar="TOPIC=PERMISSION,…",
            help="Permissions for single topics.",
        ),
    ] = None
    group_perms: Annotated[
        str | None,
        typer.Option(
            "-g",
            "--groupPerms",
            metavar="GROUP=PERMISSION,…",
            help="Permissions for single groups.",
        ),
    ] = None
    admin: Annotated[Truth, typer.Option("-m", "--admin", help="Make it an administrator.")] = (
        Truth.FALSE
    )

    def account(self, access_key: str, secret_key: str) -> "PlainAccessConfig":
        return accounts.account(
            access_key,
            secret_key,
            admin=bool(self.admin),
            white_remote_address=self.white_remote_address,
            default_topic_perm=self.default_topic_perm,
            default_group_perm=self.default_group_perm,
            topic_perms=self.topic_perms,
            group_perms=self.group_perms,
        )


@writes
@one_of("broker_addr", "cluster_name")
@gives(_CHANGED)
@subject("access_key")
async def update_acl_config(
    call: Call,
    access_key: AccessKey,
    secret_key: Annotated[
        str,
        typer.Option(
            "-s",
            "--secretKey",
            metavar="KEY|-",
            help="Secret key; with -, read from a line of standard input.",
        ),
    ],
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.EachOfCluster = None,
    *,
    options: AccountOptions,
) -> Result:
    """Create an account, or change it (brokers of 4.9, and ours).

    Settings that are not given stay the same, except --admin, which becomes false. The broker
    writes its file and applies the change at once.

    Examples:
        mq updateAclConfig shop-service -s - -t Orders=PUB -b 127.0.0.1:10911
                                        may send to Orders; reads the secret key
        mq updateAclConfig billing-service -s - -t Orders=SUB -c DefaultCluster
                                        may consume Orders
    """
    account = options.account(access_key, secret(call, secret_key))
    done, failures = await _at_brokers(
        call,
        broker_addr,
        cluster_name,
        lambda each, address: each.update_account(address, account),
    )
    plain = "".join(f"create or update plain access config to {item} success.\n" for item in done)
    # Java prints the object, whose class has no toString: a class name and a meaningless number.
    plain += "org.apache.rocketmq.common.PlainAccessConfig@0"
    return Result(_CHANGED, [(item, access_key) for item in done], plain, failures=failures)


async def _at_brokers(
    call: Call, broker_addr: str | None, cluster_name: str | None, act: Any
) -> tuple[list[str], list[str]]:
    """Run `act` at the broker, or at every broker: accounts must be the same in a cluster."""
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name, replicas=True)
        done, failures = await cluster.at_each(admin, targets, until_5(act))
    return list(done), failures


@destroys("delete the account of access key {access_key}")
@one_of("broker_addr", "cluster_name")
@gives(_CHANGED)
@subject("access_key")
async def delete_acl_config(
    call: Call,
    access_key: AccessKey,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.EachOfCluster = None,
) -> Result:
    """Delete an account (brokers of 4.9, and ours).

    Examples:
        mq deleteAclConfig shop-service -b 127.0.0.1:10911
                                        delete an account
        mq deleteAclConfig shop-service -c DefaultCluster --dry-run
                                        show what would be sent
    """
    done, failures = await _at_brokers(
        call,
        broker_addr,
        cluster_name,
        lambda each, address: each.delete_account(address, access_key),
    )
    plain = "".join(f"delete plain access config account from {item} success.\n" for item in done)
    plain += f"account's accesskey is:{access_key}"
    return Result(_CHANGED, [(item, access_key) for item in done], plain, failures=failures)


_ADDRESSES = (text("brokerAddr", "Broker"), text("addresses", "Addresses that need no signature"))


@writes
@one_of("broker_addr", "cluster_name")
@gives(_ADDRESSES)
@subject("global_white_remote_addresses")
async def update_global_white_addr(
    call: Call,
    global_white_remote_addresses: Annotated[
        str,
        typer.Option(
            "-g",
            "--globalWhiteRemoteAddresses",
            metavar="PATTERN,…",
            help="Addresses, separated by commas: 10.1.2.*,192.168.0.7.",
        ),
    ],
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.EachOfCluster = None,
    acl_file_full_path: Annotated[
        str,
        typer.Option(
            "-p",
            "--aclFileFullPath",
            metavar="PATH",
            help="ACL file on the broker's machine. Default: its main one.",
        ),
    ] = "",
) -> Result:
    """Set the addresses that need no signature (brokers of 4.9, and ours).

    Examples:
        mq updateGlobalWhiteAddr 10.1.2.*,192.168.0.7 -b 127.0.0.1:10911
                                        allow everything from there
        mq updateGlobalWhiteAddr 10.1.2.* -c DefaultCluster --dry-run
                                        show what would be sent
    """
    addresses = accounts.split(global_white_remote_addresses)
    if not addresses and global_white_remote_addresses:
        raise UsageError("-g/--globalWhiteRemoteAddresses: contains no address")
    done, failures = await _at_brokers(
        call,
        broker_addr,
        cluster_name,
        lambda each, at: each.update_global_addresses(at, addresses, acl_file_full_path),
    )
    plain = "".join(f"update global white remote addresses to {item} success.\n" for item in done)
    rows: list[Row] = [(item, ",".join(addresses)) for item in done]
    return Result(_ADDRESSES, rows, plain, failures=failures)


_VERSIONS = (
    text("clusterName", "Cluster"),
    text("brokerName", "Broker"),
    text("brokerAddr", "Address"),
    text("aclFilePath", "File"),
    number("counter", "Version"),
    time("timestamp", "Changed"),
)


@one_of("broker_addr", "cluster_name")
@gives(_VERSIONS)
@subject("broker_addr")
async def cluster_acl_config_version(
    call: Call,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
) -> Result:
    """Show the versions of ACL files (brokers of 4.9, and ours).

    Examples:
        mq clusterAclConfigVersion -c DefaultCluster  versions of the ACL files
        mq clusterAclConfigVersion 127.0.0.1:10911 -o table
                                                      of one broker
    """
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name)
        done, failures = await cluster.at_each(
            admin, targets, until_5(lambda each, address: each.account_versions(address))
        )
    width = "{:<16}  {:<22}  {:<22}  {:<20}  {:<22}  {:<22}\n"
    plain = ""
    if cluster_name is not None:
        heads = "#AclFilePath", "#AclConfigVersionNum", "#AclLastUpdateTime"
        plain = width.format("#Cluster Name", "#Broker Name", "#Broker Addr", *heads)
    rows: list[Row] = []
    for info in done.values():
        files = info.all_acl_config_data_version
        room = 1 << max(len(files) - 1, 0).bit_length()
        for file in java_order.hash_order(java_order.hash_order(files), capacity=room, load=1):
            version = files[file]
            names = (info.cluster_name, info.broker_name, info.broker_addr, file)
            when = java_text.seconds_text(version.timestamp)
            plain += width.format(*names, version.counter, when)
            rows.append((*names, version.counter, version.timestamp))
    whose = "broker's" if cluster_name is None else "cluster's"
    plain += f"get {whose} plain access config version success.\n"
    return Result(_VERSIONS, rows, plain, failures=failures)


_ACCOUNTS = (
    text("brokerAddr", "Broker"),
    text("accessKey", "Access key"),
    text("whiteRemoteAddress", "Trusted addresses"),
    flag("admin", "Administrator"),
    text("defaultTopicPerm", "Other topics"),
    text("defaultGroupPerm", "Other groups"),
    text("topicPerms", "Topics"),
    text("groupPerms", "Groups"),
)


@one_of("broker_addr", "cluster_name")
@gives(
    _ACCOUNTS,
    data=(
        text("brokerAddr", "Broker"),
        nested("globalWhiteAddrs", "Addresses that need no signature"),
        nested("accounts", "The accounts; permissions are lists"),
    ),
)
@subject("broker_addr")
async def get_acl_config(
    call: Call,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
) -> Result:
    """Show the accounts of brokers (4.9.7, and ours), without their secret keys.

    Examples:
        mq getAclConfig 127.0.0.1:10911            the accounts of a broker
        mq getAclConfig -c DefaultCluster -o json  of every master, for a program
    """
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name)

        async def read(each: "Admin", address: str) -> "AclConfig":
            return await each.accounts(address)

        done, failures = await cluster.at_each(admin, targets, until_5(read))
    rows: list[Row] = []
    data = []
    plain = ""
    notes = []
    for address, config in done.items():
        rows += [_row(item) for item in accounts.rows(address, config)]
        data.append(accounts.document(address, config))
        plain += _accounts_text(config)
        if config.global_white_addrs:
            every = ", ".join(config.global_white_addrs)
            notes.append(f"{address}: no signature needed from {every}")
    return Result(_ACCOUNTS, rows, plain, data=data, failures=failures, notes=notes)


def _row(account: "accounts.AccountRow") -> Row:
    return (
        account.broker_addr,
        account.access_key,
        account.white_remote_address,
        account.admin,
        account.default_topic_perm,
        account.default_group_perm,
        ", ".join(account.topic_perms),
        ", ".join(account.group_perms),
    )


def _list(values: list[str] | None) -> str:
    """Return a list as Java prints it; a list that is absent from the file is empty."""
    return "" if values is None else f"[{', '.join(values)}]"


def _accounts_text(config: "AclConfig") -> str:
    """Return the output of GetAccessConfigSubCommand, in the order of the class's fields."""
    plain = f"\n{'globalWhiteRemoteAddresses':<20}: [{', '.join(config.global_white_addrs)}]\n"
    plain += "\naccounts:\n"
    for item in config.plain_access_configs:
        fields = {
            "accessKey": item.access_key,
            "secretKey": _MASK,
            "whiteRemoteAddress": item.white_remote_address or "",
            "admin": java_text.truth(item.admin),
            "defaultTopicPerm": item.default_topic_perm or "",
            "defaultGroupPerm": item.default_group_perm or "",
            "topicPerms": _list(item.topic_perms),
            "groupPerms": _list(item.group_perms),
        }
        plain += "".join(f"  {name:<18}: {value}\n" for name, value in fields.items()) + "\n"
    return plain
