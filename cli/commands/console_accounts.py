"""The accounts and tokens of a console: its file, on this machine."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import inputs
from mq.cli.commands.daemon import configuring, path_of
from mq.cli.commands.users import secret
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, flag, text, time
from mq.client.machine import clock
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.daemons.console.security.accounts import Account

COMMANDS = {
    "console": (
        "console user-add",
        "console user-passwd",
        "console user-list",
        "console user-remove",
        "console user-import",
        "console token-add",
        "console token-list",
        "console token-remove",
    )
}

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the account.")]
TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")]
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

_COLUMNS = (
    text("name", "Name"),
    text("roles", "Roles"),
    text("topics", "Topics"),
    text("groups", "Groups"),
    flag("readOnly", "Read-only"),
)
_TOKENS = (*_COLUMNS, time("expires", "Expires"))
_NEW_TOKEN = (text("name", "Name"), text("token", "Token"))
_IMPORTED = (text("name", "Name"), text("role", "Role"), text("note", "Note"))

# What the dashboard is shipped with: everybody knows these.
_SHIPPED = {("admin", "admin"), ("super", "admin"), ("user1", "user1"), ("user1", "user")}


def _path(config_file: str | None, data: str | None) -> Path:
    """The file of accounts."""
    from mq.daemons.console.config import ConsoleSettings

    overrides = {"dataPath": data} if data else {}
    with configuring(printing=True):
        return ConsoleSettings.load(path_of(config_file), overrides).console.users_path


def _roles(given: list[str] | None) -> dict[str, str]:
    from mq.daemons.console.security.accounts import checked_roles

    if not given:
        raise UsageError("--role is required", hint="--role reader, or --role prod=operator")
    roles = {}
    for one in given:
        cluster, equals, role = one.rpartition("=")
        roles[cluster if equals else "*"] = role
    return checked_roles(roles)


def _patterns(given: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in given.split(";") if part.strip()) or ("*",)


def _password(call: Call, given: str | None) -> str:
    """A new password. Raises UsageError for one that is too short."""
    from mq.daemons.console.security.passwords import LEAST, MOST

    if given is None:
        if not call.environment.interactive:
            raise UsageError(
                "there is no terminal to ask for the password", hint="-p - reads a line"
            )
        from getpass import getpass

        from mq.cli.runtime.confirm import line_of_its_own

        with line_of_its_own(call.environment):
            given, again = getpass("Password: "), getpass("Again: ")
        if again != given:
            raise UsageError("the two passwords differ")
    else:
        given = secret(call, given)
    if not LEAST <= len(given) <= MOST:
        raise UsageError(f"a password has {LEAST} to {MOST} characters")
    return given


def _row(one: "Account") -> tuple[str, str, str, str, bool]:
    roles = "; ".join(role if c == "*" else f"{c}={role}" for c, role in one.roles.items())
    return one.name, roles, ";".join(one.topics), ";".join(one.groups), one.read_only


@gives(_COLUMNS)
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

    It is there for a running console within a second. From the first account on nobody is served
    without one. Patterns have * and ?; topics of retries and dead letters are their group's.

    Examples:
        mq console user-add alice --role operator -p - --data console
                                        add one; reads the password
        mq console user-add bob --role viewer --topics 'orders-*' -p - --data console
                                        sees some topics only
    """
    from mq.daemons.console.security import accounts, passwords

    path, roles = _path(config_file, data), _roles(role)
    kept = passwords.hashed(_password(call, password))
    made = accounts.Account(
        accounts.checked_name(name), kept, roles, _patterns(topics), _patterns(groups), read_only
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
    return Result(_COLUMNS, [_row(made)])


@gives(_COLUMNS)
@writes
def console_user_passwd(
    call: Call, name: Name, password: Password = None, config_file: Config = None, data: Data = None
) -> Result:
    """Give an account of the console another password; its sessions end.

    Examples:
        mq console user-passwd alice -p - --data console
                                        set a password, read from a line
    """
    from mq.daemons.console.security import accounts, passwords

    path = _path(config_file, data)
    old = accounts.of_name(accounts.read(path).users, name, "account")
    kept = passwords.hashed(_password(call, password))
    if call.dry_run:
        call.would(f"change the password of {name}", path)
    else:
        with accounts.changing(path) as found:
            old = accounts.of_name(found.users, name, "account")
            found.users[name] = replace(old, secret=kept)
    return Result(_COLUMNS, [_row(old)])


@gives(_COLUMNS)
def console_user_list(call: Call, config_file: Config = None, data: Data = None) -> Result:
    """List the accounts of the console.

    Examples:
        mq console user-list --data console          accounts and their roles
        mq console user-list --data console -o json  for a program
    """
    from mq.daemons.console.security import accounts

    found = accounts.read(_path(config_file, data))
    return Result(_COLUMNS, [_row(one) for _, one in sorted(found.users.items())])


@gives(_COLUMNS)
@destroys("remove account {name} of the console")
def console_user_remove(
    call: Call, name: Name, config_file: Config = None, data: Data = None
) -> Result:
    """Remove an account of the console; its sessions end.

    Examples:
        mq console user-remove alice --data console  remove an account, end its sessions
    """
    from mq.daemons.console.security import accounts

    path = _path(config_file, data)
    old = accounts.of_name(accounts.read(path).users, name, "account")
    if call.dry_run:
        call.would(f"remove account {name}", path)
    else:
        with accounts.changing(path) as found:
            found.users.pop(name, None)
    return Result(_COLUMNS, [_row(old)])


@gives(_IMPORTED)
@writes
@subject("file")
def console_user_import(
    call: Call,
    file: Annotated[
        str,
        typer.Option(
            "-f",
            "--file",
            metavar="FILE",
            help="File users.properties of rocketmq-dashboard; -: standard input.",
        ),
    ],
    config_file: Config = None,
    data: Data = None,
) -> Result:
    """Import the accounts of rocketmq-dashboard, once.

    Its administrators become administrators, all others readers; what they may do here is said by
    roles, not by addresses. Passwords are kept as hashes. Those that the dashboard is shipped with
    are not taken, nor are names that there are already.

    Examples:
        mq console user-import users.properties --data console
                                        take over accounts
    """
    from mq.daemons.console.security import accounts, passwords

    path = _path(config_file, data)
    known = accounts.read(path).users
    rows: list[tuple[str, str, str]] = []
    made: dict[str, accounts.Account] = {}
    for name, password, role in dashboard_users(_properties(call, file)):
        note = _why_not(name, password, known)
        rows.append((name, "" if note else role, note or _weak(password)))
        if not note:
            kept = password if password.startswith("$argon2") else passwords.hashed(password)
            made[name] = accounts.Account(name, kept, {"*": role})
    if call.dry_run:
        call.would(f"add {len(made)} accounts", path)
    elif made:
        with accounts.changing(path) as found:
            found.users |= {n: one for n, one in made.items() if n not in found.users}
    return Result(_IMPORTED, rows)


def _why_not(name: str, password: str, known: "Mapping[str, Account]") -> str:
    from mq.daemons.console.security.accounts import NAME

    if (name, password) in _SHIPPED:
        return "not taken: everybody knows this password"
    if not NAME.fullmatch(name):
        return "not taken: no name of an account here"
    return "not taken: there is one already" if name in known else ""


def _weak(password: str) -> str:
    from mq.daemons.console.security.passwords import LEAST

    short = len(password) < LEAST
    return "the password is short: mq console user passwd" if short else ""


def _properties(call: Call, file: str) -> dict[str, str]:
    from mq.daemons.properties import read_properties

    try:
        return read_properties(inputs.content(call.environment, file).decode())
    except (NotFound, ValueError) as error:
        text = f"{inputs.called(file)} cannot be read: {error}"
        raise CommandError(text, status=Status.BAD_DATA) from None


def dashboard_users(properties: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Name, password and role of `name=password[,N]`: N is 1 for an administrator, 0 or nothing
    for others (UserInfo of rocketmq-dashboard). A password may have commas."""
    found = []
    for name, value in properties.items():
        password, comma, kind = value.rpartition(",")
        if not comma or not re.fullmatch(r"\s*[01]\s*", kind):
            password, kind = value, "0"
        found.append((name, password.strip(), "administrator" if kind.strip() == "1" else "reader"))
    return found


@gives(_NEW_TOKEN)
@writes
def console_token_add(
    call: Call,
    name: TokenName,
    role: Role = None,
    topics: Topics = "*",
    groups: Groups = "*",
    read_only: ReadOnly = False,
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=0, help="Days until it expires; 0: never.")
    ] = 90,
    config_file: Config = None,
    data: Data = None,
) -> Result:
    """Add a token for programs that use the console's API. It is shown once, now.

    Examples:
        mq console token-add ci --role viewer --days 30 --data console
                                        for a program that reads
    """
    from mq.daemons.console.security import accounts

    path, roles = _path(config_file, data), _roles(role)
    token, kept = accounts.new_token()
    expires = clock.milliseconds() + days * 86_400_000 if days else None
    made = accounts.Account(
        accounts.checked_name(name),
        kept,
        roles,
        _patterns(topics),
        _patterns(groups),
        read_only,
        expires,
    )
    found = accounts.read(path)
    if name in found.tokens:
        raise CommandError(
            f"token {name} already exists",
            hint=f"mq console token remove {name}",
            status=Status.CANNOT_CREATE,
        )
    if not found.users:
        raise CommandError(
            "there are no accounts: a console without any takes no tokens",
            hint="mq console user add NAME --role administrator",
            status=Status.CONFIG,
        )
    if call.dry_run:
        call.would(f"add token {name}", path)
        return Result(_NEW_TOKEN, [(name, "")])
    with accounts.changing(path) as found:
        found.tokens[name] = made
    return Result(_NEW_TOKEN, [(name, token)])


@gives(_TOKENS)
def console_token_list(call: Call, config_file: Config = None, data: Data = None) -> Result:
    """List the tokens of the console, without their secrets.

    Examples:
        mq console token-list --data console          names, roles, and when they expire
        mq console token-list --data console -o json  for a program
    """
    from mq.daemons.console.security import accounts

    found = accounts.read(_path(config_file, data))
    return Result(_TOKENS, [(*_row(one), one.expires) for _, one in sorted(found.tokens.items())])


@gives(_TOKENS)
@destroys("remove token {name} of the console")
def console_token_remove(
    call: Call, name: TokenName, config_file: Config = None, data: Data = None
) -> Result:
    """Remove a token of the console; it stops working at once.

    Examples:
        mq console token-remove ci --data console  remove a token
    """
    from mq.daemons.console.security import accounts

    path = _path(config_file, data)
    old = accounts.of_name(accounts.read(path).tokens, name, "token")
    if call.dry_run:
        call.would(f"remove token {name}", path)
    else:
        with accounts.changing(path) as found:
            found.tokens.pop(name, None)
    return Result(_TOKENS, [(*_row(old), old.expires)])
