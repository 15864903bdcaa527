"""Follows a topic: yields the last messages, and new ones of all queues as they arrive.

Each queue is pulled by a task of its own, and the broker suspends the pull until a message arrives.
Nothing is committed, no heartbeat is sent, and the group is that of the tools, so following leaves
no trace.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from mq.client.errors import MQError
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.reading import Reader, Span
from mq.client.operations.messages.unpacking import unpacked
from mq.client.pull.pull_consumer import PullConsumer
from mq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller
    from mq.protocol.message import StoredMessage

WAIT_SECONDS = 15.0  # how long a broker may suspend a pull
RETRY_SECONDS = 1.0
LOOK_SECONDS = 30.0  # between two checks for new queues
MOST_LOOKED_BACK = 100_000  # messages per queue that are searched for the last matching ones

Test = Callable[["StoredMessage"], bool]


class FollowedMessages(NamedTuple):
    """Messages in the order of their store times, or a line about a failure."""

    messages: "list[StoredMessage]"
    failure: str | None = None


def body_matches(pattern: "re.Pattern[bytes]") -> Test:
    """Return a test for bodies that contain the pattern. Compressed bodies are decompressed only
    during the test.
    """
    return lambda message: pattern.search(unpacked(message).body) is not None


class Follower:
    """The messages of a topic from some point on, without end. Use it in an `async with` block."""

    def __init__(
        self,
        session: "Caller",
        choice: Choice,
        test: Test | None = None,
        *,
        decompress: bool = True,
    ) -> None:
        """`test` is applied to messages that the selection accepts. Without `decompress` bodies are
        as stored.
        """
        self._choice = choice
        self._decompress = decompress
        self._reader = Reader(session, choice, decompress=decompress)
        self._consumer = PullConsumer(session)
        tests = [item for item in (choice.test(), test) if item is not None]
        self._takes: Test = lambda message: all(item(message) for item in tests)
        self._news: asyncio.Queue[FollowedMessages] = asyncio.Queue(64)
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: set[MessageQueue] = set()

    async def __aenter__(self) -> "Follower":
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def start(self, last: int = 0) -> list[FollowedMessages]:
        """Start following; returns the last existing messages, and a line for each failing queue.

        Raises NotFound and MQError if no queue can be read.
        """
        spans, failures = await self._reader.spans()
        found = await asyncio.gather(*(self._last(span, last) for span in spans)) if last else []
        messages = _in_order([message for part in found for message in part])[-last:]
        for span in spans:
            # With a start time the span itself must still be read; otherwise only messages after
            # it.
            offset = span.next if self._choice.begin is not None else span.end
            self._follow(span.queue, offset)
        self._keep(self._look_again())
        return [FollowedMessages([], failure) for failure in failures] + (
            [FollowedMessages(messages)] if messages else []
        )

    async def news(self, first: Iterable[FollowedMessages] = ()) -> AsyncIterator[FollowedMessages]:
        """Yield `first`, then new messages as they arrive; those that arrived meanwhile are
        combined.
        """
        for item in first:
            yield item
        while True:
            together = [await self._news.get()]
            while not self._news.empty():
                together.append(self._news.get_nowait())
            for item in together:
                if item.failure is not None:
                    yield item
            messages = [message for item in together for message in item.messages]
            if messages:
                yield FollowedMessages(_in_order(messages))

    async def _last(self, span: Span, count: int) -> "list[StoredMessage]":
        """Return the last `count` matching messages, searching backwards in growing steps."""
        low, high, width = span.next, span.end, max(count, 32)
        found: deque[StoredMessage] = deque()
        while high > low and len(found) < count and span.end - high < MOST_LOOKED_BACK:
            start = max(low, high - width)
            part = Span(span.queue, start, high, high)
            earlier: deque[StoredMessage] = deque(maxlen=count - len(found))
            async for messages, _ in self._reader.batches(part):
                earlier.extend(filter(self._takes, messages))
            found.extendleft(reversed(earlier))
            high, width = start, width * 4
        return list(found)

    def _follow(self, queue: MessageQueue, offset: int) -> None:
        self._known.add(queue)
        self._keep(self._pull(queue, offset))

    async def _pull(self, queue: MessageQueue, offset: int) -> None:
        expression, kind = self._choice.expression
        failing = False
        while True:
            try:
                result = await self._consumer.pull(
                    queue,
                    offset,
                    expression,
                    wait=WAIT_SECONDS,
                    expression_type=kind,
                    decompress=self._decompress,
                )
            except MQError as error:
                if not failing:  # once per failure
                    where = f"{queue.broker_name}:{queue.queue_id}"
                    await self._news.put(FollowedMessages([], f"{where}: {error}"))
                failing = True
                await asyncio.sleep(RETRY_SECONDS)
                continue
            failing = False
            messages = [message for message in result.messages if self._takes(message)]
            if messages:
                await self._news.put(FollowedMessages(messages))
            offset = result.next_offset

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                queues = await self._reader.queues()
            except MQError:
                continue  # known queues are still followed
            for queue in set(queues) - self._known:
                self._follow(queue, 0)

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.ensure_future(coroutine))


def _in_order(messages: "list[StoredMessage]") -> "list[StoredMessage]":
    return sorted(messages, key=lambda message: message.store_timestamp)
