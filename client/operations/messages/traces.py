"""Reads the traces that clients wrote about a message."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mq.client.errors import MQError, RouteNotFound
from mq.client.operations import columns
from mq.client.operations.messages.finding import unsaid
from mq.client.operations.messages.unpacking import unpacked
from mq.protocol.host import address_text
from mq.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from mq.client.admin import Admin
    from mq.client.trace.entries import Pub, SubAfter, TraceEntry
    from mq.protocol.message import StoredMessage

Entry = tuple["Pub | SubAfter", "StoredMessage"]

MOST_TRACES = 64  # per broker
# The limit of a decompressed trace body: clients start another one at 128,000 bytes (maxMsgSize).
MOST_TRACE_BYTES = 1024 * 1024
_END_OF_TIME = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TraceRow:
    """An entry as shown by `mq queryMsgTraceById`. `type` is Pub or Sub; `time` is in ms, 0 if an
    old client did not write it.
    """

    type: str = columns.text("type", "Type").field()
    group: str | None = columns.text("group", "Group").field()
    client_host: str = columns.text("clientHost", "Client").field()
    time: int = columns.time("time", "Time").field()
    cost_millis: int = columns.number("costMillis", "Took (ms)").field()
    success: bool = columns.flag("success", "Success").field()
    topic: str | None = columns.text("topic", "").field()
    store_host: str | None = columns.text("storeHost", "").field()


def entries(traces: list["StoredMessage"], message_id: str) -> tuple[list[Entry], list[str]]:
    """Return the entries about a message, each with its trace message, and the unreadable traces.
    Traces contain entries about other messages, too.
    """
    from mq.client.trace.entries import Pub, SubAfter

    found, failures = _decoded(traces, lambda entry: entry.message_id == message_id)
    return [(entry, trace) for entry, trace in found if isinstance(entry, Pub | SubAfter)], failures


def _decoded(
    traces: list["StoredMessage"], wanted: "Callable[[TraceEntry], bool]"
) -> "tuple[list[tuple[TraceEntry, StoredMessage]], list[str]]":
    """Return the `wanted` entries of traces, each trace as far as it can be decoded. Bodies that
    are as stored are decompressed one by one.
    """
    from mq.client.trace.entries import MalformedTrace, decode

    found: list[tuple[TraceEntry, StoredMessage]] = []
    failures = []
    for trace in traces:
        body = unpacked(trace, MOST_TRACE_BYTES)
        if body.body_error:
            failures.append(f"trace {trace.message_id}: {body.body_error}")
            continue
        try:
            found += [(entry, trace) for entry in decode(bytes(body.body)) if wanted(entry)]
        except MalformedTrace as error:
            failures.append(f"trace {trace.message_id}: {error}")
    return found, failures


def row(entry: "Pub | SubAfter", trace: "StoredMessage") -> TraceRow:
    """Convert an entry and its trace message to a row."""
    sent = type(entry).__name__ == "Pub"
    return TraceRow(
        "Pub" if sent else "Sub",
        entry.group or None,
        address_text(trace.born_host).rpartition(":")[0],
        entry.timestamp,
        entry.cost,
        entry.success,
        getattr(entry, "topic", None),
        getattr(entry, "store_host", None),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """A client's action on a message, from `begin` to `end` in ms since 1970.

    `kind` is sent, consumed or ended (a transaction); `result` is success, failed, or the state of
    a transaction. `retry` is how often the message had been redelivered.
    """

    kind: str
    group: str
    client_host: str
    begin: int
    end: int
    result: str
    topic: str = ""
    store_host: str = ""
    retry: int = 0
    message_type: str = ""


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced message: its steps by time, its keys and topics."""

    message_id: str
    topics: tuple[str, ...]
    keys: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces of a message id or key.

    `state` is found; none (its clients write no traces, or they have expired); or no_topic: no
    broker has the trace topic, so no traces can be written.
    """

    state: str
    messages: tuple[Traced, ...] = ()
    rows: tuple[TraceRow, ...] = ()
    failures: tuple[str, ...] = ()


async def look_up(
    admin: "Admin",
    word: str,
    *,
    trace_topic: str = TRACE_TOPIC,
    begin: int = 0,
    end: int = _END_OF_TIME,
    count: int = MOST_TRACES,
) -> Traces:
    """Return the traces of messages with a unique id or a key, from the brokers that answer. Raises
    MQError if there are none and some brokers do not answer.
    """
    errors: list[MQError] = []
    try:
        found = await admin.find_by_key(
            trace_topic, word, count, begin, end, decompress=False, failures=errors
        )
    except RouteNotFound:
        return Traces("no_topic")
    if errors and not found:
        raise errors[0]
    made = timeline(found, word)
    return replace(made, failures=(*made.failures, *unsaid(trace_topic, errors)))


def timeline(traces: "list[StoredMessage]", word: str) -> Traces:
    """Combine the trace entries of messages with this unique id or key."""
    from mq.client.trace.entries import EndTransaction, Pub, SubAfter, SubBefore

    def wanted(entry: "TraceEntry") -> bool:
        # Whether a start entry is wanted is known from its end entry, which may be in another
        # trace.
        return isinstance(entry, SubBefore) or word in (entry.message_id, *_keys(entry.keys))

    decoded, failures = _decoded(traces, wanted)
    began: dict[tuple[str, str], SubBefore] = {
        (entry.request_id, entry.message_id): entry
        for entry, _ in decoded
        if isinstance(entry, SubBefore)
    }
    steps: dict[str, list[Step]] = {}
    keys: dict[str, str] = {}
    topics: dict[str, dict[str, None]] = {}
    rows = []
    for entry, trace in decoded:
        if isinstance(entry, SubBefore):
            continue
        host = address_text(trace.born_host).rpartition(":")[0]
        if isinstance(entry, Pub | EndTransaction):
            topics.setdefault(entry.message_id, {})[entry.topic] = None
        if isinstance(entry, SubAfter):
            step = _consumed(entry, began.get((entry.request_id, entry.message_id)), host)
        elif isinstance(entry, Pub):
            step = _sent(entry, host)
        else:
            step = Step(
                "ended",
                entry.group,
                host,
                entry.timestamp,
                entry.timestamp,
                entry.state,
                entry.topic,
                entry.store_host,
            )
        steps.setdefault(entry.message_id, []).append(step)
        keys.setdefault(entry.message_id, entry.keys)
        if isinstance(entry, Pub | SubAfter):
            rows.append(row(entry, trace))
    messages = tuple(
        Traced(
            message_id,
            tuple(topics.get(message_id, ())),
            keys[message_id],
            tuple(sorted(found, key=lambda step: (step.begin, step.kind != "sent"))),
        )
        for message_id, found in steps.items()
    )
    return Traces("found" if messages else "none", messages, tuple(rows), tuple(failures))


def _keys(text: str) -> list[str]:
    return text.split()


def _sent(entry: "Pub", host: str) -> Step:
    return Step(
        "sent",
        entry.group,
        entry.client_host or host,
        entry.timestamp,
        entry.timestamp + max(0, entry.cost),
        "success" if entry.success else "failed",
        entry.topic,
        entry.store_host,
        message_type=entry.message_type.name.lower(),
    )


def _consumed(entry: "SubAfter", before: "object | None", host: str) -> Step:
    """Convert a consumption. Its start is an entry of its own; without it, the start is derived
    from the end and the duration.
    """
    from mq.client.trace.entries import SubBefore

    if isinstance(before, SubBefore):
        begin, group, retry = before.timestamp, entry.group or before.group, before.retry_times
    else:
        begin, group, retry = entry.timestamp - max(0, entry.cost), entry.group, 0
    return Step(
        "consumed",
        group,
        host,
        max(0, begin),
        max(0, begin) + max(0, entry.cost),
        "success" if entry.success else "failed",
        retry=retry,
    )
