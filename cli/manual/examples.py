"""The examples of a command: the last section of its docstring.

    Examples:
        mq tail Orders --last 10        the last ten, then new messages
        mq tail Orders --grep refused --format '%k %b'
                                        only these, as key and body

A line is a command for a shell, two or more blanks, and its description; the description of a long
command is on the next line. Examples are read only for help, never when a command runs.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from inspect import cleandoc
from textwrap import wrap
from typing import Any, NamedTuple

_HEAD = "\nExamples:\n"
_APART = re.compile(r" {2,}")
# The longest command, in characters, with its description on the same line.
_LONGEST = 44


class Example(NamedTuple):
    """A command, and its description in a few words without a period."""

    command: str
    words: str

    def called(self, name: str, other: str) -> "Example":
        """Return the same example with another name of the command."""
        before = f"mq {name}"
        command = self.command
        if command.startswith(before):
            command = f"mq {other}{command.removeprefix(before)}"
        return Example(command, self.words)


def split(docstring: str | None) -> tuple[str, tuple[Example, ...]]:
    """Return the text of a docstring without its examples, and the examples."""
    text, _, section = cleandoc(docstring or "").partition(_HEAD)
    return text.rstrip(), tuple(_examples(section.splitlines()))


def of(function: Callable[..., Any]) -> tuple[Example, ...]:
    """Return the examples of a command."""
    return split(function.__doc__)[1]


def _examples(lines: Iterable[str]) -> Iterator[Example]:
    command, words = "", ""
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if indent > 4:  # a description of the command above
            words = f"{words} {line.strip()}".lstrip()
            continue
        if command:
            yield Example(command, words)
        command, words = (*_APART.split(line.strip(), maxsplit=1), "")[:2]
    if command:
        yield Example(command, words)


def laid_out(examples: Iterable[Example], width: int) -> Iterator[str]:
    """Yield lines of at most `width` characters: commands with their descriptions.

    A command is never broken, whatever its length, so that it can be copied.
    """
    shown = list(examples)
    beside = [len(item.command) for item in shown if len(item.command) <= _LONGEST]
    column = max(beside, default=0) + 2
    for command, words in shown:
        first, *others = wrap(words, width - column) or [""]
        if len(command) <= _LONGEST:
            yield f"{command:<{column}}{first}".rstrip()
        else:
            yield command
            others = [first, *others] if words else []
        yield from (" " * column + line for line in others)
