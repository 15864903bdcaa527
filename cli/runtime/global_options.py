"""Options before the command: `mq --context dev topicList`.

They are the shared ones (`shared_options`), with the same meaning as after the command: `-o` before
a command is `--output`, even if the command has its own `-o`. As in kubectl, options after the
command win, so that a line can override a shell alias such as mq='mq --context dev'.
"""

from collections.abc import Sequence
from typing import NamedTuple

from mq.cli import command_table
from mq.cli.runtime.errors import UsageError


class GlobalOption(NamedTuple):
    """An option before the command: the `flag` as written, its long forms, its value.

    Options of a whole `mq shell` are not `needed`: commands without them ignore them.
    """

    flag: str
    longs: tuple[str, ...]
    value: str | bool
    needed: bool = True

    @property
    def words(self) -> tuple[str, ...]:
        """The option as written."""
        return (self.flag,) if isinstance(self.value, bool) else (self.flag, self.value)


def split(arguments: Sequence[str]) -> tuple[list[GlobalOption], list[str]]:
    """Return the options before the command, and the rest. Raises UsageError without a value."""
    given: list[GlobalOption] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        flag, value = _flag(rest[0])
        option = command_table.SHARED_OPTIONS.get(flag)
        if option is None:
            break
        takes_value, longs = option
        written = rest.pop(0)
        if not takes_value:
            if value is not None:
                raise UsageError(f"{written}: {flag} takes no value")
            given.append(GlobalOption(flag, longs, value=True))
            continue
        if value is None:
            if not rest:
                raise UsageError(f"{flag} needs a value", hint=f"mq {flag} VALUE COMMAND")
            value = rest.pop(0)
        given.append(GlobalOption(flag, longs, value))
    return given, rest


def of_session(before: Sequence[str]) -> list[GlobalOption]:
    """Return the options of a `mq shell` for each of its commands. --dry-run stays needed."""
    return [item._replace(needed="--dry-run" in item.longs) for item in split(before)[0]]


def after(words: Sequence[str]) -> list[str]:
    """Return the words from the command on; none if an option before it has no value."""
    try:
        return split(words)[1]
    except UsageError:
        return []


def _flag(word: str) -> tuple[str, str | None]:
    """Return the option of a word as it is declared, and the value within the word."""
    flag, equals, value = word.partition("=")
    if flag in command_table.SHARED_OPTIONS:
        return flag, value if equals else None
    if not word.startswith("--"):  # -n10.0.0.1:9876
        short = word[:2]
        takes_value = command_table.SHARED_OPTIONS.get(short, (False, ()))[0]
        return (short, word[2:]) if takes_value and len(word) > 2 else (word, None)
    folded = flag.replace("-", "").lower()
    for known in command_table.SHARED_OPTIONS:
        if known.startswith("--") and known.replace("-", "").lower() == folded:
            return known, value if equals else None
    return word, None
