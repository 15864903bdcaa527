"""Options for input that becomes messages, and for how messages are sent."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.option_groups import option_group

if TYPE_CHECKING:
    from mq.client.operations.messages.line_forms import Common, Form

KeyOption = Annotated[
    str | None, typer.Option("-k", "--key", metavar="KEYS", help="Keys, separated by blanks.")
]
BrokerOption = Annotated[
    str | None, typer.Option("-b", "--broker", metavar="NAME", help="Send to this broker.")
]
QueueOption = Annotated[
    int | None, typer.Option("-i", "--qid", metavar="ID", help="Send to this queue of the broker.")
]


@option_group
class Input:
    """The source of messages, and the form of its lines."""

    file: Annotated[
        str | None,
        typer.Option("-f", "--file", metavar="FILE", help="Read FILE; -: standard input."),
    ] = None
    whole: Annotated[
        bool, typer.Option("--whole", help="Send the whole input as one message, byte for byte.")
    ] = False
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help="Lines of JSON, as message export and tail -o json write them.",
        ),
    ] = False
    key_separator: Annotated[
        str | None,
        typer.Option(
            "-K",
            "--key-separator",
            metavar="TEXT",
            help="The part of a line before the first TEXT is its key.",
        ),
    ] = None

    def check(self) -> None:
        """Raise UsageError for options that exclude each other."""
        if self.whole and self.json_lines:
            raise UsageError("--whole and --json-lines cannot be combined")
        if self.key_separator == "":
            raise UsageError("-K/--key-separator is empty", hint=r"a tab is \t, a blank \x20")
        if self.key_separator is not None and (self.whole or self.json_lines):
            other = "--whole" if self.whole else "--json-lines"
            raise UsageError(f"-K/--key-separator is for lines of text, not for {other}")

    def form(self, common: "Common") -> "Form":
        """Return the parser of a line, or of the whole input."""
        from mq.client.operations.messages.line_forms import json_form, text_form

        if self.json_lines:
            return json_form(common)
        return text_form(common, _unescaped(self.key_separator or ""))


@option_group
class Attributes:
    """Attributes of messages besides a body, a tag and keys."""

    properties: Annotated[
        list[str] | None,
        typer.Option("-H", "--property", metavar="NAME=VALUE", help="A user property."),
    ] = None
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay",
            metavar="DELAY",
            help="Deliver later: 30s, 15m, 2h, a time, or a delay level (1 to 18).",
        ),
    ] = None

    def pairs(self) -> dict[str, str]:
        """Return the properties by name. Raises UsageError."""
        from mq.protocol.message import check_property

        found: dict[str, str] = {}
        for text in self.properties or ():
            name, _, value = text.partition("=")
            try:
                check_property(name.strip(), value)
            except ValueError as error:
                raise UsageError(f"-H/--property {text!r}: {error}") from None
            found[name.strip()] = value
        return found

    def given(self) -> bool:
        return bool(self.properties or self.delay)


_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|([t0]))")


def _unescaped(text: str) -> bytes:
    r"""Return text with \t, \0 and \x1f replaced by the characters.

    Blanks at the ends of options are stripped, and a shell passes the escapes unchanged.
    """

    def meant(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes.fromhex(match[1].decode())
        return b"\t" if match[2] == b"t" else b"\0"

    return _ESCAPE.sub(meant, text.encode())


def common_of(
    topic: str, tag: str | None, key: str | None, attributes: Attributes
) -> dict[str, Any]:
    """Return the arguments of `Common`, checked before anything is sent."""
    from mq.protocol.properties import has_separator

    for name, text in (("-c/--tags", tag or ""), ("-k/--key", key or "")):
        if has_separator(text):
            raise UsageError(f"{name} must not contain the characters 0x01 or 0x02")
    return {
        "topic": topic,
        "tag": tag,
        "key": key or "",
        "properties": attributes.pairs(),
        "delay": attributes.delay,
    }
