"""Lines of those that wait: pops and notifications of a group for a topic, in their order.

A line hangs on every queue that one of them waits for, and knows what kinds of requests are in it:
a message in one queue is nothing to those that wait for another.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

from mq.daemons.broker.filter.waiting_cost import keep_filter, release_filter
from mq.daemons.broker.pop.request import ALL_QUEUES, PopRequest
from mq.daemons.broker.reading.long_polling import COST, size_of_texts
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.channel import Channel
from mq.protocol.command import Command

# Of one connection, as with pulls; beyond it the peer is broken or hostile.
MOST_OF_A_CHANNEL = 20_000

_HELD = "held pops"  # the attribute of a channel, and what it makes us keep


class SuspendedPop:
    """A request that waits. ``serve`` tries to answer it, ``end`` does when the wait is over."""

    __slots__ = (
        "channel",
        "command",
        "cost",
        "end",
        "is_served",
        "line",
        "request",
        "serve",
        "timer",
    )

    def __init__(
        self,
        command: Command,
        channel: Channel,
        request: PopRequest,
        serve: Callable[[], bool],
        end: Callable[[], None],
    ) -> None:
        self.cost = COST + size_of_texts(command.fields.values())
        # What is needed of these is in ``request``.
        command.fields, command.body, command.remark = {}, b"", None
        self.command = command
        self.channel = channel
        self.request = request
        self.serve = serve
        self.end = end
        self.is_served = False  # just now: the check point that it puts may publish what wakes it
        self.line: WaitQueue | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def kind(self) -> "Kind":
        return self.request.queue_id, self.request.is_ordered

    def keep(self) -> bool:
        """Count it for its connection; False if that has too many."""
        channel = self.channel
        held = channel.attributes.get(_HELD)
        if held is None:
            held = channel.attributes[_HELD] = {}
            channel.on_close.append(_drop_all)
        if len(held) >= MOST_OF_A_CHANNEL:
            return False
        held[self] = None
        channel.keep(_HELD, channel.kept.get(_HELD, 0) + self.cost)
        keep_filter(channel, self.request.expression)
        return True

    def drop(self) -> None:
        """Wait no more."""
        if self.timer is not None:
            self.timer.cancel()
        if self.line is not None:
            self.line.remove(self)
        if self.channel.attributes.get(_HELD, {}).pop(self, self) is None:
            kept = self.channel.kept
            self.channel.keep(_HELD, kept.get(_HELD, 0) - self.cost)
            release_filter(self.channel, self.request.expression)

    def over(self) -> None:
        self.drop()
        if not self.channel.closed:
            self.end()


# Queue id, and whether in order: those of a kind wait for the same queues.
Kind = tuple[int, bool]


class WaitQueue:
    """Those that wait for a topic and group."""

    def __init__(
        self,
        group: str,
        topic: str,
        ask: Callable[["WaitQueue", ConsumeQueue | None], None],
        on_empty: Callable[["WaitQueue"], None],
    ) -> None:
        """``ask`` gets a queue that has got messages, or None for any; ``on_empty`` is called when
        nobody waits any more."""
        self._ask = ask
        self._on_empty = on_empty
        self.group = group
        self.topic = topic
        self.held: dict[SuspendedPop, None] = {}
        self.kinds: Counter[Kind] = Counter()  # those that somebody is of
        self.timer: asyncio.TimerHandle | None = None  # for what need not wait for a message
        self.queues: dict[ConsumeQueue, _QueueWaiter] = {}
        self.unwoken: set[Channel] = set()  # woken again when these are not stalled any more

    def wake(self, queue: ConsumeQueue | None = None) -> None:
        """One of the queues has got messages; None for any of them."""
        self._ask(self, queue)

    def hang(self, queues: Iterable[ConsumeQueue]) -> None:
        """Be woken by these queues, and no others."""
        before, self.queues = self.queues, {}
        for queue in queues:
            hook = self.queues[queue] = (
                before.pop(queue) if queue in before else _QueueWaiter(self, queue)
            )
            queue.waiting.setdefault(hook, None)
        for queue, hook in before.items():
            queue.waiting.pop(hook, None)

    def strangers_to(self, queue: ConsumeQueue) -> set[Kind]:
        """The kinds that get nothing out of one of the queues."""
        if queue.topic != self.topic:
            return {kind for kind in self.kinds if kind[1]}
        return {kind for kind in self.kinds if kind[0] not in (ALL_QUEUES, queue.queue_id)}

    def add(self, held: SuspendedPop) -> None:
        self.held[held] = None
        self.kinds[held.kind] += 1
        held.line = self

    def remove(self, held: SuspendedPop) -> None:
        if held in self.held:
            del self.held[held]
            self.kinds[held.kind] -= 1
            if not self.kinds[held.kind]:
                del self.kinds[held.kind]
        self.unwoken.discard(held.channel)
        if not self.held:
            self.hang([])
            self._stop_timer()
            self._on_empty(self)

    def wake_in(self, seconds: float) -> None:
        """Wake after so many seconds, unless that is done before."""
        loop = asyncio.get_running_loop()
        if self.timer is None or loop.time() + seconds < self.timer.when():
            self._stop_timer()
            self.timer = loop.call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self.timer = None
        self.wake()

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _QueueWaiter:
    """A line on one of its queues."""

    __slots__ = ("_line", "_queue")

    def __init__(self, line: WaitQueue, queue: ConsumeQueue) -> None:
        self._line = line
        self._queue = queue

    def wake(self) -> None:
        self._line.wake(self._queue)


def _drop_all(channel: Channel) -> None:
    for held in list(channel.attributes[_HELD]):
        held.drop()
