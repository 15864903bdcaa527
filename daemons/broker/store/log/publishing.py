"""Publishing: the steps after a batch is stored as the flush mode guarantees, or has failed.

Its messages become readable, its senders get replies, and suspended pulls are woken. Replies may
have to wait for slaves, and reading for the confirm offset.

`PutTimes` counts how long messages took from the turn in which they arrived to their replies.

It counts by batch, in whole milliseconds, over windows of a minute. The last complete minute is
shown, or the first one while it lasts (StoreStatsService.printTps).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable

from mq.client.machine import clock
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.log.batch import (
    Batch,
    ReadLimit,
    ReplicationGate,
    call,
    log_failure,
    refuse,
    send,
    wake,
)


class Publisher:
    """Publishes the batches of one store.

    ``on_published`` is called with every published batch, after its replies are sent. ``slaves``
    delays replies until slaves have the batch; None for no delay. ``bound`` hides messages from
    consumers that other brokers do not have yet; None to show everything.
    """

    def __init__(self) -> None:
        self.on_published: Callable[[Batch], None] = lambda batch: None
        self.slaves: ReplicationGate | None = None
        self.bound: ReadLimit | None = None
        self.messages = 0  # published since the start, and their bytes in the log
        self.size = 0
        self.last_timestamp = 0  # of the last published message

    def publish(self, batch: Batch) -> None:
        """Make a batch readable, and answer its senders, if nothing delays that."""
        self.last_timestamp = batch.timestamp
        self.messages += batch.messages
        self.size += batch.end - batch.start
        if self.bound is None or not self.bound.holds(batch):
            self.show(batch)
        elif self.slaves is None or not self.slaves.stored(batch):
            self.answer(batch, None)
        try:
            self.on_published(batch)
        except Exception:
            log_failure("a callback after a stored batch failed")

    def show(self, batch: Batch) -> None:
        """Make a stored batch readable, and answer its senders."""
        woken = []
        for queue, end in batch.touched.items():
            queue.puts += end - queue.readable
            queue.readable = end
            if queue.waiting:
                woken.append(queue)
        if self.slaves is None or not self.slaves.stored(batch):
            self.answer(batch, None)
        call(batch.callbacks, None)
        wake(woken)

    def fail(self, batch: Batch, refusal: StoreRefused) -> None:
        """Report to all waiters of a batch that it is not stored, or not known to be on the
        disk."""
        if self.slaves is None or not self.slaves.stored(batch, refusal):
            self.answer(batch, refusal)
        refuse(batch.prompt_replies, refusal)
        call(batch.callbacks, refusal)

    def answer(self, batch: Batch, refusal: StoreRefused | None) -> None:
        """Answer the senders of a batch, once."""
        replies, answers = batch.replies, batch.answers
        batch.replies, batch.answers = [], []
        if refusal is None:
            send(replies)
        else:
            refuse(replies, refusal)
        call(answers, refusal)


WINDOW_SECONDS = 60.0

# The steps of putMessageDistributeTime: Java's names, and the ms at which the next step starts.
_STEPS = (
    *(("<=0ms", 1), ("0~10ms", 10), ("10~50ms", 50), ("50~100ms", 100), ("100~200ms", 200)),
    *(("200~500ms", 500), ("500ms~1s", 1000), ("1~2s", 2000), ("2~3s", 3000), ("3~4s", 4000)),
    *(("4~5s", 5000), ("5~10s", 10_000)),
)
_NAMES = (*(name for name, _ in _STEPS), "10s~")
_ENDS = tuple(end - 1 for _, end in _STEPS)
# Longer times are rounded down to steps of this many ms, which limits the number of counters.
_COARSE_FROM, _COARSE = 1000, 100


class PutTimes:
    """Numbers of messages by the milliseconds that they took."""

    def __init__(self, clock: Callable[[], float] = clock.monotonic) -> None:
        self._clock = clock
        self._window: Counter[int] = Counter()
        self._last: Counter[int] | None = None  # None in the first minute
        self._window_end = clock() + WINDOW_SECONDS
        self.longest = 0  # ms, since the start

    def add(self, milliseconds: int, messages: int) -> None:
        """Count a batch."""
        if self._clock() >= self._window_end:
            self._turn()
        if milliseconds > _COARSE_FROM:
            milliseconds -= milliseconds % _COARSE
        elif milliseconds < 0:  # the clock of the machine was set back
            milliseconds = 0
        self._window[milliseconds] += messages
        if milliseconds > self.longest:
            self.longest = milliseconds

    def distribution(self) -> str:
        """The number of messages by steps of time, as Java prints them: "[<=0ms]:5 [0~10ms]:2 …
        "."""
        counts = [0] * len(_NAMES)
        for milliseconds, messages in self._shown().items():
            counts[bisect_left(_ENDS, milliseconds)] += messages
        return "".join(f"[{name}]:{count} " for name, count in zip(_NAMES, counts, strict=True))

    def percentile(self, share: float) -> float:
        """The milliseconds within which this share of the messages was stored; 0 without
        messages."""
        shown = self._shown()
        wanted = sum(shown.values()) * share
        passed = 0
        for milliseconds in sorted(shown):
            passed += shown[milliseconds]
            if passed >= wanted:
                return float(milliseconds)
        return 0.0

    def _shown(self) -> Counter[int]:
        if self._clock() >= self._window_end:
            self._turn()
        return self._window if self._last is None else self._last

    def _turn(self) -> None:
        idle = self._clock() >= self._window_end + WINDOW_SECONDS
        self._last = Counter() if idle else self._window
        self._window = Counter()
        self._window_end = self._clock() + WINDOW_SECONDS
