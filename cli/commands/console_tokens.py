"""The tokens of a console, for programs. They are in a file on this machine."""

from typing import Annotated

import typer

from mq.cli.commands.console_accounts import (
    COLUMNS,
    Config,
    Data,
    Groups,
    ReadOnly,
    Role,
    Topics,
    accounts_path,
    patterns_of,
    removed,
    roles_of,
    row_of,
)
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives, writes
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result
from mq.client.machine import clock
from mq.client.operations.columns import text, time

COMMANDS = {"console": ("console token-add", "console token-list", "console token-remove")}

TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")]

_TOKENS = (*COLUMNS, time("expires", "Expires"))
_NEW_TOKEN = (text("name", "Name"), text("token", "Token"))


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
                                        for a program that only reads
    """
    from mq.daemons.console.security import accounts

    path, roles = accounts_path(config_file, data), roles_of(role)
    token, kept = accounts.new_token()
    expires = clock.milliseconds() + days * 86_400_000 if days else None
    made = accounts.Account(
        accounts.checked_name(name),
        kept,
        roles,
        patterns_of(topics),
        patterns_of(groups),
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
            "there are no accounts: a console without accounts accepts no tokens",
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
        mq console token-list --data console          names, roles and expiry times
        mq console token-list --data console -o json  for a program
    """
    from mq.daemons.console.security import accounts

    found = accounts.read(accounts_path(config_file, data))
    return Result(_TOKENS, [(*row_of(one), one.expires) for _, one in sorted(found.tokens.items())])


@gives(_TOKENS)
@destroys("remove token {name} of the console")
def console_token_remove(
    call: Call, name: TokenName, config_file: Config = None, data: Data = None
) -> Result:
    """Remove a token of the console; it is invalid at once.

    Examples:
        mq console token-remove ci --data console  remove a token
    """
    old = removed(call, accounts_path(config_file, data), name, what="token")
    return Result(_TOKENS, [(*row_of(old), old.expires)])
