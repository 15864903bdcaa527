"""The table of the commands, generated from the lists in their modules.

    python -m mq.cli.manual.table [DIR]

COMMANDS of each module in `mq.cli.commands` lists its commands by group: `topic plan` is the
function `topic_plan`, and the first line of its docstring is the summary. A group's commands are in
the order of their modules, the module with the group's name first. The table finds commands without
importing them; `make manual` writes it, and a test fails if it is stale.
"""

import inspect
import sys
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from mq.cli import catalog, commands
from mq.cli.runtime.shared_options import SOURCES

PATH = "cli/command_table.py"

_HEAD = '"""Every command by group, and the module that holds it. Written by `make manual`."""'


def text() -> str:
    """Return the source of the table."""
    rows = sorted(_rows(), key=lambda row: (row[0] != row[2], row[0]))
    summaries = {
        group: {name: summary for _, name, its, summary in rows if its == group}
        for group in catalog.TITLES
    }
    modules = {name: module for module, name, _, _ in rows}
    groups = _literal("GROUPS: dict[str, dict[str, str]]", summaries)
    found = _literal("MODULES: dict[str, str]", modules)
    return f"{_HEAD}\n\n{groups}\n{found}\n{_shared_options()}"


_SHARED = "SHARED_OPTIONS: dict[str, tuple[bool, tuple[str, ...]]]"


def _shared_options() -> str:
    """Return the shared options by flag: whether they take a value, and their long forms."""
    found: dict[str, tuple[bool, dict[str, None]]] = {}
    for source in SOURCES:
        hints = typing.get_type_hints(source, include_extras=True)
        for parameter in inspect.signature(source).parameters.values():
            kind, option = typing.get_args(hints[parameter.name])
            written = (option.default, *(option.param_decls or ()))
            flags = [flag for flag in written if isinstance(flag, str)]
            longs = [flag for flag in flags if flag.startswith("--")]
            for flag in flags:
                found.setdefault(flag, (kind is not bool, {}))[1].update(dict.fromkeys(longs))
    lines = ["# The options that may also precede a command: whether one takes a value, its long"]
    lines += ["# forms.", f"{_SHARED} = {{"]
    for flag, (takes_value, meant) in found.items():
        shown = "".join(f"{_quoted(long)}, " for long in meant).strip()
        shown = shown if len(meant) == 1 else shown.removesuffix(",")
        lines.append(f"    {_quoted(flag)}: ({takes_value}, ({shown})),")
    return "\n".join([*lines, "}", ""])


def _rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield module, name, group and summary of each command."""
    for found in iter_modules(commands.__path__):
        module = import_module(f"mq.cli.commands.{found.name}")
        for group, names in getattr(module, "COMMANDS", {}).items():
            for name in names:
                function = getattr(module, catalog.function_name(name))
                yield found.name, name, group, function.__doc__.partition("\n")[0]


def _literal(name: str, values: dict[str, dict[str, str]] | dict[str, str]) -> str:
    lines = [f"{name} = {{"]
    for key, value in values.items():
        if isinstance(value, str):
            lines.append(f"    {_quoted(key)}: {_quoted(value)},")
        else:
            lines.append(f"    {_quoted(key)}: {{")
            lines += [
                f"        {_quoted(inner)}: {_quoted(words)}," for inner, words in value.items()
            ]
            lines.append("    },")
    return "\n".join([*lines, "}", ""])


def _quoted(words: str) -> str:
    return '"' + words.replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else ".", PATH).write_text(text(), encoding="utf-8")
