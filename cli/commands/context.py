"""Contexts: names for clusters, so that commands need no address."""

from typing import Annotated

import typer

from mq.cli.call import Call
from mq.cli.context import Contexts
from mq.cli.errors import UsageError
from mq.cli.result import Result, flag, text

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]

_COLUMNS = (flag("current", "Current"), text("name", "Name"), text("namesrvAddr", "Name servers"))


def _listing(contexts: Contexts, names: list[str]) -> Result:
    rows = [
        (name == contexts.current, name, contexts.contexts[name]["namesrvAddr"]) for name in names
    ]
    return Result(_COLUMNS, rows)


def context_add(call: Call, name: Name) -> Result:
    """Name a cluster, so that commands need no address.

    The cluster's name servers are given with -n. The first context becomes the current one.
    """
    if not call.given_name_servers:
        raise UsageError("-n/--namesrvAddr is required", hint=f"mq context add {name} -n HOST:9876")
    if not name or name.startswith("-") or any(not letter.isprintable() for letter in name):
        raise UsageError(f"{name!r} cannot name a context")
    contexts = Contexts.load(call.environment.config_directory)
    contexts.contexts[name] = {"namesrvAddr": ";".join(call.name_servers)}
    contexts.current = contexts.current or name
    contexts.save()
    return _listing(contexts, [name])


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
