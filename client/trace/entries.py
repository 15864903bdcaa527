"""Entries of a message trace and their text format, which is Java's (TraceDataEncoder). No I/O.

A trace message holds entries, each ended by "\\x02", with fields separated by "\\x01". A missing
field is the text "null": Java's decoder fails on an entry that ends with an empty field.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

_CONTENT = "\x01"  # separates the fields of an entry
_ENTRY = "\x02"  # ends an entry
_WITHOUT_MARKS = str.maketrans("", "", _CONTENT + _ENTRY)
_ABSENT = "null"
DEFAULT_REGION = "DefaultRegion"


class MalformedTrace(ValueError):
    """A trace that does not have the format above. The text names the entry."""


class MessageType(IntEnum):
    """The kind of a sent message. Wire values."""

    NORMAL = 0
    HALF = 1  # of a transaction that has not ended
    COMMIT = 2
    DELAY = 3


@dataclass(frozen=True, kw_only=True)
class Pub:
    """A message was sent. Times are in ms; `timestamp` is the start of the send."""

    timestamp: int
    group: str
    topic: str
    message_id: str
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    body_length: int = 0
    cost: int = 0
    message_type: MessageType = MessageType.NORMAL
    offset_message_id: str = ""
    success: bool = True
    region: str = DEFAULT_REGION
    client_host: str = ""  # written only by old clients

    def contents(self) -> tuple[object, ...]:
        return (
            *("Pub", self.timestamp, self.region, self.group, self.topic, self.message_id),
            *(self.tags or _ABSENT, self.keys or _ABSENT, self.store_host, self.body_length),
            *(self.cost, self.message_type.value, self.offset_message_id, _bool(self.success)),
        )


@dataclass(frozen=True, kw_only=True)
class SubBefore:
    """A message is being passed to a listener; its SubAfter has the same `request_id`."""

    timestamp: int
    group: str
    request_id: str
    message_id: str
    retry_times: int = 0
    keys: str = ""
    region: str = DEFAULT_REGION

    def contents(self) -> tuple[object, ...]:
        return (
            *("SubBefore", self.timestamp, self.region, self.group, self.request_id),
            *(self.message_id, self.retry_times, self.keys or _ABSENT),
        )


@dataclass(frozen=True, kw_only=True)
class SubAfter:
    """A listener has processed a message, within `cost` ms."""

    request_id: str
    message_id: str
    cost: int
    success: bool
    keys: str = ""
    outcome: int = 0  # a ConsumeOutcome
    timestamp: int = 0  # 0 and "" if the client did not write them
    group: str = ""

    def contents(self) -> tuple[object, ...]:
        return (
            *("SubAfter", self.request_id, self.message_id, self.cost, _bool(self.success)),
            *(self.keys or _ABSENT, int(self.outcome), self.timestamp, self.group),
        )


@dataclass(frozen=True, kw_only=True)
class EndTransaction:
    """A transaction ended. `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""

    timestamp: int
    group: str
    topic: str
    message_id: str
    transaction_id: str
    state: str
    from_check: bool = False
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    message_type: MessageType = MessageType.COMMIT
    region: str = DEFAULT_REGION

    def contents(self) -> tuple[object, ...]:
        return (
            *("EndTransaction", self.timestamp, self.region, self.group, self.topic),
            *(self.message_id, self.tags or _ABSENT, self.keys or _ABSENT, self.store_host),
            *(self.message_type.value, self.transaction_id, self.state, _bool(self.from_check)),
        )


TraceEntry = Pub | SubBefore | SubAfter | EndTransaction


def encode(entry: TraceEntry) -> str:
    """Return the text of an entry, including the mark at its end."""
    contents = [*map(str, entry.contents())]
    text = _CONTENT.join(contents)
    if text.count(_CONTENT) >= len(contents) or _ENTRY in text:
        # The message of another client may have such a key, which would make the other entries
        # unreadable.
        text = _CONTENT.join([content.translate(_WITHOUT_MARKS) for content in contents])
    return text + _ENTRY


def decode(body: bytes | str) -> Iterator[TraceEntry]:
    """Yield the entries in the body of a trace message, without those of an unknown kind.

    Also reads entries of older clients, which have fewer fields. Raises MalformedTrace.
    """
    try:
        text = body if isinstance(body, str) else body.decode()
    except UnicodeDecodeError as error:
        raise MalformedTrace(f"the trace is not UTF-8: {error}") from None
    for number, entry in enumerate(text.split(_ENTRY)):
        parts = entry.split(_CONTENT)
        reader = _READERS.get(parts[0])
        if reader is None:
            continue
        try:
            yield reader(parts)
        except (IndexError, ValueError) as error:
            raise MalformedTrace(f"entry {number} of the trace, {parts[0]}: {error}") from None


def _read_pub(parts: list[str]) -> Pub:
    # 13 fields: without the offset id; 14: the current format; 15 and more: with the client's host.
    with_id = len(parts) >= 14
    return Pub(
        timestamp=int(parts[1]),
        region=parts[2],
        group=parts[3],
        topic=parts[4],
        message_id=parts[5],
        tags=_text(parts[6]),
        keys=_text(parts[7]),
        store_host=parts[8],
        body_length=int(parts[9]),
        cost=int(parts[10]),
        message_type=MessageType(int(parts[11])),
        offset_message_id=parts[12] if with_id else "",
        success=parts[13 if with_id else 12] == "true",
        client_host=parts[14] if len(parts) >= 15 else "",
    )


def _read_sub_before(parts: list[str]) -> SubBefore:
    return SubBefore(
        timestamp=int(parts[1]),
        region=_text(parts[2]),
        group=parts[3],
        request_id=parts[4],
        message_id=parts[5],
        retry_times=int(parts[6]),
        keys=_text(parts[7]),
    )


def _read_sub_after(parts: list[str]) -> SubAfter:
    return SubAfter(
        request_id=parts[1],
        message_id=parts[2],
        cost=int(parts[3]),
        success=parts[4] == "true",
        keys=_text(parts[5]),
        outcome=int(parts[6]) if len(parts) >= 7 else 0,
        timestamp=int(parts[7]) if len(parts) >= 9 else 0,
        group=parts[8] if len(parts) >= 9 else "",
    )


def _read_end(parts: list[str]) -> EndTransaction:
    return EndTransaction(
        timestamp=int(parts[1]),
        region=_text(parts[2]),
        group=parts[3],
        topic=parts[4],
        message_id=parts[5],
        tags=_text(parts[6]),
        keys=_text(parts[7]),
        store_host=parts[8],
        message_type=MessageType(int(parts[9])),
        transaction_id=parts[10],
        state=parts[11],
        from_check=parts[12] == "true",
    )


_READERS: dict[str, Callable[[list[str]], TraceEntry]] = {
    "Pub": _read_pub,
    "SubBefore": _read_sub_before,
    "SubAfter": _read_sub_after,
    "EndTransaction": _read_end,
}


def _text(content: str) -> str:
    return "" if content == _ABSENT else content


def _bool(value: bool) -> str:
    return "true" if value else "false"
