"""What the traces of clients say of a message."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mq.client.trace.entries import Pub, SubAfter
    from mq.protocol.message import StoredMessage

Entry = tuple["Pub | SubAfter", "StoredMessage"]


def entries(traces: list["StoredMessage"], message_id: str) -> tuple[list[Entry], list[str]]:
    """The entries on a message, each with the trace that it stands in, and which traces cannot be
    read. Traces hold entries on other messages, too."""
    from mq.client.trace.entries import MalformedTrace, Pub, SubAfter, decode

    found: list[Entry] = []
    failures = []
    for trace in traces:
        try:
            for record in decode(bytes(trace.body)):
                if isinstance(record, Pub | SubAfter) and record.message_id == message_id:
                    found.append((record, trace))
        except MalformedTrace as error:
            failures.append(f"trace {trace.message_id}: {error}")
    return found, failures
