"""Files of consumer offsets: JSON lines or CSV, with a line for each group and queue.

  {"group":"billing","topic":"Orders","brokerName":"broker-a","queueId":0,"offset":1234}

`offset` is that of the next message to consume. A file made by timestamp also has `timestamp`, the
store time of that message (ms since 1970), which has the same meaning in another cluster.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from mq.client.operations.csv_text import csv_text
from mq.client.operations.errors import BadData, NextStep

_NAMES = ("group", "topic", "brokerName", "queueId", "offset", "timestamp")
_MOST = 2**63 - 1  # a broker stores offsets in 64 bits


class Layout(Enum):
    """The format of a file of offsets."""

    JSONL = "jsonl"
    CSV = "csv"


class GroupQueue(NamedTuple):
    """A group in a queue."""

    group: str
    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """The committed offset of a group in a queue; `timestamp` is None if unknown."""

    key: GroupQueue
    offset: int
    timestamp: int | None = None


class Selection(NamedTuple):
    """A selection of groups and topics: glob patterns (`order-*`); empty means all."""

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def takes(self, key: GroupQueue) -> bool:
        return _matches(key.group, self.groups) and _matches(key.topic, self.topics)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def encode(records: Iterable[OffsetRecord], layout: Layout) -> bytes:
    """Return the content of a file with these records, sorted by group, topic, broker and queue."""
    ordered = sorted(records, key=lambda record: record.key)
    timed = any(record.timestamp is not None for record in ordered)
    names = _NAMES if timed else _NAMES[:-1]
    rows = [(*record.key, record.offset, record.timestamp)[: len(names)] for record in ordered]
    if layout is Layout.JSONL:
        import orjson

        return b"".join(
            orjson.dumps(dict(zip(names, row, strict=True)), option=orjson.OPT_APPEND_NEWLINE)
            for row in rows
        )
    return csv_text([names, *rows]).encode()


def decode(content: bytes, source: str) -> list[OffsetRecord]:
    """Parse a file of either format; `source` names it in messages.

    Raises BadData with the number of the first invalid line.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _wrong(source, line, "not text in UTF-8") from None
    fields = _json_fields if text.lstrip()[:1] in ("{", "") else _csv_fields
    records: dict[GroupQueue, OffsetRecord] = {}
    for line, values in fields(text, source):
        try:
            record = _record(values)
        except (KeyError, ValueError, TypeError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise _wrong(source, line, reason) from None
        if record.key in records:
            raise _wrong(source, line, "the same group and queue once more")
        records[record.key] = record
    return list(records.values())


def _json_fields(text: str, source: str) -> Iterable[tuple[int, dict[str, Any]]]:
    import orjson

    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            values = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise _wrong(source, number, f"not JSON: {error.msg}") from None
        if not isinstance(values, dict):
            raise _wrong(source, number, "not a JSON object")
        yield number, values


def _csv_fields(text: str, source: str) -> Iterable[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text))
    try:
        names = next(reader)
        if not set(_NAMES[:-1]) <= set(names):
            raise _wrong(source, 1, f"the first line must name {', '.join(_NAMES[:-1])}")
        for row in reader:
            if len(row) != len(names):
                raise _wrong(source, reader.line_num, f"{len(row)} fields, not {len(names)}")
            yield reader.line_num, dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise _wrong(source, reader.line_num, str(error)) from None


def _record(values: dict[str, Any]) -> OffsetRecord:
    """Create a record. Raises KeyError, ValueError or TypeError for invalid values."""
    from mq.protocol.names import check_group, check_topic, retry_topic

    group, topic, broker = (_text(values, name) for name in _NAMES[:3])
    check_group(group)
    if topic != retry_topic(group):  # retry topics may be longer than other topics
        check_topic(topic)
    key = GroupQueue(group, topic, broker, _number(values, "queueId", 2**31 - 1))
    timestamp = None
    if values.get("timestamp") not in (None, ""):
        timestamp = _number(values, "timestamp", _MOST)
    return OffsetRecord(key, _number(values, "offset", _MOST), timestamp)


def _text(values: dict[str, Any], name: str) -> str:
    value = values[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is not a name: {value!r}")
    return value


def _number(values: dict[str, Any], name: str, most: int) -> int:
    value = values[name]
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is not a number from 0 to {most}: {value!r}")
    return value


def _wrong(source: str, line: int, reason: str) -> BadData:
    return BadData(f"{source}, line {line}: {reason}", hint=NextStep.EXPORT_OFFSETS)
