"""The changes of an operation: recorded by a dry run instead of being made.

A change is a request that was not sent, or a file that was not written. Only the first ones are
kept completely; the others are counted.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mq.client.operations import masking

if TYPE_CHECKING:
    from mq.protocol.command import Command

KEPT = 1000  # changes kept completely: a copy of millions of messages must fit in memory


@dataclass(frozen=True, slots=True)
class PlannedChange:
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
    """The changes of one run, in order. Threads may add changes concurrently."""

    kept: list[PlannedChange] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def request(self, address: str, command: "Command") -> None:
        """Record a request to the peer at `address`."""
        name = _name(command.code)
        self.counts[name] += 1
        if len(self.kept) < KEPT:
            header = masking.fields(_fields(command))
            body = _messages(command) or _body(bytes(command.body))
            self.kept.append(PlannedChange(address, name, int(command.code), header, body))

    def local(self, path: str, what: str, detail: str = "") -> None:
        """Record a change of the file at `path`."""
        self.counts[what] += 1
        if len(self.kept) < KEPT:
            self.kept.append(PlannedChange(path, what, None, {}, detail or None))

    def __bool__(self) -> bool:
        return bool(self.counts)


def _name(code: int) -> str:
    from mq.protocol.codes import RequestCode

    try:
        return RequestCode(code).name
    except ValueError:
        return "request"


def _fields(command: "Command") -> dict[str, str]:
    """Return the header with full field names: some have one-letter names on the wire."""
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
    """Return a field's value; message properties, separated by control characters, are
    formatted.
    """
    if "\x01" not in value:
        return value
    from mq.protocol import properties

    return ", ".join(f"{name}={text}" for name, text in properties.decode(value).items())


def _messages(command: "Command") -> list[dict[str, Any]]:
    """Return the messages of a batch; empty for other requests and compressed batches."""
    from mq.protocol import properties
    from mq.protocol.batch import decode_batch
    from mq.protocol.codes import RequestCode
    from mq.protocol.errors import RemoteProtocolError

    if command.code != RequestCode.SEND_BATCH_MESSAGE:
        return []
    try:
        return [
            {
                "properties": properties.decode(bytes(item.properties).decode()),
                "body": _body(bytes(item.body)),
            }
            for item in decode_batch(command.body)
        ]
    except (RemoteProtocolError, UnicodeDecodeError):
        return []


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
