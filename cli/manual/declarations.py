"""The description of one command from its declarations, for help, pages and completions."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from mq.cli import catalog
from mq.cli.manual.examples import Example, split
from mq.cli.manual.kinds import kind_of
from mq.cli.runtime.effects import Effect, ResultShape, effect_of, given_by
from mq.cli.runtime.option_sharing import SHARED

if TYPE_CHECKING:
    from mq.cli.runtime.options import CommandParser


@dataclass(frozen=True)
class Option:
    """An option or an argument. `kind` selects the completion of its value
    (`mq.cli.manual.kinds`)."""

    flags: tuple[str, ...]  # empty for an argument
    metavar: str  # empty for a flag without a value
    help: str
    default: str
    required: bool
    repeated: bool
    shared: bool
    kind: str
    subject: int = 0  # the number of the word that may replace its flag, from 1; 0: none

    @property
    def usage(self) -> str:
        """`-t TOPIC`, as in a usage line; a subject is only its word."""
        return self._usage(self.subject)

    @property
    def flagged(self) -> str:
        """The same with its flag, also for a subject."""
        return self._usage(0)

    def _usage(self, subject: int) -> str:
        flags = () if subject else self.flags[:1]
        shown = " ".join(part for part in (*flags, self.metavar) if part)
        return shown if self.required else f"[{shown}]"

    @property
    def words(self) -> str:
        """The help, followed by required, default and repeatable."""
        parts = [self.help]
        if self.required:
            parts.append("Required.")
        if self.repeated:
            parts.append("Repeatable.")
        if self.default and not self.required and "Default:" not in self.help:
            parts.append(f"Default: {self.default}.")
        return " ".join(parts)


@dataclass(frozen=True)
class CommandDescription:
    """A command: names, text in paragraphs, options, effect and results."""

    name: str
    group: str
    summary: str
    paragraphs: tuple[str, ...]
    examples: tuple[Example, ...]
    options: tuple[Option, ...]
    one_of: tuple[str, ...]
    effect: Effect
    given: ResultShape | None
    talks: bool  # whether it connects to a cluster: False for daemons
    aliases: tuple[str, ...] = ()  # its names of noun and verb

    @property
    def own(self) -> tuple[Option, ...]:
        """The options that other commands do not have."""
        return tuple(option for option in self.options if not option.shared)

    @property
    def common(self) -> tuple[Option, ...]:
        """The shared options of this command."""
        return tuple(option for option in self.options if option.shared)


def describe_declared(declared: "CommandParser", group: str = "") -> CommandDescription:
    """Return the description of a command whose declarations are already read."""
    function = declared.function
    summary, paragraphs, examples = _texts(function)
    return CommandDescription(
        name=declared.name,
        group=group,
        summary=summary,
        paragraphs=paragraphs,
        examples=examples,
        options=tuple(options_of(declared)),
        one_of=tuple(declared.flags(item) for item in function.__dict__.get("one_of", ())),
        effect=effect_of(function),
        given=given_by(function),
        talks=declared.needs_call,
        aliases=tuple(catalog.aliases_of(declared.name)),
    )


def _texts(function: Callable[..., Any]) -> tuple[str, tuple[str, ...], tuple[Example, ...]]:
    """Return the first line of the docstring, its other paragraphs, and its examples."""
    text, examples = split(function.__doc__)
    summary, *others = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return summary, tuple(others), examples


def options_of(declared: "CommandParser") -> Iterator[Option]:
    """Yield the options and arguments in the order of declaration."""
    positions = {name: number for number, name in enumerate(declared.subjects, 1)}
    for option in declared.command.get_params(declared.context):
        if option.name == "help":
            continue
        parameter = declared.parameter(option.name)
        is_argument = option.param_type_name == "argument"
        flags = () if is_argument else tuple(option.opts)
        is_flag = bool(getattr(option, "is_flag", False))
        metavar = declared.metavar(option.name)
        default = parameter.default
        yield Option(
            flags=flags,
            metavar=metavar,
            help=(option.help or "").strip(),
            default=_default_text(default),
            required=default is inspect.Parameter.empty,
            repeated=bool(getattr(option, "multiple", False)) or option.nargs == -1,
            shared=option.name.startswith(SHARED),
            kind=kind_of(flags, metavar, is_flag=is_flag),
            subject=positions.get(option.name, 0),
        )


def _default_text(value: Any) -> str:
    if value is inspect.Parameter.empty or value is None or value is False or value == "":
        return ""
    return str(value.value) if isinstance(value, Enum) else str(value)
