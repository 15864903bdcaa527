"""Contexts: names for clusters, so that commands need no address."""

from pathlib import Path
from typing import Annotated

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.context import Contexts
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import flag, text

COMMANDS = {
    "context": (
        "context add",
        "context use",
        "context list",
        "context show",
        "context export",
        "context remove",
    )
}

Name = Annotated[str, typer.Argument(metavar="CONTEXT", help="Name of the context.")]

_COLUMNS = (
    flag("current", "Current"),
    text("name", "Name"),
    text("namesrvAddr", "Name servers"),
    text("aclFile", "Access key file"),
    text("tlsFile", "TLS file"),
)


_FILES = ("aclFile", "tlsFile")

# The environment variables of a context. MQ_CONTEXT is unset: it would override the address.
_EXPORTED = {
    "NAMESRV_ADDR": "namesrvAddr",
    "MQ_ACL_FILE": "aclFile",
    "MQ_TLS_CONFIG": "tlsFile",
    "MQ_CONTEXT": "",
}


def _listing(contexts: Contexts, names: list[str]) -> Result:
    rows = [
        (
            name == contexts.current,
            name,
            *(contexts.contexts[name].get(item, "") for item in ("namesrvAddr", *_FILES)),
        )
        for name in names
    ]
    return Result(_COLUMNS, rows)


@gives(_COLUMNS)
@writes
def context_add(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")],
) -> Result:
    """Name a cluster, so that commands need no address.

    -n gives the name servers of the cluster, --acl-file the file with its access key, --tls-config
    its TLS settings. The first context becomes the current one.

    Examples:
        mq context add dev -n 127.0.0.1:9876  name a cluster
        mq context add prod -n '10.0.0.1:9876;10.0.0.2:9876'
                                              with two name servers
    """
    if not call.given_name_servers:
        raise UsageError("-n/--namesrvAddr is required", hint=f"mq context add {name} -n HOST:9876")
    if not name or name.startswith("-") or any(not letter.isprintable() for letter in name):
        raise UsageError(f"{name!r} is not a valid context name")
    contexts = Contexts.load(call.environment.config_directory)
    contexts.contexts[name] = {"namesrvAddr": ";".join(call.name_servers), **_files(call)}
    contexts.current = contexts.current or name
    _save(call, contexts, f"add context {name}")
    return _listing(contexts, [name])


def _save(call: Call, contexts: Contexts, what: str) -> None:
    if call.dry_run:
        call.would(what, contexts.path)
    else:
        contexts.save()


def _files(call: Call) -> dict[str, str]:
    """Return the paths of the files given for this context, never their contents."""
    found = {}
    if call.given_acl_file:
        from mq.cli.runtime.secrets import check_private, credentials

        path = Path(call.given_acl_file).absolute()
        check_private(path)
        credentials(str(path))
        found["aclFile"] = str(path)
    if call.given_tls_config:
        from mq.cli.runtime.secrets import tls_context

        path = Path(call.given_tls_config).absolute()
        tls_context(str(path))
        found["tlsFile"] = str(path)
    return found


@gives(_COLUMNS)
@writes
def context_use(call: Call, name: Name) -> Result:
    """Choose the current context, which commands use by default.

    Examples:
        mq context use dev  use it from now on
    """
    contexts = Contexts.load(call.environment.config_directory)
    contexts.get(name)
    contexts.current = name
    _save(call, contexts, f"use context {name}")
    return _listing(contexts, [name])


@gives(_COLUMNS)
def context_list(call: Call) -> Result:
    """List the contexts.

    Examples:
        mq context list          every context; * is the current one
        mq context list -o json  for a program
    """
    contexts = Contexts.load(call.environment.config_directory)
    return _listing(contexts, sorted(contexts.contexts))


@gives(_COLUMNS)
def context_show(
    call: Call,
    name: Annotated[
        str | None, typer.Argument(metavar="CONTEXT", help="Name of the context.")
    ] = None,
) -> Result:
    """Show a context; by default the current one.

    Examples:
        mq context show              the current context
        mq context show dev -o json  another, for a program
    """
    contexts = Contexts.load(call.environment.config_directory)
    name = name or contexts.current
    if name is None:
        raise UsageError("there is no current context", hint="choose one: mq context use NAME")
    contexts.get(name)
    return _listing(contexts, [name])


_VARIABLES = (text("variable", "Variable"), text("value", "Value"))


@gives(_VARIABLES)
def context_export(
    call: Call,
    name: Annotated[
        str | None, typer.Argument(metavar="CONTEXT", help="Name of the context.")
    ] = None,
) -> Result:
    """Print a context as variables for a shell; by default the current one.

    Use it with `eval "$(mq context export prod)"`. It prints the paths of files with secrets, not
    their contents. Variables without a value in the context are unset, so that none is left from
    another cluster.

    Examples:
        mq context export dev          as lines for a shell
        mq context export dev -o json  for a program
    """
    from shlex import quote

    contexts = Contexts.load(call.environment.config_directory)
    name = name or contexts.current
    if name is None:
        raise UsageError("there is no current context", hint="name one: mq context export NAME")
    settings = contexts.get(name)
    found = {variable: settings.get(item) for variable, item in _EXPORTED.items()}
    plain = "".join(
        f"unset {variable}\n" if value is None else f"export {variable}={quote(value)}\n"
        for variable, value in found.items()
    )
    rows: list[Row] = list(found.items())
    return Result(_VARIABLES, rows, plain)


@gives(_COLUMNS)
@writes
def context_remove(call: Call, name: Name) -> Result:
    """Remove a context.

    Examples:
        mq context remove dev  remove a context
    """
    contexts = Contexts.load(call.environment.config_directory)
    contexts.get(name)
    listing = _listing(contexts, [name])
    del contexts.contexts[name]
    if contexts.current == name:
        contexts.current = None
    _save(call, contexts, f"remove context {name}")
    return listing
