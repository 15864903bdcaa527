"""What a command would change: recorded by `--dry-run` instead of being done.

A change is a request that was not sent, or a file that was not written. Only a few are kept whole;
the others are counted.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mq.cli.show.result import Result, Row, nested, number, text
from mq.client.operations import masking

if TYPE_CHECKING:
    from mq.protocol.command import Command

KEPT = 1000  # changes kept whole: a copy of millions of messages must fit in memory

COLUMNS = (
    number("step", "Step"),
    text("target", "Where"),
    text("request", "What"),
    text("header", "Fields"),
    text("body", "Body"),
)

DATA = (
    number("step", "its place in the order of changes, from 1"),
    text("target", "address of the broker or name server, or path of the file"),
    text("request", "name of the request, or what is done to the file"),
    number("code", "number of the request; null for a file"),
    nested("header", "fields of the request by name, secrets masked"),
    nested("body", "body of the request: JSON where it is, else text, else base64; null for none"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One change that was not made."""

    target: str
    request: str
    code: int | None
    header: dict[str, str]
    body: Any

    @property
    def body_text(self) -> str:
        """The body in one line."""
        if self.body is None or isinstance(self.body, str):
            return self.body or ""
        import json

        return json.dumps(self.body, ensure_ascii=False)


@dataclass(slots=True)
class Changes:
    """The changes of one run, in their order. Threads may add to it side by side."""

    kept: list[Change] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def request(self, address: str, command: "Command") -> None:
        """Record a request to the peer at `address`."""
        name = _name(command.code)
        self.counts[name] += 1
        if len(self.kept) < KEPT:
            header = masking.fields(_fields(command))
            body = _body(bytes(command.body))
            self.kept.append(Change(address, name, int(command.code), header, body))

    def local(self, path: str, what: str, detail: str = "") -> None:
        """Record what would be done to the file at `path`."""
        self.counts[what] += 1
        if len(self.kept) < KEPT:
            self.kept.append(Change(path, what, None, {}, detail or None))

    def __bool__(self) -> bool:
        return bool(self.counts)

    def result(self, failures: list[str] | None = None) -> Result:
        """All of it, to be shown; `failures` are what would be left undone."""
        rows: list[Row] = []
        data = []
        plain = ""
        for step, change in enumerate(self.kept, 1):
            fields = "\n".join(f"{name}={value}" for name, value in change.header.items())
            rows.append((step, change.target, change.request, fields, change.body_text))
            data.append(
                {
                    "step": step,
                    "target": change.target,
                    "request": change.request,
                    "code": change.code,
                    "header": change.header,
                    "body": change.body,
                }
            )
            plain += _plain(change)
        total = self.counts.total()
        if total > len(self.kept):
            plain += "".join(f"{name}: {count} in all\n" for name, count in self.counts.items())
        plain += "dry run: nothing was changed\n"
        notes = ["dry run: nothing was changed"]
        totals = {"changes": total}
        return Result(COLUMNS, rows, plain, totals, failures or [], data=data, notes=notes)


def _plain(change: Change) -> str:
    code = "" if change.code is None else f" ({change.code})"
    lines = [f"{change.request}{code} {'at' if change.code is None else 'to'} {change.target}"]
    lines += [f"  {name} = {value}" for name, value in change.header.items()]
    lines += [f"  {line}" for line in change.body_text.splitlines()]
    return "\n".join(lines) + "\n"


def _name(code: int) -> str:
    from mq.protocol.codes import RequestCode

    try:
        return RequestCode(code).name
    except ValueError:
        return "request"


def _fields(command: "Command") -> dict[str, str]:
    """The header by the names of its fields: on the wire some have but a letter."""
    from mq.protocol.codes import RequestCode
    from mq.protocol.headers import HEADERS
    from mq.protocol.headers.schema import camel_case

    names: dict[str, str] = {}
    if command.code in set(RequestCode):
        header = HEADERS.get(RequestCode(command.code))
        if header is not None:
            names = {item.wire: camel_case(item.name) for item in header.FIELDS}
    return {names.get(wire, wire): _readable(value) for wire, value in command.fields.items()}


def _readable(value: str) -> str:
    """A field as it is, but for a message's properties: their separators are control characters."""
    if "\x01" not in value:
        return value
    from mq.protocol import properties

    return ", ".join(f"{name}={text}" for name, text in properties.decode(value).items())


def _body(body: bytes) -> Any:
    if not body:
        return None
    from mq.protocol import fastjson

    try:
        value = fastjson.loads(body)
    except fastjson.MalformedJson:
        value = None
    if isinstance(value, dict | list):
        return masking.document(value)
    try:
        read = body.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return b64encode(body).decode()
    return masking.lines(read)
