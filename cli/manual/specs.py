"""What the completions of all three shells are made of: words and options of each command."""

from dataclasses import dataclass, replace

from mq.cli import catalog
from mq.cli.manual.described import Described, Option, cases, commands


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
    """A command: `key` is its folded name, as catalog.fold has it; `argument` the kind of one.

    `shared` are the options that other commands have, too: few sets of them, so that scripts keep
    each once.
    """

    name: str
    key: str
    second_keys: tuple[str, ...]  # of its other names
    summary: str
    own: tuple[Spec, ...]
    shared: tuple[Spec, ...]
    argument: str


def specs() -> list[CommandSpec]:
    """Every command, and those whose options go by an argument with each such argument, too."""
    found = []
    for command in commands():
        found.append(_spec(command))
        for case, described in cases(command):
            found.append(replace(_spec(described), key=f"{catalog.fold(command.name)} {case}"))
    return found


def first_words() -> list[tuple[str, str]]:
    """What can stand after `mq`, with what it is: for `context add` the group it belongs to."""
    words: dict[str, str] = {}
    for group, names in catalog.GROUPS.items():
        for name, summary in names.items():
            first, _, second = name.partition(" ")
            words.setdefault(first, f"{catalog.TITLES[group]}: …" if second else summary)
    words["help"] = "Show the options of a command."
    return list(words.items())


def second_words() -> dict[str, list[tuple[str, str]]]:
    """What can stand after the first word of a command of two words, by that word's folded form."""
    words: dict[str, list[tuple[str, str]]] = {}
    for names in catalog.GROUPS.values():
        for name, summary in names.items():
            first, _, second = name.partition(" ")
            if second:
                words.setdefault(catalog.fold(first), []).append((second, summary))
    return words


def _spec(command: Described) -> CommandSpec:
    arguments = [option for option in command.options if not option.flags]
    own = [_option(command, option) for option in command.own if option.flags]
    shared: list[Spec] = []
    for option in command.common:
        # The columns are the command's own.
        is_own = option.flags[0] in ("--columns", "--sort")
        (own if is_own else shared).append(_option(command, option))
    shared.append(Spec(("-h", "--help"), False, "", "", "Show the options.", False))
    return CommandSpec(
        name=command.name,
        key=catalog.fold(command.name),
        second_keys=tuple(
            catalog.fold(alias)
            for alias, name in catalog.ALIASES.items()
            if name == command.name and catalog.fold(alias) != catalog.fold(name)
        ),
        summary=command.summary,
        own=tuple(own),
        shared=tuple(shared),
        argument=arguments[0].kind if arguments else "",
    )


def _option(command: Described, option: Option) -> Spec:
    kind = option.kind
    if option.shared and option.flags[0] in ("--columns", "--sort") and command.given is not None:
        names = {column.name for table in command.given.tables for column in table}
        kind = f"one:{'|'.join(sorted(names))}" if names else ""
    return Spec(
        option.flags, bool(option.metavar), kind, option.metavar, option.help, option.repeated
    )


def shared_sets(found: list[CommandSpec]) -> dict[tuple[Spec, ...], str]:
    """The sets of shared options that there are, each with a name for a variable."""
    sets = dict.fromkeys(command.shared for command in found)
    return {options: f"_mq_shared_{number}" for number, options in enumerate(sets)}
