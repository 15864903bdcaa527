"""Descriptions of all commands, for pages and completions."""

from functools import cache

from mq.cli import catalog
from mq.cli.main import load
from mq.cli.manual.declarations import CommandDescription, describe_declared


def commands(group: str | None = None) -> list[CommandDescription]:
    """Return all commands in the order of the catalog, or those of one group."""
    return [
        describe(key, name)
        for key, names in catalog.GROUPS.items()
        if group in (None, key)
        for name in names
    ]


def cases(command: CommandDescription) -> list[tuple[str, CommandDescription]]:
    """Return the command's variants: each argument that adds options, with the description."""
    group, name = command.group, command.name
    return [(case, describe(group, name, case)) for case in _case_names(group, name)]


@cache
def describe(group: str, name: str, *arguments: str) -> CommandDescription:
    """Return the description of one command with these arguments."""
    return describe_declared(load(group, name, arguments), group)


@cache
def _case_names(group: str, name: str) -> tuple[str, ...]:
    return tuple(load(group, name).function.__dict__.get("cases", ()))
