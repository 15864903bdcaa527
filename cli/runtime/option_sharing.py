"""The shared options of a command, and their names."""

import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

from mq.cli.runtime import shared_options
from mq.cli.runtime.effects import effect_of
from mq.cli.runtime.values import declarations, plain_type

Function = Callable[..., Any]

SHARED = "shared_"  # the prefix of shared options among the parameters of a command


def sources(function: Function) -> list[Function]:
    """Return the sources of a command's shared options, which depend on its effects."""
    effect = effect_of(function)
    cluster = shared_options.tube if effect.tube else shared_options.cluster
    found: list[Function] = [cluster, shared_options.layout]
    if effect.messages:
        found.append(shared_options.messages)
    if not effect.writes:
        return found if effect.endless else [*found, shared_options.reads]
    found.append(shared_options.writes)
    return [*found, shared_options.destroys] if effect.destroys else found


def kind_of(long: str) -> Any:
    """Return the type of a shared option's value, by its long form."""
    for source in shared_options.SOURCES:
        hints = typing.get_type_hints(source, include_extras=True)
        for name, parameter in inspect.signature(source).parameters.items():
            if long in declarations(parameter.replace(annotation=hints[name])):
                return plain_type(hints[name])
    raise KeyError(long)


def free(source: Function, taken: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the options of `source` without the flags that `taken` declare.

    Their names start with SHARED, so that they differ from the command's parameters.
    """
    used = {flag for parameter in taken for flag in declarations(parameter)}
    hints = typing.get_type_hints(source, include_extras=True)
    left = []
    for parameter in inspect.signature(source).parameters.values():
        parameter = parameter.replace(annotation=hints[parameter.name])
        flags = [flag for flag in declarations(parameter) if flag not in used]
        if not flags:
            continue
        kind, option = typing.get_args(parameter.annotation)
        declared = typer.Option(
            *flags, metavar=option.metavar, help=option.help, parser=option.parser
        )
        left.append(
            parameter.replace(name=SHARED + parameter.name, annotation=Annotated[kind, declared])
        )
    return left
