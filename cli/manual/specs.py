"""The data of the completions for all shells: words and options of each command."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mq.cli import catalog
from mq.cli.manual.declarations import CommandDescription, Option
from mq.cli.manual.descriptions import cases, commands
from mq.cli.manual.shared_help import shared
from mq.cli.runtime.shared_options import SOURCES


@dataclass(frozen=True)
class Spec:
    """An option for shell completion. `kind` is empty if its values cannot be completed."""

    flags: tuple[str, ...]
    takes_value: bool
    kind: str
    metavar: str
    help: str
    repeated: bool


@dataclass(frozen=True)
class CommandSpec:
    """A command: `key` is its folded name, as in catalog.key_of.

    `shared` are the options that other commands have, too: few distinct sets, so that scripts
    contain each once.
    """

    name: str
    key: str
    second_keys: tuple[str, ...]  # its other names
    summary: str
    own: tuple[Spec, ...]
    shared: tuple[Spec, ...]
    # Each word that no flag precedes, in order: its alternative flags, if any, and its kind.
    arguments: tuple["Argument", ...]


@dataclass(frozen=True)
class Argument:
    """A positional argument; `-t,--topic` may replace it. The last may be `repeated`."""

    flags: tuple[str, ...]
    kind: str
    metavar: str
    repeated: bool


def specs() -> list[CommandSpec]:
    """Return every command, and each variant whose options depend on an argument."""
    found = []
    for command in commands():
        found.append(_spec(command))
        for case, described in cases(command):
            found.append(replace(_spec(described), key=f"{catalog.key_of(command.name)} {case}"))
    return found


def first_words() -> list[tuple[str, str]]:
    """Return the words after `mq` with descriptions; `context` has that of its group."""
    words: dict[str, str] = {}
    for name, summary in _written():
        first, _, second = name.partition(" ")
        group = catalog.group_of(first) or catalog.BY_NAME[catalog.key_of(name)][0]
        words.setdefault(first, f"{catalog.TITLES[group]}: …" if second else summary)
    words["help"] = "Show the help of a command."
    return list(words.items())


def second_words() -> dict[str, list[tuple[str, str]]]:
    """Return the second words of two-word commands, by the folded first word."""
    words: dict[str, list[tuple[str, str]]] = {}
    for name, summary in _written():
        first, _, second = name.partition(" ")
        if second:
            words.setdefault(catalog.fold(first), []).append((second, summary))
    return words


def _written() -> Iterator[tuple[str, str]]:
    """Yield each name with its summary: commands, then two-word aliases."""
    for names in catalog.GROUPS.values():
        yield from names.items()
    for alias in catalog.ALIASES:
        if " " in alias:
            yield alias, catalog.summary(alias)


def global_specs() -> tuple[Spec, ...]:
    """Return the options that may precede a command."""
    found: dict[tuple[str, ...], Spec] = {}
    for source in SOURCES:
        for option in shared(source):
            # Before a command that is not known yet, -n is the name servers'.
            flags = tuple(flag for flag in option.flags if not any(flag in had for had in found))
            if flags:
                found[flags] = _spec_of(replace(option, flags=flags), option.kind)
    return tuple(found.values())


def _spec(command: CommandDescription) -> CommandSpec:
    # Words of typer come first; the remaining ones belong to subjects with flags.
    words = sorted(
        (option for option in command.options if option.subject or not option.flags),
        key=lambda option: option.subject,
    )
    own = [_option(command, option) for option in command.own if option.flags]
    common: list[Spec] = []
    for option in command.common:
        # The columns depend on the command.
        is_own = option.flags[0] in ("--columns", "--sort")
        (own if is_own else common).append(_option(command, option))
    common.append(Spec(("-h", "--help"), False, "", "", "Show the options.", False))
    return CommandSpec(
        name=command.name,
        key=catalog.key_of(command.name),
        second_keys=tuple(
            catalog.key_of(alias)
            for alias, name in catalog.ALIASES.items()
            if name == command.name and catalog.key_of(alias) != catalog.key_of(name)
        ),
        summary=command.summary,
        own=tuple(own),
        shared=tuple(common),
        arguments=tuple(
            Argument(option.flags, option.kind, option.metavar, option.repeated) for option in words
        ),
    )


def _option(command: CommandDescription, option: Option) -> Spec:
    kind = option.kind
    if option.shared and option.flags[0] in ("--columns", "--sort") and command.given is not None:
        names = {column.name for table in command.given.tables for column in table}
        kind = f"one:{'|'.join(sorted(names))}" if names else ""
    return _spec_of(option, kind)


def _spec_of(option: Option, kind: str) -> Spec:
    return Spec(
        option.flags, bool(option.metavar), kind, option.metavar, option.help, option.repeated
    )


def shared_sets(found: list[CommandSpec]) -> dict[tuple[Spec, ...], str]:
    """Return the distinct sets of shared options, each with a variable name."""
    sets = dict.fromkeys(command.shared for command in found)
    return {options: f"_mq_shared_{number}" for number, options in enumerate(sets)}
