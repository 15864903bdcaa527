"""Messages as files: JSON lines as `mq message export` writes them, or CSV."""

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from mq.client.errors import MQError
from mq.client.operations.errors import NotFound, OperationError, Unavailable
from mq.client.operations.messages import lookup
from mq.client.operations.messages.documents import body_text
from mq.client.operations.messages.lines import BodyForm, encoder
from mq.client.operations.messages.search import Budget, Position, Search, SearchQuery
from mq.client.operations.times import iso
from mq.daemons.console.call import Call
from mq.daemons.console.pages.message_rows import session_for, without_hidden
from mq.daemons.console.rendering import defused
from mq.daemons.console.route import Download
from mq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from mq.client.transport.session import Session
    from mq.protocol.message import StoredMessage

_AT_ONCE = 100
# Limits for one step of an export. The next step continues, so they bound the memory, not the file.
_STEP = Budget(messages=20_000, bytes=32 * 1024 * 1024, seconds=5.0)

# Bytes of a body that are kept while a step is read: larger ones are read again, one by one.
_KEPT = 64 * 1024

KINDS = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
COLUMNS = (
    "storeTime", "topic", "brokerName", "queueId", "queueOffset", "messageId", "offsetId",
    "tags", "keys", "bornTime", "properties", "body", "bodyEncoding",
    "bodyError",
)  # fmt: skip


def export(call: Call, wanted: SearchQuery, form: str, limit: int) -> Download:
    """Return the messages of a search, newest first, `limit` at most. `form` is jsonl or csv."""
    session = session_for(call, wanted.choice.topic)
    name = f"{wanted.choice.topic}.{form}"
    return Download(name, _chunks(call, session, wanted, form, limit), KINDS[form])


async def _chunks(
    call: Call, session: "Session", wanted: SearchQuery, form: str, limit: int
) -> AsyncIterator[bytes]:
    """Yield the parts of the file. The first one, which may be empty, comes after the first search.

    Raises MQError and OperationError before the first part, and ConnectionError after it.
    """
    encode: Callable[[Iterable[StoredMessage]], bytes] = (
        csv_lines if form == "csv" else encoder(BodyForm.TEXT)
    )
    position: Position | None = None
    has_begun = False
    while limit > 0:
        step = replace(wanted, count=min(_AT_ONCE, limit))
        try:
            found = await Search(session, step, _STEP, keep=_KEPT).run(position)
        except (MQError, OperationError) as error:
            if has_begun:
                raise ConnectionError(str(error)) from None
            raise
        if not has_begun:
            if found.failures:
                raise Unavailable(found.failures[0])
            has_begun = True
            yield written([COLUMNS]) if form == "csv" else b""
        for hit in found.hits:
            message = hit.message
            if hit.size > len(message.body):
                message = await _whole(session, message)
            yield encode([without_hidden(call, message)])
        if found.failures:
            # The file ends before the end of the response, so the browser reports that it is
            # incomplete.
            raise ConnectionError(found.failures[0])
        limit -= len(found.hits)
        position = found.after
        if position is None:
            return


async def _whole(session: "Session", message: "StoredMessage") -> "StoredMessage":
    queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
    try:
        return (await lookup.at_offset(session, queue, message.queue_offset)).messages[0]
    except NotFound as error:  # deleted in the meantime
        raise ConnectionError(error.message) from None


def csv_lines(messages: "Iterable[StoredMessage]") -> bytes:
    """Return messages as rows of COLUMNS that no spreadsheet interprets as formulas."""
    rows = []
    for message in messages:
        body, encoding = body_text(message)
        properties = message.properties
        rows.append(
            (
                iso(message.store_timestamp), message.topic, message.broker_name, message.queue_id,
                message.queue_offset, message.message_id, message.offset_id,
                properties.get("TAGS"), properties.get("KEYS"), iso(message.born_timestamp),
                orjson.dumps(properties).decode(), body, encoding,
                message.body_error or None,
            )
        )  # fmt: skip
    return written(rows)


def written(rows: "Iterable[tuple[str | int | None, ...]]") -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    for row in rows:
        writer.writerow([defused(cell) for cell in row])
    return text.getvalue().encode("utf-8", "replace")
