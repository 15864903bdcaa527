"""The candidates for the word under the cursor of a command line.

The scripts under `completions/` call `mq __complete WORD…` with the words after `mq`, the one under
the cursor last. The first line of the reply is `KIND PREFIX`: the kind of the candidates
(`Candidates.kind`), and the part of the word that stays before a candidate, such as `--topic=`.
Each following line is a candidate, with its description after a tab. The shells select the
candidates that match the word; only current names (`mq.cli.completion.names`) are selected here.

A completing shell cannot show errors, so none is reported: the reply is then empty.
The commands and options come from `command_table` and `options.json`, which `make manual` writes,
so that a reply imports no command and no typer, and takes less than 100 ms.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mq.cli import catalog
from mq.cli.completion import names
from mq.cli.runtime import global_options
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import UsageError


class Option(NamedTuple):
    """An option for completion. `kind` is the kind of its values: None for a flag without a value,
    empty if they cannot be completed (`mq.cli.manual.kinds`)."""

    flags: tuple[str, ...]
    kind: str | None
    repeated: bool
    help: str


class Argument(NamedTuple):
    """A positional argument. Each of its flags may replace it; the last may be `repeated`."""

    flags: tuple[str, ...]
    kind: str
    repeated: bool


class Candidates(NamedTuple):
    """The candidates for a word, with descriptions, and the `prefix` of the word before them.

    `kind` is `commands`, `options`, `values` or `names`. The shell itself completes `files` and
    `directories`. An option whose name ends with `=` takes a value.
    """

    kind: str
    rows: Sequence[tuple[str, str]] = ()
    prefix: str = ""


_NOTHING = Candidates("")


def complete(words: list[str], environment: Environment) -> None:
    """Print the candidates for the last word of a line."""
    try:
        found = candidates(words, environment)
    except Exception:
        if environment.variables.get("MQ_DEBUG"):
            raise
        return
    environment.stdout.write(f"{found.kind} {found.prefix}\n")
    for text, description in found.rows:
        environment.stdout.write(f"{text}\t{description}\n" if description else f"{text}\n")


def candidates(words: list[str], environment: Environment) -> Candidates:
    """Return the candidates for the last of the words after `mq`."""
    *before, current = words or [""]
    after = global_options.after(before)
    if not after:
        if current.startswith("-") or _lacks_value(before):
            return _word(_options("before", ()), (), before, words, environment)
        return _first_words(current)
    if after == ["help"]:
        return _first_words(current)
    if len(after) == 1 and not current.startswith("-"):
        key = catalog.fold(after[0])
        if second := [item for item in _written() if catalog.fold(item[0]) == key and item[1]]:
            return _commands(current, [(word, summary) for _, word, summary in second])
    found = catalog.find(after)
    if found is None:
        return _NOTHING
    rest = after[found[2] :]
    key = catalog.key_of(found[1])
    commands = _table()["commands"]
    command = commands.get(f"{key} {rest[0]}" if rest else key) or commands[key]
    arguments = [Argument(tuple(flags), *others) for flags, *others in command["arguments"]]
    return _word(_options(command["shared"], command["own"]), arguments, rest, words, environment)


def _lacks_value(words: list[str]) -> bool:
    """Return whether the options before the command end with one that lacks its value."""
    try:
        global_options.split(words)
    except UsageError:
        return True
    return False


def _written() -> list[tuple[str, str, str]]:
    """Return first word, second word and summary of each name: commands, then two-word aliases."""
    named = {name: words for names in catalog.GROUPS.values() for name, words in names.items()}
    named |= {alias: catalog.summary(alias) for alias in catalog.ALIASES if " " in alias}
    return [(*name.partition(" ")[::2], summary) for name, summary in named.items()]


def _first_words(current: str) -> Candidates:
    """Return the words after `mq`. `context` has the title of its group as description."""
    words: dict[str, str] = {}
    for first, second, summary in _written():
        name = f"{first} {second}".rstrip()
        group = catalog.group_of(first) or catalog.BY_NAME[catalog.key_of(name)][0]
        words.setdefault(first, f"{catalog.TITLES[group]}: …" if second else summary)
    words["help"] = "Show the help of a command."
    return _commands(current, words.items())


def _commands(current: str, words: Iterable[tuple[str, str]]) -> Candidates:
    """Return names of commands: in kebab-case if the current word has a hyphen."""
    if "-" in current:
        words = ((catalog.kebab(name), summary) for name, summary in words)
    return Candidates("commands", list(words))


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("options.json").read_bytes())
    return found


def _options(shared: str, own: Sequence[Any]) -> list[Option]:
    """Return the options of a command: its own, then the set with the name `shared`."""
    rows = (*own, *_table()["shared"][shared])
    return [Option(tuple(flags), *others) for flags, *others in rows]


def _word(
    options: list[Option],
    arguments: Sequence[Argument],
    rest: Sequence[str],
    words: list[str],
    environment: Environment,
) -> Candidates:
    """Return the candidates for an option, its value or an argument; `rest` precedes the word."""
    current = words[-1] if words else ""
    kinds = {flag: item.kind for item in options if item.kind is not None for flag in item.flags}
    flag, equals, value = current.partition("=")
    if flag.startswith("--") and equals and flag in kinds:
        return _values(kinds[flag], value, flag + equals, words, environment)
    if len(current) > 2 and not current.startswith("--") and current[:2] in kinds:  # -tOrders
        return _values(kinds[current[:2]], current[2:], current[:2], words, environment)
    if rest and rest[-1] in kinds:
        return _values(kinds[rest[-1]], current, "", words, environment)
    given, count = _given(rest, kinds)
    if current.startswith("-"):
        return _flags(options, given)
    free = [item for item in arguments if not given.intersection(item.flags)]
    if count < len(free) or (free and free[-1].repeated):
        return _values(free[min(count, len(free) - 1)].kind, current, "", words, environment)
    return _NOTHING if current else _flags(options, given)


def _given(rest: Sequence[str], kinds: dict[str, str]) -> tuple[set[str], int]:
    """Return the flags among the words, and the number of positional arguments."""
    given: set[str] = set()
    count, is_value = 0, False
    for word in rest:
        if is_value:
            is_value = False
        elif word.startswith("-") and word != "-":
            given.add(word.partition("=")[0])
            is_value = word in kinds
        else:
            count += 1
    return given, count


def _flags(options: list[Option], given: set[str]) -> Candidates:
    """Return the flags that may follow those that are given."""
    rows = [
        (f"{flag}=" if option.kind is not None and flag.startswith("--") else flag, option.help)
        for option in options
        if option.repeated or not given.intersection(option.flags)
        for flag in option.flags
    ]
    return Candidates("options", rows)


def _values(
    kind: str | None, value: str, prefix: str, words: list[str], environment: Environment
) -> Candidates:
    """Return the values of a kind; `value` is the part of the current word after `prefix`."""
    if not kind:
        return _NOTHING
    if kind in ("files", "directories"):
        return Candidates(kind, prefix=prefix)
    if kind.startswith("one:"):
        return Candidates("values", [(choice, "") for choice in kind[4:].split("|")], prefix)
    found = names.matching(kind, value, words[:-1], environment)
    return Candidates("names", [(name, "") for name in found], prefix)
