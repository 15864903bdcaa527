"""The options of all commands for the completion: `cli/completion/options.json`.

`mq __complete` reads it (`mq.cli.completion.candidates`), so that it need not import commands. An
option is a row of flags, kind, whether it may be repeated, and help. The kind is null for a flag
without a value. An argument is a row of flags that may replace it, kind, and whether it is
repeated. Few distinct sets of options are shared, so each set is written once, with a number.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

from mq.cli import catalog
from mq.cli.manual.declarations import CommandDescription, Option
from mq.cli.manual.descriptions import cases, commands
from mq.cli.manual.shared_help import shared
from mq.cli.runtime.shared_options import SOURCES

_HELP = '[["-h", "--help"], null, false, "Show the options."]'


def document() -> str:
    """Return cli/completion/options.json."""
    sets: dict[tuple[str, ...], str] = {tuple(_before()): "before"}
    described = {key: _command(command, sets) for key, command in _keys()}
    lines = ["{", '"shared": {']
    lines.append(",\n".join(f'"{name}": {_list(rows)}' for rows, name in sets.items()))
    lines += ["},", '"commands": {']
    lines.append(",\n".join(f'"{key}": {text}' for key, text in described.items()))
    lines += ["}", "}", ""]
    return "\n".join(lines)


def _keys() -> Iterator[tuple[str, CommandDescription]]:
    """Yield each command, and each variant whose options depend on an argument."""
    for command in commands():
        key = catalog.key_of(command.name)
        yield key, command
        for case, described in cases(command):
            yield f"{key} {case}", described


def _before() -> Iterator[str]:
    """Yield the options that may precede a command."""
    found: set[str] = set()
    for source in SOURCES:
        for option in shared(source):
            # Before a command that is not known yet, -n is the name servers'.
            if flags := tuple(flag for flag in option.flags if flag not in found):
                found.update(flags)
                yield _option(replace(option, flags=flags))


def _command(command: CommandDescription, sets: dict[tuple[str, ...], str]) -> str:
    own = [_option(option) for option in command.own if option.flags]
    common = []
    for option in command.common:
        if option.flags[0] in ("--columns", "--sort"):  # the columns depend on the command
            own.append(_option(_with_columns(option, command)))
        else:
            common.append(_option(option))
    rows = (*common, _HELP)
    arguments = [
        json.dumps([option.flags, option.kind, option.repeated])
        # Arguments of typer come first; the remaining ones belong to subjects with flags.
        for option in sorted(command.options, key=lambda option: option.subject)
        if option.subject or not option.flags
    ]
    name = sets.setdefault(rows, str(len(sets)))
    return f'{{"shared": "{name}", "arguments": {_list(arguments)}, "own": {_list(own)}}}'


def _with_columns(option: Option, command: CommandDescription) -> Option:
    tables = command.given.tables if command.given else ()
    names = {column.name for table in tables for column in table}
    return replace(option, kind=f"one:{'|'.join(sorted(names))}" if names else "")


def _option(option: Option) -> str:
    kind = option.kind if option.metavar else None
    row = (option.flags, kind, option.repeated, option.help)
    return json.dumps(row, ensure_ascii=False)


def _list(rows: list[str] | tuple[str, ...]) -> str:
    return "[\n" + ",\n".join(rows) + "\n]" if rows else "[]"
