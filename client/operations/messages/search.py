"""Searches a topic for messages, newest first, in time order across all queues, without duplicates.

Queues are read backwards in windows; each window is pulled forwards, as brokers return messages.
The frontier of a queue is the latest possible time of its unread messages. A message is next when
no queue has a later frontier; so only queues with a frontier later than the last wanted message
must be read further, several at once. If times in a queue jump back, they count as those of their
neighbours: the order within a queue is preserved, whatever the clocks did.

A search ends when it has found enough, when everything is read, or when its budget is used up. Then
a `Position` tells where the next one continues: for each queue the offset before which nothing was
returned. It is a text for use in a URL, and is validated like any user input.
"""

import asyncio
import heapq
import re
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from mq.client.errors import MQError
from mq.client.machine import clock
from mq.client.operations.errors import InvalidRequest
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.reading import Reader, Span
from mq.client.pull.pull_consumer import PullConsumer
from mq.protocol.message import restore_body

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller
    from mq.protocol.message import StoredMessage

MOST_QUEUES = 1024  # a position with more queues would not fit into a URL
# The limit of a decompressed body. A pull returns 32 messages: a single one must not fill the
# memory, nor a topic of such messages take a search far beyond its budget of bytes.
MOST_DECOMPRESSED = 16 * 1024 * 1024
MOST_WANTED = 500  # of one search: a page
_FIRST_WINDOW = 16
_LARGEST_WINDOW = 2048
_LARGEST_FILTERED = 16_384  # if the broker filters the messages
_WINDOW_BYTES = 4 * 1024 * 1024
_AT_ONCE = 4  # queues

Test = Callable[["StoredMessage"], bool]


@dataclass(frozen=True)
class Budget:
    """The limits of one search: messages examined, bytes of bodies, seconds."""

    messages: int = 100_000
    bytes: int = 256 * 1024 * 1024
    seconds: float = 5.0


@dataclass(frozen=True)
class SearchQuery:
    """The selection and number of messages. `text` is searched in bodies, as UTF-8; `properties`
    are names and values that a message must have.
    """

    choice: Choice
    text: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    count: int = 50

    def test(self) -> Test | None:
        """Return the test that the search applies in addition to that of `Reader`."""
        tests: list[Test] = []
        if self.properties:
            tests.append(_has_properties(self.properties))
        if self.text:
            needle = self.text.encode("utf-8", "surrogatepass")
            tests.append(lambda message: needle in message.body)
        if not tests:
            return None
        return lambda message: all(test(message) for test in tests)


def _has_properties(wanted: tuple[tuple[str, str], ...]) -> Test:
    return lambda message: all(message.properties.get(name) == value for name, value in wanted)


@dataclass(frozen=True)
class Position:
    """Where a search continues: the offset before which to read, by broker name and queue, and the
    number of messages examined so far.
    """

    ends: dict[tuple[str, int], int]
    looked: int = 0

    def __str__(self) -> str:
        brokers: dict[str, list[str]] = {}
        for (broker, queue), offset in sorted(self.ends.items()):
            brokers.setdefault(broker, []).append(f"{queue}.{offset}")
        parts = [f"{broker}:{'.'.join(pairs)}" for broker, pairs in brokers.items()]
        return ";".join([str(self.looked), *parts])

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Parse a position. Raises InvalidRequest."""
        looked, *parts = text.split(";")
        ends: dict[tuple[str, int], int] = {}
        for part in parts:
            broker, _, numbers = part.rpartition(":")
            found = numbers.split(".")
            if not broker or len(found) % 2 or not all(map(_NUMBER, found)):
                raise InvalidRequest("this is not a position of a search")
            for queue, offset in zip(found[::2], found[1::2], strict=True):
                ends[broker, int(queue)] = int(offset)
        if not _NUMBER(looked) or len(ends) > MOST_QUEUES:
            raise InvalidRequest("this is not a position of a search")
        return cls(ends, int(looked))


_NUMBER = re.compile(r"[0-9]{1,18}").fullmatch


class Hit(NamedTuple):
    """A message that was found. `size` is that of its body, which may have been truncated."""

    message: "StoredMessage"
    size: int


@dataclass
class SearchResult:
    """The result of a search, newest first.

    `looked` and `left` count the messages that were, and were not, examined since the first page.
    `after` is where the next search continues, None at the end. `stopped` is the part of the budget
    that was used up: "messages", "bytes", "seconds", or empty. `failures` has a line for each queue
    that could not be read completely.
    """

    hits: list[Hit] = field(default_factory=list)
    looked: int = 0
    left: int = 0
    after: Position | None = None
    stopped: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def messages(self) -> "list[StoredMessage]":
        return [hit.message for hit in self.hits]


class _Lane:
    """A queue that is read backwards: messages from `low` up to, not including, `high` are left."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.low, self.high = span.next, span.end
        self.frontier = inf
        self.window = _FIRST_WINDOW
        self.waiting: list[tuple[float, Hit]] = []  # found and not returned; the newest last
        self.seen = False  # whether any window was read
        self.failure: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.span.queue.broker_name, self.span.queue.queue_id

    @property
    def is_open(self) -> bool:
        return self.high > self.low and self.failure is None

    @property
    def resume(self) -> int:
        """The offset before which nothing was returned."""
        if self.waiting:
            return self.waiting[-1][1].message.queue_offset + 1
        return self.high


class Search:
    """One search, with its budget."""

    def __init__(
        self,
        session: "Caller",
        query: SearchQuery,
        budget: Budget | None = None,
        *,
        keep: int | None = None,
    ) -> None:
        """Bodies are truncated to `keep` bytes, or kept completely. Raises InvalidRequest."""
        if not 0 < query.count <= MOST_WANTED:
            raise InvalidRequest(f"a page of {query.count} messages: 1 to {MOST_WANTED} it is")
        self._query = query
        self._budget = budget or Budget()
        self._keep = keep
        self._reader = Reader(session, query.choice, decompress=False)
        self._consumer = PullConsumer(session)
        self._test = query.test()
        choice = query.choice
        self._filtered = (
            choice.sql is not None or choice.key is not None or choice.tags not in (None, "", "*")
        )
        self._looked = self._bytes = 0
        self._deadline = inf

    async def run(self, position: Position | None = None) -> SearchResult:
        """Search from the newest message, or from a position.

        Raises NotFound if no queue is selected, and the error of the last broker if none answers.
        Messages that arrive during the search are not found.
        """
        self._deadline = clock.monotonic() + self._budget.seconds
        unread = self._chosen_of(position)
        spans, failures = await self._reader.spans([f"{name}:{queue}" for name, queue in unread])
        if len(spans) > MOST_QUEUES:
            raise InvalidRequest(
                f"topic {self._query.choice.topic} has {len(spans)} queues, of which {MOST_QUEUES}"
                " can be searched at once: choose a broker or a queue"
            )
        lanes = [_Lane(span) for span in spans]
        if position is not None:
            for lane in lanes:
                lane.high = max(lane.low, min(lane.high, unread.pop(lane.key, lane.low)))
        stopped = await self._read(lanes)
        found = self._give_out(lanes)
        found.failures = failures + [lane.failure for lane in lanes if lane.failure is not None]
        found.stopped = stopped
        found.left = sum(lane.resume - lane.low for lane in lanes)
        # Messages that were found and belong to the next page are examined again then: they do not
        # count.
        again = sum(lane.resume - lane.high for lane in lanes)
        found.looked = self._looked - again + (position.looked if position is not None else 0)
        ends = {lane.key: lane.resume for lane in lanes if lane.resume > lane.low}
        # Queues that could not be queried. Those that are gone may return while others are read,
        # but alone they are no reason to continue.
        if ends or any(f"{name}:{queue}" not in self._reader.gone for name, queue in unread):
            ends |= unread
        if ends:
            found.after = Position(ends, found.looked)
        return found

    def _chosen_of(self, position: Position | None) -> dict[tuple[str, int], int]:
        """Return the positions of the selected queues."""
        choice = self._query.choice
        return {
            (broker, queue): offset
            for (broker, queue), offset in (position.ends if position is not None else {}).items()
            if (not choice.brokers or broker in choice.brokers)
            and (not choice.queue_ids or queue in choice.queue_ids)
        }

    async def _read(self, lanes: list[_Lane]) -> str:
        """Read until enough is found; returns the part of the budget that was used up, or ""."""
        while True:
            open_lanes = [lane for lane in lanes if lane.is_open]
            threshold = self._threshold(lanes)
            needed = [lane for lane in open_lanes if lane.frontier > threshold]
            if not needed:
                return ""
            # The first window of each queue is not part of the budget: without it nothing could be
            # returned.
            chosen = [lane for lane in needed if not lane.seen][: 2 * _AT_ONCE]
            if not chosen:
                spent = self._spent()
                if spent:
                    return spent
                chosen = heapq.nlargest(_AT_ONCE, needed, key=lambda lane: lane.frontier)
            await _together([self._read_window(lane, len(chosen)) for lane in chosen])
            away = {lane.span.queue.broker_name: lane.failure for lane in lanes if lane.failure}
            for lane in lanes:  # the other queues of a failing broker would each wait for it
                name = lane.span.queue.broker_name
                if lane.is_open and name in away:
                    lane.failure = f"{lane.span.name}: not read, as its broker has just failed"

    def _threshold(self, lanes: list[_Lane]) -> float:
        """Return the time of the last wanted message, as far as it is known."""
        times = [time for lane in lanes for time, _ in lane.waiting]
        if len(times) < self._query.count:
            return -inf
        return heapq.nlargest(self._query.count, times)[-1]

    def _spent(self) -> str:
        if self._looked >= self._budget.messages:
            return "messages"
        if self._bytes >= self._budget.bytes:
            return "bytes"
        if clock.monotonic() >= self._deadline:
            return "seconds"
        return ""

    async def _read_window(self, lane: _Lane, beside: int) -> None:
        """Read the next window of a queue, and move its frontier back."""
        room = max(1, (self._budget.messages - self._looked) // beside)
        begin = max(lane.low, lane.high - min(lane.window, room))
        span = Span(lane.span.queue, begin, lane.high, lane.span.maximum)
        hits: list[Hit] = []
        oldest: float = lane.frontier
        size = 0
        try:
            async for messages, _ in self._reader.batches(span):
                for message in messages:
                    restore_body(message, MOST_DECOMPRESSED)
                    length = len(message.body)
                    size += length
                    wanted = self._test is None or self._test(message)
                    keep = self._keep if wanted else 0
                    # a batch of complete bodies would be too large
                    if keep is not None and length > keep:
                        message.body = message.body[:keep]
                    if wanted:
                        hits.append(Hit(message, length))
                if messages and oldest >= messages[0].store_timestamp:
                    oldest = messages[0].store_timestamp
            if self._filtered and begin > lane.low:
                oldest = min(oldest, await self._time_at(lane, begin))
        except MQError as error:
            lane.failure = f"{lane.span.name}: {error}"
            return
        lane.seen = True
        time = lane.frontier
        fresh = []
        for hit in reversed(hits):  # starting with the newest
            time = min(time, hit.message.store_timestamp)
            fresh.append((time, hit))
        lane.waiting[:0] = fresh[::-1]
        count = lane.high - begin
        self._looked += count
        self._bytes += size
        lane.high, lane.frontier = begin, oldest
        largest = _LARGEST_FILTERED if self._filtered else _LARGEST_WINDOW
        fits = _WINDOW_BYTES * count // size if size else largest
        lane.window = max(_FIRST_WINDOW, min(2 * lane.window, largest, fits))

    async def _time_at(self, lane: _Lane, offset: int) -> float:
        """Return the store time of the message at an offset: no message before it is newer."""
        result = await self._consumer.pull(lane.span.queue, offset, max_count=1, decompress=False)
        if result.messages and result.messages[0].queue_offset == offset:
            return result.messages[0].store_timestamp
        return lane.frontier

    def _give_out(self, lanes: list[_Lane]) -> SearchResult:
        """Return the newest messages, as long as no unread one can be newer."""
        border = max((lane.frontier for lane in lanes if lane.is_open), default=-inf)
        found = SearchResult()
        while len(found.hits) < self._query.count:
            lane = max(
                (lane for lane in lanes if lane.waiting),
                key=lambda lane: lane.waiting[-1][0],
                default=None,
            )
            if lane is None or lane.waiting[-1][0] < border:
                break
            found.hits.append(lane.waiting.pop()[1])
        return found


async def _together(reads: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await all reads; a cancellation cancels each of them."""
    tasks = [asyncio.ensure_future(read) for read in reads]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
