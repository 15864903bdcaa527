"""Wait queues: suspended pops and notifications of a group for a topic, in order of arrival.

A wait queue is registered with every consume queue that one of its requests waits for, and knows
which kinds of requests it has: a message in one queue is of no use to requests that wait for
another.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

from mq.daemons.broker.filters.waiting_cost import keep_filter, release_filter
from mq.daemons.broker.pop.request import ALL_QUEUES, PopRequest
from mq.daemons.broker.pull.long_polling import COST, size_of_texts
from mq.daemons.broker.store import ConsumeQueue
from mq.daemons.channel import Channel
from mq.protocol.command import Command

# Per connection, as with pulls; beyond it the peer is broken or hostile.
MAX_OF_A_CHANNEL = 20_000

_HELD = "held pops"  # key of a channel's attributes and of its kept memory


class SuspendedPop:
    """A suspended request. ``serve`` tries to answer it; ``end`` answers it when the wait is
    over."""

    __slots__ = (
        "channel",
        "command",
        "cost",
        "end",
        "is_served",
        "request",
        "serve",
        "timer",
        "wait_queue",
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
        # ``request`` has what is needed of these.
        command.fields, command.body, command.remark = {}, b"", None
        self.command = command
        self.channel = channel
        self.request = request
        self.serve = serve
        self.end = end
        # being served: the check point that it puts may publish a message that wakes it
        self.is_served = False
        self.wait_queue: WaitQueue | None = None
        self.timer: asyncio.TimerHandle | None = None

    @property
    def kind(self) -> "Kind":
        return self.request.queue_id, self.request.is_ordered

    def keep(self) -> bool:
        """Count the request for its connection; False if the connection has too many."""
        channel = self.channel
        held = channel.attributes.get(_HELD)
        if held is None:
            held = channel.attributes[_HELD] = {}
            channel.on_close.append(_drop_all)
        if len(held) >= MAX_OF_A_CHANNEL:
            return False
        held[self] = None
        channel.keep(_HELD, channel.kept.get(_HELD, 0) + self.cost)
        keep_filter(channel, self.request.expression)
        return True

    def drop(self) -> None:
        """Stop waiting."""
        if self.timer is not None:
            self.timer.cancel()
        if self.wait_queue is not None:
            self.wait_queue.remove(self)
        if self.channel.attributes.get(_HELD, {}).pop(self, self) is None:
            kept = self.channel.kept
            self.channel.keep(_HELD, kept.get(_HELD, 0) - self.cost)
            release_filter(self.channel, self.request.expression)

    def over(self) -> None:
        self.drop()
        if not self.channel.closed:
            self.end()


# Queue id, and whether ordered: requests of one kind wait for the same queues.
Kind = tuple[int, bool]


class WaitQueue:
    """The suspended requests of a topic and group."""

    def __init__(
        self,
        group: str,
        topic: str,
        serve: Callable[["WaitQueue", ConsumeQueue | None], None],
        on_empty: Callable[["WaitQueue"], None],
    ) -> None:
        """``serve`` gets a queue with new messages, or None for any; ``on_empty`` is called when
        the last request is removed.
        """
        self._serve = serve
        self._on_empty = on_empty
        self.group = group
        self.topic = topic
        self.held: dict[SuspendedPop, None] = {}
        self.kinds: Counter[Kind] = Counter()  # the number of requests of each kind
        # for requests that need not wait for a message
        self.timer: asyncio.TimerHandle | None = None
        self.queues: dict[ConsumeQueue, _QueueWaiter] = {}
        # channels that are stalled: woken when they are not any more
        self.unwoken: set[Channel] = set()

    def wake(self, queue: ConsumeQueue | None = None) -> None:
        """One of the queues has new messages; None for any of them."""
        self._serve(self, queue)

    def watch(self, queues: Iterable[ConsumeQueue]) -> None:
        """Be woken by these queues only."""
        before, self.queues = self.queues, {}
        for queue in queues:
            hook = self.queues[queue] = (
                before.pop(queue) if queue in before else _QueueWaiter(self, queue)
            )
            queue.waiting.setdefault(hook, None)
        for queue, hook in before.items():
            queue.waiting.pop(hook, None)

    def kinds_without(self, queue: ConsumeQueue) -> set[Kind]:
        """The kinds that get nothing from one of the queues."""
        if queue.topic != self.topic:
            return {kind for kind in self.kinds if kind[1]}
        return {kind for kind in self.kinds if kind[0] not in (ALL_QUEUES, queue.queue_id)}

    def add(self, held: SuspendedPop) -> None:
        self.held[held] = None
        self.kinds[held.kind] += 1
        held.wait_queue = self

    def remove(self, held: SuspendedPop) -> None:
        if held in self.held:
            del self.held[held]
            self.kinds[held.kind] -= 1
            if not self.kinds[held.kind]:
                del self.kinds[held.kind]
        self.unwoken.discard(held.channel)
        if not self.held:
            self.watch([])
            self._stop_timer()
            self._on_empty(self)

    def wake_in(self, seconds: float) -> None:
        """Wake after some seconds, unless an earlier wake is scheduled."""
        loop = asyncio.get_running_loop()
        if self.timer is None or loop.time() + seconds < self.timer.when():
            self._stop_timer()
            self.timer = loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        self.timer = None
        self.wake()

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _QueueWaiter:
    """Registers a wait queue with one of its consume queues."""

    __slots__ = ("_queue", "_wait_queue")

    def __init__(self, wait_queue: WaitQueue, queue: ConsumeQueue) -> None:
        self._wait_queue = wait_queue
        self._queue = queue

    def wake(self) -> None:
        self._wait_queue.wake(self._queue)


def _drop_all(channel: Channel) -> None:
    for held in list(channel.attributes[_HELD]):
        held.drop()
