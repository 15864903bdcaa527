"""Reads queues between offsets, with the texts of the Java tool.

Plain output is that of PrintMessageSubCommand and ConsumeMessageCommand; the other formats get the
messages.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from mq.cli.show import bodies, message_text
from mq.cli.show.lazy import Mapped
from mq.cli.show.result import Result, Row
from mq.client.operations import java_order
from mq.client.operations.messages import documents
from mq.client.operations.messages.readable_queues import readable_queues
from mq.client.operations.messages.unpacking import Unpacked
from mq.client.pull.pull_consumer import PullConsumer, PullResult, PullStatus
from mq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mq.protocol.message import StoredMessage


class Page:
    """Results of pulls: lines for plain, messages for other formats."""

    def __init__(self, charset: str = "utf-8", *, with_body: bool = True) -> None:
        self.charset = charset
        self.with_body = with_body

    def line(self, plain: str) -> Result:
        """Return a line between the messages, only for plain."""
        return Result(message_text.COLUMNS, [], plain, data=[], messages=[])

    def failed(self, failures: list[str]) -> Result:
        """Return failures of parts that could not be read."""
        return Result(message_text.COLUMNS, [], "", data=[], messages=[], failures=failures)

    def result(self, pulled: PullResult, head: str = "") -> Result:
        """Return the messages of a pull, whose bodies are still compressed, after `head`."""
        extra = message_text.pulled_properties(pulled.min_offset, pulled.max_offset)

        def line(message: "StoredMessage") -> "Iterator[str]":
            shown = self.with_body
            body = bodies.decoded(message.body, self.charset) if shown else "NOT PRINT BODY"
            return message_text.line(message, extra, body)

        messages = Unpacked(pulled.messages)
        result = message_text.result(messages, line, head)
        if not self.with_body:
            result.rows = Mapped(_row_without_body, messages)
            result.data = Mapped(_document_without_body, messages)
        return result


def _row_without_body(message: "StoredMessage") -> Row:
    return (*message_text.row(message)[:-1], None)


def _document_without_body(message: "StoredMessage") -> "dict[str, Any]":
    return documents.document(message, lambda _: (None, None))


async def print_queue(
    consumer: PullConsumer,
    queue: MessageQueue,
    span: tuple[int, int],
    expression: str,
    page: Page,
) -> AsyncIterator[Result]:
    """Yield the messages of a queue from the first offset of `span` to before the second."""
    offset, end = span
    name = message_text.queue_text(queue)
    while offset < end:
        pulled = await consumer.pull(queue, offset, expression, decompress=False)
        offset, status = pulled.next_offset, pulled.status
        if status is PullStatus.FOUND:
            yield page.result(pulled)
        elif status is PullStatus.NO_MATCHED:
            yield page.line(f"{name} no matched msg. status={status}, offset={offset}\n")
        else:
            yield page.line(f"{name} print msg finished. status={status}, offset={offset}\n")
            return


async def read_topic(
    consumer: PullConsumer,
    topic: str,
    span: tuple[int | None, int | None],
    left: int,
    page: Page,
) -> AsyncIterator[Result]:
    """Read queue after queue until `left` messages were requested, counted as Java does."""
    queues, closed = await readable_queues(consumer, topic)
    if closed:
        yield page.failed([*closed.values()])
    for queue in java_order.hash_order(queues, java_order.queue_hash):
        if left == 0:
            return
        low, high = await bounds(consumer, queue, *span)
        if high - low > left:
            yield page.line(
                f"The older {left} message of the {queue.queue_id} queue will be provided\n"
            )
            high, left = low + left - 1, 0
        else:
            left -= high - low + 1
        async for result in read_queue(consumer, queue, low, high, page):
            yield result


async def read_from(
    consumer: PullConsumer,
    queue: MessageQueue,
    first: int,
    span: tuple[int | None, int | None],
    most: int,
    page: Page,
) -> AsyncIterator[Result]:
    """Read at most `most` messages of a queue, from the offset `first`, counted as Java does."""
    low, high = await bounds(consumer, queue, *span)
    if first > high:
        yield page.line(f"{message_text.queue_text(queue)} no matched msg, offset={first}\n")
        return
    low = max(low, first)
    if high - low > most:
        yield page.line(f"The oldler {most} message will be provided\n")
        high = low + most - 1
    async for result in read_queue(consumer, queue, low, high, page):
        yield result


async def read_queue(
    consumer: PullConsumer, queue: MessageQueue, offset: int, last: int, page: Page
) -> AsyncIterator[Result]:
    """Yield messages from `offset` to `last`, both included (ConsumeMessageCommand)."""
    name = message_text.queue_text(queue)
    while offset <= last:
        count = last - offset + 1
        pulled = await consumer.pull(queue, offset, max_count=count, decompress=False)
        offset, status = pulled.next_offset, pulled.status
        if status is PullStatus.FOUND:
            yield page.result(pulled, "Consume ok\n")
        elif status is PullStatus.NO_MATCHED:
            yield page.line(f"{name} no matched msg. status={status}, offset={offset}\n")
        else:
            yield page.line(f"{name} print msg finished. status={status}, offset={offset}\n")
            return


async def bounds(
    consumer: PullConsumer, queue: MessageQueue, begin: int | None, end: int | None
) -> tuple[int, int]:
    """Return the first and last offset of the queue, or the offsets at the times given."""
    low = await consumer.min_offset(queue)
    high = await consumer.max_offset(queue)
    if begin is not None and begin > 0:
        low = await consumer.offset_at(queue, begin)
    if end is not None and end > 0:
        high = await consumer.offset_at(queue, end)
    return low, high
