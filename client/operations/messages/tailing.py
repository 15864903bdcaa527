"""Shows a topic's messages as they arrive, to a reader that may be slower than they are.

A `Follower` waits for its reader, so a slow reader would lag more and more. A `Tail` accepts all
messages at once, keeps only the newest, and counts those that it drops.
"""

import asyncio
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from mq.client.machine import clock
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.following import FollowedMessages, Follower
from mq.client.operations.messages.search import MOST_DECOMPRESSED, Hit, SearchQuery
from mq.protocol.message import restore_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq.client.transport.caller import Caller
    from mq.protocol.message import StoredMessage

MOST_KEPT = 200  # messages between two calls of `look`
KEPT_BYTES = 1024  # of a body
MOST_FAILURES = 20  # lines between two calls of `look`
RATE_SECONDS = 5.0  # the interval of a rate: messages arrive in batches


@dataclass
class TailUpdate:
    """The messages since the last call, the newest of them, oldest first, and the failures.

    `matched` and `dropped` count all matching and dropped messages since the start. `rate` is
    matching messages per second over the last seconds.
    """

    hits: list[Hit] = field(default_factory=list)
    matched: int = 0
    dropped: int = 0
    rate: float = 0.0
    failures: list[str] = field(default_factory=list)


class Tail:
    """Follows a topic during an `async with` block. It joins no group and commits no offset; a
    broker that becomes unavailable is followed again when it returns.
    """

    def __init__(
        self,
        session: "Caller",
        choice: Choice,
        text: str = "",
        *,
        last: int = 0,
        most: int = MOST_KEPT,
    ) -> None:
        """`text` is searched in bodies. The first messages are the `last` existing ones; `most` are
        kept between two calls of `look`.
        """
        self._test = SearchQuery(choice, text).test()
        self._follower = Follower(session, choice, self._takes, decompress=False)
        self._last = last
        self._hits: deque[Hit] = deque(maxlen=most)
        self._sizes: dict[int, int] = {}  # full sizes of truncated bodies, by message, until seen
        self._failures: deque[str] = deque(maxlen=MOST_FAILURES)
        self._came = asyncio.Event()
        self._matched = self._dropped = 0
        # Times of calls, and the number of matches then: from RATE_SECONDS ago on.
        self._looks: deque[tuple[float, int]] = deque([(clock.monotonic(), 0)])
        self._parts = AsyncExitStack()
        self._task: asyncio.Task[None] | None = None

    def _takes(self, message: "StoredMessage") -> bool:
        """Test a message and truncate its body to the part that is shown: a pull of small records
        may expand to gigabytes.
        """
        restore_body(message, MOST_DECOMPRESSED)
        size = len(message.body)
        takes = self._test is None or self._test(message)
        if size > KEPT_BYTES:
            message.body = message.body[:KEPT_BYTES]
            if takes:
                self._sizes[id(message)] = size
        return takes

    async def __aenter__(self) -> Self:
        """Raises NotFound, and MQError if no queue can be read."""
        async with AsyncExitStack() as parts:
            await parts.enter_async_context(self._follower)
            first = await self._follower.start(self._last)
            shown = {id(message) for news in first for message in news.messages}
            self._sizes = {key: size for key, size in self._sizes.items() if key in shown}
            self._task = asyncio.ensure_future(self._take(first))
            self._parts = parts.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
        finally:  # even if it is cancelled again here
            await self._parts.aclose()

    async def look(self, seconds: float) -> TailUpdate:
        """Return the messages since the last call, at once if there are any, otherwise within
        `seconds`.

        Raises the error that ended the following, if any.
        """
        if self._task is not None and self._task.done():
            self._task.result()
        try:
            async with asyncio.timeout(seconds):
                await self._came.wait()
        except TimeoutError:
            pass
        self._came.clear()
        glimpse = TailUpdate(
            list(self._hits),
            self._matched,
            self._dropped,
            self._rate(),
            list(self._failures),
        )
        self._hits.clear()
        self._failures.clear()
        return glimpse

    def _rate(self) -> float:
        now = clock.monotonic()
        while len(self._looks) > 1 and self._looks[1][0] <= now - RATE_SECONDS:
            self._looks.popleft()
        since, before = self._looks[0]
        self._looks.append((now, self._matched))
        return (self._matched - before) / max(now - since, 1.0)

    async def _take(self, first: "Sequence[FollowedMessages]") -> None:
        async for news in self._follower.news(first):
            if news.failure is not None:
                self._failures.append(news.failure)
            for message in news.messages:
                size = self._sizes.pop(id(message), len(message.body))
                if len(self._hits) == self._hits.maxlen:
                    self._dropped += 1
                self._hits.append(Hit(message, size))
            self._matched += len(news.messages)
            self._came.set()
