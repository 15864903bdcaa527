"""The users of 5.x brokers. Formats: org.apache.rocketmq.tools.command.auth of 5.5.0.

Brokers send passwords. No command shows them, unlike mqadmin.
"""

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import broker_options
from mq.cli.commands.auth_subjects import AuthSubject, FromBroker, ToBroker, at_masters
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import one_of, subject
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import text
from mq.client.operations.subjects import users

if TYPE_CHECKING:
    from mq.protocol.bodies import UserInfo

COMMANDS = {
    "auth": (
        "createUser",
        "updateUser",
        "deleteUser",
        "getUser",
        "listUser",
        "copyUser",
    )
}

Username = Annotated[
    str, typer.Option("-u", "--username", metavar="NAME", help="Name of the user.")
]


class UserType(Enum):
    """The type of a user: all permissions, or those of policies."""

    SUPER = "super"
    NORMAL = "normal"


class UserStatus(Enum):
    """Whether a user may log in."""

    ENABLE = "enable"
    DISABLE = "disable"


_MASK = "******"
_USER = AuthSubject(
    "user",
    "a user",
    text("username", "User"),
    name=lambda user: user.username or "",
    find=lambda admin, address, name: admin.user(address, name),
    find_all=lambda admin, address: admin.users(address),
    create=lambda admin, address, user: admin.create_user(address, user),
    update=lambda admin, address, user: admin.update_user(address, user),
)


def secret(call: Call, value: str) -> str:
    """Return a secret as given, or the first line of standard input for `-`.

    Every user of the machine can read command lines.
    """
    if value != "-":
        return value
    line = call.environment.stdin.readline().rstrip("\r\n")
    if not line:
        raise UsageError("-: standard input has no line with the secret")
    return line


@writes
@one_of("cluster_name", "broker_addr")
@gives(_USER.changed)
@subject("username")
async def create_user(
    call: Call,
    username: Username,
    password: Annotated[
        str,
        typer.Option(
            "-p",
            "--password",
            metavar="TEXT|-",
            help="Password; with -, read from a line of standard input.",
        ),
    ],
    cluster_name: broker_options.EachOfCluster = None,
    broker_addr: broker_options.BrokerAddr = None,
    user_type: Annotated[
        UserType | None,
        typer.Option(
            "-t",
            "--userType",
            help="Type: normal, or super, with all permissions. Default: normal.",
        ),
    ] = None,
) -> Result:
    """Create a user (5.x brokers).

    Examples:
        mq createUser shop -p - -c DefaultCluster  create one; reads the password
        mq createUser root -p - -t super -b 127.0.0.1:10911
                                                   one with all permissions
    """
    user = _user(username, secret(call, password), user_type, None)
    return await _USER.change(
        call, broker_addr, cluster_name, "create", username, lambda a, at: a.create_user(at, user)
    )


@writes
@one_of("cluster_name", "broker_addr")
@gives(_USER.changed)
@subject("username")
async def update_user(
    call: Call,
    username: Username,
    cluster_name: broker_options.EachOfCluster = None,
    broker_addr: broker_options.BrokerAddr = None,
    password: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--password",
            metavar="TEXT|-",
            help="Password; with -, read from a line of standard input.",
        ),
    ] = None,
    user_type: Annotated[
        UserType | None,
        typer.Option("-t", "--userType", help="Type: normal, or super, with all permissions."),
    ] = None,
    user_status: Annotated[
        UserStatus | None,
        typer.Option("-s", "--userStatus", help="Allow or forbid the user to log in."),
    ] = None,
) -> Result:
    """Change a user (5.x brokers); other settings stay the same.

    mqadmin accepts one of password, type and status at a time; this command accepts all.

    Examples:
        mq updateUser shop -s disable -c DefaultCluster
                                                    forbid the login
        mq updateUser shop -p - -b 127.0.0.1:10911  another password
    """
    if password is None and user_type is None and user_status is None:
        raise UsageError("nothing to change: give -p/--password, -t/--userType or -s/--userStatus")
    user = _user(username, secret(call, password) if password else None, user_type, user_status)
    return await _USER.change(
        call, broker_addr, cluster_name, "update", username, lambda a, at: a.update_user(at, user)
    )


def _user(
    username: str, password: str | None, kind: UserType | None, status: UserStatus | None
) -> "UserInfo":
    return users.user(
        username, password, kind.value if kind else None, status.value if status else None
    )


@destroys("delete user {username}")
@one_of("cluster_name", "broker_addr")
@gives(_USER.changed)
@subject("username")
async def delete_user(
    call: Call,
    username: Username,
    cluster_name: broker_options.EachOfCluster = None,
    broker_addr: broker_options.BrokerAddr = None,
) -> Result:
    """Delete a user (5.x brokers).

    Examples:
        mq deleteUser shop -c DefaultCluster  delete a user
        mq deleteUser shop -b 127.0.0.1:10911 --dry-run
                                              show what would be sent
    """
    return await _USER.change(
        *(call, broker_addr, cluster_name, "delete", username),
        lambda admin, address: admin.delete_user(address, username),
    )


_USERS = (
    text("brokerAddr", "Broker"),
    text("username", "User"),
    text("userType", "Type"),
    text("userStatus", "Status"),
)

_LINE = "{:<16}  {:<22}  {:<22}  {:<22}\n"


@one_of("broker_addr", "cluster_name")
@gives(_USERS)
@subject("username")
async def get_user(
    call: Call,
    username: Username,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
) -> Result:
    """Show a user (5.x brokers), without the password.

    Examples:
        mq getUser shop -c DefaultCluster           a user's type and status
        mq getUser shop -b 127.0.0.1:10911 -o json  for a program
    """
    found, failures = await _USER.found(call, broker_addr, cluster_name, username)
    first = next(iter(found.values()), [])
    return Result(_USERS, _rows(found), _table(first), failures=failures)


@one_of("broker_addr", "cluster_name")
@gives(_USERS)
async def list_user(
    call: Call,
    broker_addr: broker_options.BrokerAddr = None,
    cluster_name: broker_options.ClusterName = None,
    filter_: Annotated[
        str | None,
        typer.Option(
            "-f", "--filter", metavar="TEXT", help="Only users with this text in the name."
        ),
    ] = None,
) -> Result:
    """List the users (5.x brokers), without their passwords.

    Plain output shows the users of the first broker, as mqadmin does; other formats those of all.

    Examples:
        mq listUser -c DefaultCluster          every user
        mq listUser -b 127.0.0.1:10911 -f sho  users whose names contain sho
    """
    found, failures = await at_masters(
        *(call, broker_addr, cluster_name), lambda admin, address: admin.users(address, filter_)
    )
    plain = ""
    for address, answer in found.items():
        plain = _table(answer)
        if cluster_name is not None:
            plain += f"get user from {address} success.\n"
        break
    return Result(_USERS, _rows(found), plain, failures=failures)


def _rows(found: dict[str, list["UserInfo"]]) -> list[Row]:
    return [
        (row.broker_addr, row.username, row.user_type, row.user_status)
        for address, answer in found.items()
        for row in users.user_rows(address, answer)
    ]


def _table(answer: list["UserInfo"]) -> str:
    if not answer:
        return ""
    lines = [_LINE.format("#UserName", "#Password", "#UserType", "#UserStatus")]
    for user in answer:
        kind, status = user.user_type or "null", user.user_status or "null"
        lines.append(_LINE.format(user.username or "null", _MASK, kind, status))
    return "".join(lines)


@writes
@gives(_USER.copied)
@subject("from_broker", "to_broker")
async def copy_user(
    call: Call,
    from_broker: FromBroker,
    to_broker: ToBroker,
    usernames: Annotated[
        str | None,
        typer.Option(
            "-u", "--usernames", metavar="NAME[,…]", help="Only these users. Default: all."
        ),
    ] = None,
) -> Result:
    """Copy users from one broker to another (5.x brokers).

    Existing users are overwritten at the target.

    Examples:
        mq copyUser 127.0.0.1:10911 127.0.0.1:10921  copy all users
        mq copyUser 127.0.0.1:10911 127.0.0.1:10921 -u shop --dry-run
                                                     show what would be sent for one
    """
    return await _USER.copy(call, from_broker, to_broker, usernames)
