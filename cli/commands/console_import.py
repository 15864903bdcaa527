"""`mq console user-import`: imports the accounts of rocketmq-dashboard."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import inputs
from mq.cli.commands.console_accounts import Config, Data, accounts_path
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.options import subject
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result
from mq.client.operations.columns import text
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.daemons.console.security.accounts import Account

COMMANDS = {"console": ("console user-import",)}

_IMPORTED = (text("name", "Name"), text("role", "Role"), text("note", "Note"))

# The accounts that the dashboard ships with; their passwords are public.
_SHIPPED = {("admin", "admin"), ("super", "admin"), ("user1", "user1"), ("user1", "user")}


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

    Its administrators become administrators, all others readers; permissions are set by roles, not
    by addresses. Passwords are stored as hashes. The accounts that the dashboard ships with are
    skipped, and names that exist already.

    Examples:
        mq console user-import users.properties --data console
                                        import accounts
    """
    from mq.daemons.console.security import accounts, passwords

    path = accounts_path(config_file, data)
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
        return "not imported: this password is public"
    if not NAME.fullmatch(name):
        return "not imported: not a valid account name"
    return "not imported: the name exists" if name in known else ""


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
    """Return name, password and role for each `name=password[,N]`.

    N is 1 for an administrator, 0 or missing for others (UserInfo of rocketmq-dashboard). A
    password may contain commas.
    """
    found = []
    for name, value in properties.items():
        password, comma, kind = value.rpartition(",")
        if not comma or not re.fullmatch(r"\s*[01]\s*", kind):
            password, kind = value, "0"
        found.append((name, password.strip(), "administrator" if kind.strip() == "1" else "reader"))
    return found
