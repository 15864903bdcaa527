"""The positional arguments of a command line: `Orders` in `mq tail Orders`.

They are assigned to the subjects of the command (`options.subject`) in order, without those that
flags give. Errors are answered with the correct form of the command.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mq.cli.runtime.errors import UsageError


class Positional(NamedTuple):
    """A parameter that may be positional. `flags` are empty if it can only be positional."""

    name: str
    flags: tuple[str, ...]
    metavar: str
    required: bool
    repeated: bool = False  # takes all remaining words

    @property
    def usage(self) -> str:
        """`TOPIC`, or `[TOPIC]` if it is optional."""
        shown = f"{self.metavar}…" if self.repeated else self.metavar
        return shown if self.required else f"[{shown}]"

    @property
    def noun(self) -> str:
        """The noun for messages: `topic`."""
        if self.metavar.isalpha() and self.metavar.isupper() and self.metavar not in _VAGUE:
            return self.metavar.lower()
        long = max(self.flags, key=len, default=self.name).lstrip("-")
        return _NOUNS.get(long, long.replace("_", " ").lower())


_VAGUE = {"TEXT", "N", "NAME", "ID", "TIME", "MODE", "VALUE", "FOLDER", "OFFSET"}
_NOUNS = {
    "brokerAddr": "broker",
    "brokerName": "broker",
    "clusterName": "cluster",
    "msgId": "message id",
    "messageId": "message id",
    "queueId": "queue",
    "controllerAddress": "controller",
    "filename": "file",
    "srcGroup": "group to copy from",
    "destGroup": "group to copy to",
}


# Dashes that word processors and web pages substitute for "-".
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"


def check_dashes(words: Iterable[str]) -> None:
    """Raise UsageError for a word that would be an option if its dash were "-"."""
    for word in words:
        bare = word.lstrip(_DASHES + "-")
        if word[:1] in _DASHES and bare[:1].isalpha() and " " not in word:
            dashes = "-" if len(bare.partition("=")[0]) == 1 else "--"
            raise UsageError(
                f"{word!r} starts with a dash that is not '-'", hint=f"use: {dashes}{bare}"
            )


def take(words: Sequence[Positional], given: dict[str, Any], rest: Sequence[str]) -> list[str]:
    """Put words of `rest` into `given`, for each of `words` that is missing. Returns the remaining
    words.
    """
    left = list(rest)
    for word in words:
        if not left:
            break
        if word.name in given or not word.flags:
            continue
        if word.repeated:
            given[word.name], left = left, []
        else:
            given[word.name] = left.pop(0)
    return left


def form(
    command: str,
    words: Iterable[Positional],
    needed: Iterable[Positional],
    given: Mapping[str, Any],
) -> str:
    """Return the command with all required parts: the given values, and placeholders."""
    parts = [command]
    for word in words:
        parts += _values(word, given) or [word.usage]
    for word in needed:
        for value in _values(word, given) or [word.metavar]:
            parts += [*word.flags[:1], *filter(None, [value])]
    return " ".join(parts)


def _values(word: Positional, given: Mapping[str, Any]) -> list[str]:
    found = given.get(word.name)
    if found is None:
        return []
    from mq.client.operations.masking import is_secret

    if any(map(is_secret, word.flags)):
        return [word.metavar]  # the hint may be logged
    from shlex import quote

    values = found if isinstance(found, list | tuple) else [found]
    return [quote(str(value)) for value in values]
