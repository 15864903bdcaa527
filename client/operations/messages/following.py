"""Following a topic: its messages as they come, of all queues, and the last ones before.

Every queue is pulled by a task of its own that the broker lets wait until a message comes. Nothing
is committed, no heartbeat is sent, and the group is the tools' own, so no trace of it is left.
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
from mq.client.pull_consumer import PullConsumer
from mq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from mq.client.caller import Caller
    from mq.protocol.message import StoredMessage

WAIT_SECONDS = 15.0  # how long a broker may hold a pull
RETRY_SECONDS = 1.0
LOOK_SECONDS = 30.0  # between looks for queues that were added
MOST_LOOKED_BACK = 100_000  # messages of a queue, in search of the last ones that match

Test = Callable[["StoredMessage"], bool]


class FollowedMessages(NamedTuple):
    """Messages in the order of their storing, or a line that says what went wrong."""

    messages: "list[StoredMessage]"
    failure: str | None = None


def body_matches(pattern: "re.Pattern[bytes]") -> Test:
    """A test for bodies in which the pattern is found. A body that is compressed is decompressed
    for as long as it is looked at."""
    return lambda message: pattern.search(unpacked(message).body) is not None


class Follower:
    """The messages of a topic from some point on, for ever. Use it in an `async with` block."""

    def __init__(
        self,
        session: "Caller",
        choice: Choice,
        test: Test | None = None,
        *,
        decompress: bool = True,
    ) -> None:
        """`test` is asked about what the choice has let through. Without `decompress` bodies are as
        they are stored."""
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
        """Begin to follow; returns the last messages there were, and queues that fail.

        Raises NotFound and MQError where no queue can be read.
        """
        spans, failures = await self._reader.spans()
        found = await asyncio.gather(*(self._last(span, last) for span in spans)) if last else []
        messages = _in_order([message for part in found for message in part])[-last:]
        for span in spans:
            # From a time on the span itself is still to be read; else what comes after it.
            offset = span.next if self._choice.begin is not None else span.end
            self._follow(span.queue, offset)
        self._keep(self._look_again())
        return [FollowedMessages([], failure) for failure in failures] + (
            [FollowedMessages(messages)] if messages else []
        )

    async def news(self, first: Iterable[FollowedMessages] = ()) -> AsyncIterator[FollowedMessages]:
        """`first`, then what comes, as soon as it comes; what came meanwhile all at once."""
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
        """The last `count` messages that match, looked for in wider and wider steps back."""
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
                if not failing:  # once for each time that it goes away
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
                continue  # the queues that are known go on
            for queue in set(queues) - self._known:
                self._follow(queue, 0)

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.ensure_future(coroutine))


def _in_order(messages: "list[StoredMessage]") -> "list[StoredMessage]":
    return sorted(messages, key=lambda message: message.store_timestamp)
