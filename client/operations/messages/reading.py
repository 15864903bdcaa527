"""Pulls the messages of a Choice, queue by queue."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.client.operations.errors import NextStep, NotFound
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.readable_queues import readable_queues
from mq.client.pull.pull_consumer import PullConsumer, PullResult, PullStatus
from mq.protocol.bodies import MessageQueue
from mq.protocol.compression import MAX_DECOMPRESSED
from mq.protocol.message import restore_body

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller
    from mq.protocol.message import StoredMessage

TRIES = 3  # attempts of a pull that fails temporarily
RETRY_SECONDS = 1.0
PULL_COUNT = 1024  # messages per pull; brokers return 32 by default
MOST_UNPACKED = 8 * 1024 * 1024  # bytes of bodies returned at a time, plus one body


@dataclass
class Span:
    """The part of a queue that is still to be read: from `next` up to, not including, `end`.

    `maximum` is the queue's own end when it was queried. `seen` is the offset and store time of a
    message that was read, by which a later run verifies that the queue is the same.
    """

    queue: MessageQueue
    next: int
    end: int
    maximum: int
    seen: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        return queue_name(self.queue)


def queue_name(queue: MessageQueue) -> str:
    """Return the name of a queue in states and messages."""
    return f"{queue.broker_name}:{queue.queue_id}"


class MissingMessages(MQError):
    """A queue does not have the messages that it reported, or that an earlier run has read."""


# Statuses whose skipped range has no messages: a filter that matches nothing returns NO_MATCHED.
_PASSED_OVER = (PullStatus.NO_NEW, PullStatus.OFFSET_ILLEGAL)


class Reader:
    """Pulls the selected messages. Commits nothing, and needs no group of its own."""

    def __init__(self, session: "Caller", choice: Choice, *, decompress: bool = True) -> None:
        """Without `decompress` bodies are returned as stored."""
        self.choice = choice
        self._decompress = decompress
        self._gaps: list[str] = []
        # count, first offset and reason, by queue
        self._packed: dict[str, tuple[int, int, str]] = {}
        self.unread: list[str] = []  # the names of queues that `spans` could not query
        self.gone: set[str] = set()  # those of them that are not in the routes
        self._consumer = PullConsumer(session)
        self._test = choice.test()

    @property
    def gaps(self) -> list[str]:
        """Lines for selected messages that no longer exist, or whose bodies cannot be
        decompressed.
        """
        return self._gaps + [
            f"{name}: bodies that cannot be decompressed: {count}, the first at offset {first}: "
            f"{why}"
            for name, (count, first, why) in self._packed.items()
        ]

    async def spans(self, known: Collection[str] = ()) -> tuple[list[Span], list[str]]:
        """Return the spans of the selected queues, and a line for each queue that cannot be
        queried.

        A broker that dies is removed from the routes within seconds, together with its queues.
        `known` are the names of queues that must exist nevertheless, because an earlier run knew
        them. Raises NotFound if no queue is selected, and the last error if no queue answers.
        """
        queues, closed = await readable_queues(self._consumer, self.choice.topic)
        queues = [queue for queue in queues if self._has(queue)]
        if not queues:
            raise NotFound(
                f"topic {self.choice.topic} has no such queue that can be read",
                hint=NextStep.LOOK_AT_ROUTE,
                subject=self.choice.topic,
            )
        routed = {queue_name(queue) for queue in queues}
        failures = {
            name: f"{name}: not in the routes of topic {self.choice.topic}: is its broker away?"
            for name in known
            if name not in routed
        }
        self.gone = set(failures)
        chosen = self.choice.brokers
        unreadable = [why for name, why in closed.items() if not chosen or name in chosen]
        last: MQError | None = None

        async def find(queue: MessageQueue) -> Span | None:
            nonlocal last
            try:
                return await self._span(queue)
            except MQError as error:
                name = queue_name(queue)
                failures[name] = f"{name}: {error}"
                last = error
                return None

        found = await asyncio.gather(*(find(queue) for queue in queues))
        spans = [span for span in found if span is not None]
        self.unread = sorted(failures)
        if last is not None and not spans:
            raise last
        return spans, sorted([*failures.values(), *unreadable])

    async def queues(self) -> list[MessageQueue]:
        """Return the selected queues that the topic has now. Raises RouteNotFound."""
        queues = await self._consumer.queues(self.choice.topic)
        return [queue for queue in queues if self._has(queue)]

    def _has(self, queue: MessageQueue) -> bool:
        choice = self.choice
        return (not choice.brokers or queue.broker_name in choice.brokers) and (
            not choice.queue_ids or queue.queue_id in choice.queue_ids
        )

    async def _span(self, queue: MessageQueue) -> Span:
        """Return a span slightly larger than the requested times: Java's search returns the nearest
        message, and any one of those stored in the same millisecond. `Choice.test` drops the
        excess.
        """
        begin, end = self.choice.begin, self.choice.end
        low = await self._consumer.min_offset(queue)
        high = maximum = await self._consumer.max_offset(queue)
        if begin is not None:
            low = max(low, await self._consumer.offset_at(queue, begin - 1))
        if end is not None:
            high = min(high, await self._consumer.offset_at(queue, end) + 1)
        return Span(queue, low, max(low, high), maximum)

    async def go_on(self, span: Span, begin: int, seen: tuple[int, int] | None) -> str | None:
        """Resume a span where an interrupted run stopped, after the message that it had `seen`.

        Returns the reason if that is not possible. Messages that expired since then are a gap,
        which the first pull reports.
        """
        if begin > span.maximum:
            return (
                f"{span.name}: it was read up to offset {begin}, but ends at {span.maximum}: was "
                "the topic recreated? (to read it from its start, remove the state)"
            )
        if seen is not None and not await self._is_there(span.queue, *seen):
            return (
                f"{span.name}: the message at offset {seen[0]} is another one than before: was the "
                "topic recreated? (to read it from its start, remove the state)"
            )
        span.next, span.seen = begin, seen
        return None

    async def _is_there(self, queue: MessageQueue, offset: int, stored: int) -> bool:
        """Whether the message at an offset has this store time, or has expired."""
        result = await self._consumer.pull(queue, offset, max_count=1, decompress=False)
        return all(
            message.store_timestamp == stored
            for message in result.messages
            if message.queue_offset == offset
        )

    async def batches(self, span: Span) -> "AsyncIterator[tuple[list[StoredMessage], int]]":
        """Yield the messages of a span, one pull at a time; the next pull is already in flight.

        Each batch comes with the value that `span.next` gets after the caller has processed it.
        Ranges that a broker skips because they expired are recorded in `gaps`, as are messages that
        cannot be decompressed, which are returned as stored. Raises MissingMessages if the queue
        ends before the span.
        """
        test, end = self._test, span.end
        if span.next >= end:
            return
        offset = span.next
        pending = asyncio.ensure_future(self._pull_on(span, offset))
        try:
            while True:
                result = await pending
                after = result.next_offset
                over = after >= end
                if result.status in _PASSED_OVER:
                    self._note_gap(span, offset, min(after, end))
                if not over:
                    pending = asyncio.ensure_future(self._pull_on(span, after))
                messages = result.messages
                if messages:
                    span.seen = (messages[-1].queue_offset, messages[-1].store_timestamp)
                if after > end:
                    messages = [item for item in messages if item.queue_offset < end]
                if test is not None:
                    messages = [item for item in messages if test(item)]
                upto = end if over else after
                if self._decompress:
                    for part in _unpacked(messages, upto):
                        self._note_packed(span, part[0])
                        yield part
                        del part  # before the next one is decompressed
                else:
                    yield messages, upto
                if over:
                    return
                offset = after
        finally:
            if pending.done():
                # retrieves the exception: no code awaits it any more
                pending.cancelled() or pending.exception()
            pending.cancel()

    def _note_packed(self, span: Span, messages: "list[StoredMessage]") -> None:
        for message in messages:
            if message.body_error:
                new = (0, message.queue_offset, message.body_error)
                count, first, why = self._packed.get(span.name, new)
                self._packed[span.name] = (count + 1, first, why)

    def _note_gap(self, span: Span, begin: int, end: int) -> None:
        self._gaps.append(
            f"{span.name}: {end - begin} messages from offset {begin} on are not there any more"
        )

    async def _pull_on(self, span: Span, offset: int) -> PullResult:
        """Pull, and ensure that the next pull continues at a higher offset.

        A broker that returns nothing but a higher offset has no messages in between
        (GetMessageStatus.OFFSET_FOUND_NULL): reading continues there. One that returns no higher
        offset is queried again: messages that it reported may not be readable yet.
        """
        for _ in range(TRIES):
            result = await self._pull(span.queue, offset)
            if result.next_offset > offset:
                return result
            if result.next_offset < offset:
                break
            await asyncio.sleep(RETRY_SECONDS)
        raise MissingMessages(
            f"the queue had messages up to offset {span.end}, and gives none from {offset} on: "
            "was the topic recreated?"
        )

    async def _pull(self, queue: MessageQueue, offset: int) -> PullResult:
        expression, kind = self.choice.expression
        for left in reversed(range(TRIES)):
            try:
                return await self._consumer.pull(
                    queue,
                    offset,
                    expression,
                    max_count=PULL_COUNT,
                    expression_type=kind,
                    decompress=False,
                )
            except MQError as error:
                if not (left and error.retriable):
                    raise
                await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError("the last try returns or raises")


def _unpacked(
    messages: "list[StoredMessage]", after: int
) -> "Iterator[tuple[list[StoredMessage], int]]":
    """Yield messages with decompressed bodies, in parts; with each part comes the next offset.

    A pull of 32 small records may expand to 2 GB: the size of each part is bounded.
    """
    part: list[StoredMessage] = []
    size = 0
    messages.reverse()
    while messages:
        message = messages.pop()  # no other reference keeps processed messages alive
        restore_body(message, MAX_DECOMPRESSED)
        part.append(message)
        size += len(message.body)
        if size >= MOST_UNPACKED and messages:
            behind = message.queue_offset + 1
            del message
            yield part, behind
            part, size = [], 0
    yield part, after
