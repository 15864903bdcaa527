"""The text of `mq COMMAND --help`, from the declarations of the command.

The command's own options come first, required ones at the top. The shared options are one line,
unless all are requested (`--help --all`): a user who looks up `--last` should not have to read
about TLS.
"""

from collections.abc import Iterable, Iterator
from textwrap import fill, wrap
from typing import TYPE_CHECKING

from mq.cli import catalog
from mq.cli.manual import examples
from mq.cli.manual.declarations import CommandDescription, Option, describe_declared

if TYPE_CHECKING:
    from mq.cli.runtime.options import CommandParser

WIDTH = 80
_COLUMN = 30  # the column of the options' descriptions


def command_text(declared: "CommandParser", *, everything: bool = False) -> str:
    """Return the help of a command; `everything` includes the descriptions of shared options."""
    command, name = describe_declared(declared), declared.called
    lines = [*_usage(command, name), "", *paragraph(command.summary)]
    for text in command.paragraphs:
        lines += ["", *paragraph(text)]
    others = [other for other in (command.name, *catalog.aliases_of(command.name)) if other != name]
    if others:
        lines += ["", *paragraph(f"Other names: {', '.join(others)}.")]
    if command.examples:
        shown = [item.called(command.name, name) for item in command.examples]
        lines += ["", "Examples:", *_indented(examples.laid_out(shown, WIDTH - 2))]
    words = [option for option in command.own if not option.flags]
    if words:
        lines += ["", "Arguments:", *listed(words)]
    own = [option for option in command.own if option.flags]
    if own:
        lines += ["", "Options:", *listed(own)]
    if command.one_of:
        lines += ["", f"One of {' or '.join(command.one_of)} is required."]
    if everything:
        lines += ["", "Common options:", *listed(command.common)]
    elif command.common:
        lines += ["", *_folded(command, name)]
    return "\n".join(lines) + "\n"


def _usage(command: CommandDescription, name: str) -> Iterator[str]:
    """Yield the forms of the command: with positional subjects, and with flags."""
    arguments = [option.usage for option in command.own if not option.flags]
    subjects = sorted(
        (option for option in command.own if option.subject), key=lambda option: option.subject
    )
    needed = [option for option in command.own if option.required and option.flags]
    flagged = [option.usage for option in needed if not option.subject]
    one_of = [option for option in command.own if "/".join(option.flags) in command.one_of]
    alone = [option for option in subjects if option not in one_of]
    words = [option.usage for option in alone]
    yield _form("Usage: ", name, [*arguments, *words, *flagged, *_choice(one_of, words=True)])
    if subjects:
        flags = [option.flagged for option in alone]
        yield _form("       ", name, [*arguments, *flags, *flagged, *_choice(one_of, words=False)])


def _choice(one_of: list[Option], *, words: bool) -> list[str]:
    """Return `(HOST:PORT | -c CLUSTER)`, of which one is required."""
    forms = [
        option.metavar if words and option.subject else f"{option.flags[0]} {option.metavar}"
        for option in one_of
    ]
    return [f"({' | '.join(forms)})"] if forms else []


def _form(before: str, name: str, parts: list[str]) -> str:
    return fill(
        " ".join([f"mq {name}", *parts, "[OPTIONS]"]),
        WIDTH,
        initial_indent=before,
        subsequent_indent=" " * 12,
        break_long_words=False,
        break_on_hyphens=False,
    )


def paragraph(text: str) -> list[str]:
    """Wrap a paragraph."""
    return wrap(text, WIDTH, break_on_hyphens=False)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def listed(options: Iterable[Option]) -> Iterator[str]:
    """Yield options with their descriptions, required ones first."""
    for option in sorted(options, key=lambda option: not option.required):
        head = f"  {_head(option)}"
        lines = wrap(option.words, WIDTH - _COLUMN, break_on_hyphens=False)
        if len(head) > _COLUMN - 2:
            yield head
        else:
            yield f"{head:<{_COLUMN}}{lines.pop(0) if lines else ''}".rstrip()
        yield from (" " * _COLUMN + line for line in lines)


def _head(option: Option) -> str:
    flags = ", ".join(option.flags)
    return " ".join(part for part in (flags, option.metavar) if part)


def _folded(command: CommandDescription, name: str) -> list[str]:
    names = ", ".join("/".join(option.flags) for option in command.common)
    text = f"Common options: {names}."
    see = f"Their meaning: mq help options, or mq {name} --help --all."
    return [*wrap(text, WIDTH, break_on_hyphens=False, subsequent_indent="  "), *paragraph(see)]
