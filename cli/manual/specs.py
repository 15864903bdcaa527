"""What the completions of all three shells are made of: words and options of each command."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mq.cli import catalog
from mq.cli.manual.declarations import CommandDescription, Option
from mq.cli.manual.descriptions import cases, commands
from mq.cli.manual.shared_help import shared
from mq.cli.runtime.shared_options import SOURCES


@dataclass(frozen=True)
class Spec:
    """An option as shells complete it. `kind` is empty for a value nobody can guess."""

    flags: tuple[str, ...]
    takes_value: bool
    kind: str
    metavar: str
    help: str
    repeated: bool


@dataclass(frozen=True)
class CommandSpec:
    """A command: `key` is its folded name, as catalog.key_of has it.

    `shared` are the options that other commands have, too: few sets of them, so that scripts keep
    each once.
    """

    name: str
    key: str
    second_keys: tuple[str, ...]  # of its other names
    summary: str
    own: tuple[Spec, ...]
    shared: tuple[Spec, ...]
    # What each word is that no flag introduces, in their order: the flags that give the same
    # instead, if any, and the kind of value.
    arguments: tuple["Argument", ...]


@dataclass(frozen=True)
class Argument:
    """A word that a command takes: `-t,--topic` may give it, too. The last may be `repeated`."""

    flags: tuple[str, ...]
    kind: str
    metavar: str
    repeated: bool


def specs() -> list[CommandSpec]:
    """Every command, and those whose options go by an argument with each such argument, too."""
    found = []
    for command in commands():
        found.append(_spec(command))
        for case, described in cases(command):
            found.append(replace(_spec(described), key=f"{catalog.key_of(command.name)} {case}"))
    return found


def first_words() -> list[tuple[str, str]]:
    """What can stand after `mq`, with what it is: for `context add` the group it belongs to."""
    words: dict[str, str] = {}
    for name, summary in _written():
        first, _, second = name.partition(" ")
        group = catalog.group_of(first) or catalog.BY_NAME[catalog.key_of(name)][0]
        words.setdefault(first, f"{catalog.TITLES[group]}: …" if second else summary)
    words["help"] = "Show the options of a command."
    return list(words.items())


def second_words() -> dict[str, list[tuple[str, str]]]:
    """What can stand after the first word of a command of two words, by that word's folded form."""
    words: dict[str, list[tuple[str, str]]] = {}
    for name, summary in _written():
        first, _, second = name.partition(" ")
        if second:
            words.setdefault(catalog.fold(first), []).append((second, summary))
    return words


def _written() -> Iterator[tuple[str, str]]:
    """Each name that people write, with its summary: commands, then aliases of two words."""
    for names in catalog.GROUPS.values():
        yield from names.items()
    for alias in catalog.ALIASES:
        if " " in alias:
            yield alias, catalog.summary(alias)


def global_specs() -> tuple[Spec, ...]:
    """The options that stand before a command."""
    found: dict[tuple[str, ...], Spec] = {}
    for source in SOURCES:
        for option in shared(source):
            # -n is the name servers' before a command of which nothing is known yet.
            flags = tuple(flag for flag in option.flags if not any(flag in had for had in found))
            if flags:
                found[flags] = _spec_of(replace(option, flags=flags), option.kind)
    return tuple(found.values())


def _spec(command: CommandDescription) -> CommandSpec:
    # Words of typer come first: what its parser leaves is for those that have flags.
    words = sorted(
        (option for option in command.options if option.subject or not option.flags),
        key=lambda option: option.subject,
    )
    own = [_option(command, option) for option in command.own if option.flags]
    common: list[Spec] = []
    for option in command.common:
        # The columns are the command's own.
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
    """The sets of shared options that there are, each with a name for a variable."""
    sets = dict.fromkeys(command.shared for command in found)
    return {options: f"_mq_shared_{number}" for number, options in enumerate(sets)}
