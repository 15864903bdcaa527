"""Entries of a message trace and their text form, which is Java's (TraceDataEncoder). No I/O.

A trace message holds entries, each ended by "\\x02", their contents parted by "\\x01". What is
absent is the text "null": Java's decoder fails on an entry that ends with an empty content.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

_CONTENT = "\x01"  # between the contents of an entry
_ENTRY = "\x02"  # after an entry
_WITHOUT_MARKS = str.maketrans("", "", _CONTENT + _ENTRY)
_ABSENT = "null"
DEFAULT_REGION = "DefaultRegion"


class MalformedTrace(ValueError):
    """A trace that is not of the form above. The text says where."""


class MessageType(IntEnum):
    """What kind of message was sent. Wire values."""

    NORMAL = 0
    HALF = 1  # of a transaction that is not ended
    COMMIT = 2
    DELAY = 3


class ConsumeOutcome(IntEnum):
    """How consuming went. Wire values (ConsumeReturnType)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


@dataclass(frozen=True, kw_only=True)
class Pub:
    """A message was sent. Times in ms; `timestamp` is when the send began."""

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
    client_host: str = ""  # only what old clients wrote has it

    def contents(self) -> tuple[object, ...]:
        return (
            *("Pub", self.timestamp, self.region, self.group, self.topic, self.message_id),
            *(self.tags or _ABSENT, self.keys or _ABSENT, self.store_host, self.body_length),
            *(self.cost, self.message_type.value, self.offset_message_id, _bool(self.success)),
        )


@dataclass(frozen=True, kw_only=True)
class SubBefore:
    """A message is being given to a listener; `request_id` is the same in its SubAfter."""

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
    """A listener has had a message, for `cost` ms."""

    request_id: str
    message_id: str
    cost: int
    success: bool
    keys: str = ""
    outcome: int = 0  # a ConsumeOutcome
    timestamp: int = 0  # 0 and "" of clients that did not write them
    group: str = ""

    def contents(self) -> tuple[object, ...]:
        return (
            *("SubAfter", self.request_id, self.message_id, self.cost, _bool(self.success)),
            *(self.keys or _ABSENT, int(self.outcome), self.timestamp, self.group),
        )


@dataclass(frozen=True, kw_only=True)
class EndTransaction:
    """A transaction was ended. `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""

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
    """The text of an entry, with the mark at its end."""
    contents = [*map(str, entry.contents())]
    text = _CONTENT.join(contents)
    if text.count(_CONTENT) >= len(contents) or _ENTRY in text:
        # Of a message of others: one such key would make all entries beside it unreadable.
        text = _CONTENT.join([content.translate(_WITHOUT_MARKS) for content in contents])
    return text + _ENTRY


def decode(body: bytes | str) -> Iterator[TraceEntry]:
    """The entries in the body of a trace message; those of an unknown kind are left out.

    Also of older clients, which wrote fewer contents. Raises MalformedTrace.
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
    # 13 contents: without the offset id; 14: as now; 15 and more: with the client's host.
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
