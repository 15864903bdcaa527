"""Contexts: names for clusters, so that commands need no address."""

from pathlib import Path
from typing import Annotated

import typer

from mq.cli.call import Call
from mq.cli.context import Contexts
from mq.cli.errors import UsageError
from mq.cli.result import Result, flag, text

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]

_COLUMNS = (
    flag("current", "Current"),
    text("name", "Name"),
    text("namesrvAddr", "Name servers"),
    text("aclFile", "Access key in"),
    text("tlsFile", "TLS as in"),
)


_FILES = ("aclFile", "tlsFile")


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


def context_add(call: Call, name: Name) -> Result:
    """Name a cluster, so that commands need no address.

    The cluster's name servers are given with -n, the file with an access key for it with
    --acl-file, its TLS with --tls-config. The first context becomes the current one.
    """
    if not call.given_name_servers:
        raise UsageError("-n/--namesrvAddr is required", hint=f"mq context add {name} -n HOST:9876")
    if not name or name.startswith("-") or any(not letter.isprintable() for letter in name):
        raise UsageError(f"{name!r} cannot name a context")
    contexts = Contexts.load(call.environment.config_directory)
    contexts.contexts[name] = {"namesrvAddr": ";".join(call.name_servers), **_files(call)}
    contexts.current = contexts.current or name
    contexts.save()
    return _listing(contexts, [name])


def _files(call: Call) -> dict[str, str]:
    """The files given for this context: their paths, never what is in them."""
    found = {}
    if call.given_acl_file:
        from mq.cli.secrets import check_private, credentials

        path = Path(call.given_acl_file).absolute()
        check_private(path)
        credentials(str(path))
        found["aclFile"] = str(path)
    if call.given_tls_config:
        from mq.cli.secrets import tls_context

        path = Path(call.given_tls_config).absolute()
        tls_context(str(path))
        found["tlsFile"] = str(path)
    return found


def context_use(call: Call, name: Name) -> Result:
    """Choose the context that commands use by default."""
    contexts = Contexts.load(call.environment.config_directory)
    contexts.get(name)
    contexts.current = name
    contexts.save()
    return _listing(contexts, [name])


def context_list(call: Call) -> Result:
    """List the contexts."""
    contexts = Contexts.load(call.environment.config_directory)
    return _listing(contexts, sorted(contexts.contexts))


def context_show(
    call: Call,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the context.")] = None,
) -> Result:
    """Show a context; by default the current one."""
    contexts = Contexts.load(call.environment.config_directory)
    name = name or contexts.current
    if name is None:
        raise UsageError("no context is current", hint="choose one: mq context use NAME")
    contexts.get(name)
    return _listing(contexts, [name])


def context_remove(call: Call, name: Name) -> Result:
    """Forget a context."""
    contexts = Contexts.load(call.environment.config_directory)
    contexts.get(name)
    listing = _listing(contexts, [name])
    del contexts.contexts[name]
    if contexts.current == name:
        contexts.current = None
    contexts.save()
    return listing
