"""The commands for console accounts. They are in a file on this machine."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.commands.users import secret
from mq.cli.daemon_start import configuring, path_of
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result
from mq.client.operations.columns import flag, text

if TYPE_CHECKING:
    from mq.daemons.console.security.accounts import Account

COMMANDS = {
    "console": (
        "console user-add",
        "console user-passwd",
        "console user-list",
        "console user-remove",
    )
}

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the account.")]
Config = Annotated[
    str | None,
    typer.Option("-c", "--configFile", metavar="FILE", help="Settings file of the console."),
]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Data directory of the console (dataPath)."),
]
Role = Annotated[
    list[str] | None,
    typer.Option(
        "--role",
        metavar="[CLUSTER=]ROLE",
        help="Role: viewer, reader, operator or administrator; in one cluster, or in all others.",
    ),
]
Topics = Annotated[
    str,
    typer.Option(
        "--topics",
        metavar="PATTERNS",
        help="Topics as patterns, separated by semicolons: 'orders-*;pay?'.",
    ),
]
Groups = Annotated[
    str,
    typer.Option(
        "--groups", metavar="PATTERNS", help="Groups as patterns, separated by semicolons."
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Allow it no changes.")]
Password = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--password",
        metavar="TEXT|-",
        help="Password; with -, read from a line of standard input. Default: ask.",
    ),
]

COLUMNS = (
    text("name", "Name"),
    text("roles", "Roles"),
    text("topics", "Topics"),
    text("groups", "Groups"),
    flag("readOnly", "Read-only"),
)


def accounts_path(config_file: str | None, data: str | None) -> Path:
    """Return the path of the accounts file."""
    from mq.daemons.console.config import ConsoleSettings

    overrides = {"dataPath": data} if data else {}
    with configuring(printing=True):
        return ConsoleSettings.load(path_of(config_file), overrides).console.users_path


def roles_of(given: list[str] | None) -> dict[str, str]:
    from mq.daemons.console.security.accounts import checked_roles

    if not given:
        raise UsageError("--role is required", hint="--role reader, or --role prod=operator")
    roles = {}
    for one in given:
        cluster, equals, role = one.rpartition("=")
        roles[cluster if equals else "*"] = role
    return checked_roles(roles)


def patterns_of(given: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in given.split(";") if part.strip()) or ("*",)


def _password(call: Call, given: str | None) -> str:
    """Return the new password. Raises UsageError if its length is out of bounds."""
    from mq.daemons.console.security.passwords import LEAST, MOST

    if given is None:
        if not call.environment.interactive:
            raise UsageError(
                "no terminal to ask for the password",
                hint="with -p - it is read from standard input",
            )
        from getpass import getpass

        from mq.cli.runtime.confirm import line_of_its_own

        with line_of_its_own(call.environment):
            given, again = getpass("Password: "), getpass("Again: ")
        if again != given:
            raise UsageError("the passwords differ")
    else:
        given = secret(call, given)
    if not LEAST <= len(given) <= MOST:
        raise UsageError(f"a password must have {LEAST} to {MOST} characters")
    return given


def row_of(one: "Account") -> tuple[str, str, str, str, bool]:
    roles = "; ".join(role if c == "*" else f"{c}={role}" for c, role in one.roles.items())
    return one.name, roles, ";".join(one.topics), ";".join(one.groups), one.read_only


@gives(COLUMNS)
@writes
def console_user_add(
    call: Call,
    name: Name,
    role: Role = None,
    topics: Topics = "*",
    groups: Groups = "*",
    read_only: ReadOnly = False,
    password: Password = None,
    config_file: Config = None,
    data: Data = None,
) -> Result:
    """Add an account of the console.

    A running console accepts it within a second. As soon as one account exists, every user must log
    in. Patterns may contain * and ?; retry and dead letter topics belong to their group.

    Examples:
        mq console user-add alice --role operator -p - --data console
                                        add one; reads the password
        mq console user-add bob --role viewer --topics 'orders-*' -p - --data console
                                        restrict it to some topics
    """
    from mq.daemons.console.security import accounts, passwords

    path, roles = accounts_path(config_file, data), roles_of(role)
    kept = passwords.hashed(_password(call, password))
    made = accounts.Account(
        accounts.checked_name(name),
        kept,
        roles,
        patterns_of(topics),
        patterns_of(groups),
        read_only,
    )
    if name in accounts.read(path).users:
        raise CommandError(
            f"account {name} already exists",
            hint=f"mq console user passwd {name}, or remove it first",
            status=Status.CANNOT_CREATE,
        )
    if call.dry_run:
        call.would(f"add account {name}", path)
    else:
        with accounts.changing(path) as found:
            found.users[name] = made
    return Result(COLUMNS, [row_of(made)])


@gives(COLUMNS)
@writes
def console_user_passwd(
    call: Call, name: Name, password: Password = None, config_file: Config = None, data: Data = None
) -> Result:
    """Give an account of the console another password; its sessions end.

    Examples:
        mq console user-passwd alice -p - --data console
                                        set a password, read from standard input
    """
    from mq.daemons.console.security import accounts, passwords

    path = accounts_path(config_file, data)
    old = accounts.of_name(accounts.read(path).users, name, "account")
    kept = passwords.hashed(_password(call, password))
    if call.dry_run:
        call.would(f"change the password of {name}", path)
    else:
        with accounts.changing(path) as found:
            old = accounts.of_name(found.users, name, "account")
            found.users[name] = replace(old, secret=kept)
    return Result(COLUMNS, [row_of(old)])


@gives(COLUMNS)
def console_user_list(call: Call, config_file: Config = None, data: Data = None) -> Result:
    """List the accounts of the console.

    Examples:
        mq console user-list --data console          accounts and their roles
        mq console user-list --data console -o json  for a program
    """
    from mq.daemons.console.security import accounts

    found = accounts.read(accounts_path(config_file, data))
    return Result(COLUMNS, [row_of(one) for _, one in sorted(found.users.items())])


@gives(COLUMNS)
@destroys("remove account {name} of the console")
def console_user_remove(
    call: Call, name: Name, config_file: Config = None, data: Data = None
) -> Result:
    """Remove an account of the console; its sessions end.

    Examples:
        mq console user-remove alice --data console  remove an account and end its sessions
    """
    old = removed(call, accounts_path(config_file, data), name, what="account")
    return Result(COLUMNS, [row_of(old)])


def removed(call: Call, path: Path, name: str, *, what: str) -> "Account":
    """Remove an `account` or a `token` from the file and return it. Raises NotFound."""
    from mq.daemons.console.security import accounts

    def those(found: accounts.Accounts) -> dict[str, accounts.Account]:
        return found.users if what == "account" else found.tokens

    old = accounts.of_name(those(accounts.read(path)), name, what)
    if call.dry_run:
        call.would(f"remove {what} {name}", path)
    else:
        with accounts.changing(path) as found:
            those(found).pop(name, None)
    return old
