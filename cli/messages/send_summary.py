"""The result of commands that send many messages: counts and offsets by queue."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mq.cli.show.result import Result, Row
from mq.client.operations.columns import number, text

if TYPE_CHECKING:
    from mq.cli.runtime.call import Call
    from mq.client.operations.messages.sending import Sent
    from mq.client.operations.messages.tube_copying import TubeTarget

SENT = (
    text("topic", "Topic"),
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    number("messages", "Messages"),
    number("firstOffset", "First offset"),
    number("nextOffset", "Next offset"),
)
TOTALS = (number("messages", "Messages sent in total"),)


def sent_result(
    call: "Call", targets: "Iterable[Sent | TubeTarget]", failures: Sequence[str]
) -> Result:
    """Return a result with a row for each queue that received messages."""
    found = sorted((target for target in targets if target.sent), key=lambda item: item.queue)
    rows: list[Row] = [
        (
            target.queue.topic,
            target.queue.broker_name,
            target.queue.queue_id,
            target.sent,
            target.first_offset,
            target.next_offset,
        )
        for target in found
    ]
    totals = {"messages": sum(target.sent for target in found)}
    return Result(SENT, rows, totals=totals, failures=[*call.shortfalls, *failures])
