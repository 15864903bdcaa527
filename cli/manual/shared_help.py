"""The shared options, for the pages and for `mq help options`."""

import inspect
import typing
from collections.abc import Callable
from typing import Any

from mq.cli.manual import prose
from mq.cli.manual.declarations import Option, options_of
from mq.cli.runtime.help import listed, paragraph
from mq.cli.runtime.options import CommandParser


def options_text() -> str:
    """Return the text of `mq help options`: the shared options and the precedence."""
    lines = ["The options that commands share.", "", *paragraph(prose.OPTIONS), ""]
    for title, options in shared_groups():
        lines += [f"{title}:", *listed(options), ""]
    for words in prose.PRECEDENCE:
        lines += [*paragraph(words), ""]
    return "\n".join(lines)


def shared(source: Callable[..., Any]) -> list[Option]:
    """Return the options that a function of `mq.cli.runtime.shared_options` declares."""
    return list(options_of(CommandParser("shared", _with_environment(source))))


def shared_groups() -> list[tuple[str, list[Option]]]:
    """Return the shared options by the kind of commands that have them."""
    from mq.cli.runtime import shared_options as all_of

    groups = (
        ("Every command", (all_of.cluster, all_of.layout)),
        ("Commands of TubeMQ, instead of the first six", (all_of.tube,)),
        ("Commands that show messages", (all_of.messages,)),
        ("Commands that change nothing", (all_of.reads,)),
        ("Commands that change something", (all_of.writes,)),
        ("Commands that destroy data", (all_of.destroys,)),
    )
    return [
        (title, [option for source in sources for option in shared(source)])
        for title, sources in groups
    ]


def _with_environment(source: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the options of `source` after a first parameter, as commands have."""
    from mq.cli.runtime.env import Environment

    def command() -> None: ...

    first = inspect.Parameter(
        "environment", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Environment
    )
    own = list(inspect.signature(source).parameters.values())
    command.__dict__["__signature__"] = inspect.Signature([first, *own])
    command.__annotations__ = {
        "environment": Environment,
        **typing.get_type_hints(source, include_extras=True),
    }
    return command
