"""Waiters: pops and notifications that wait for a message.

All that wait for a topic and group are one line, and the line hangs on every queue of the topic
and of its retries. A message that arrives wakes it in the same turn of the loop: those that wait
are asked in their order, until nothing is left to give.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filter.kept import keep_filter, release_filter
from mq.daemons.broker.pop.receipt import retry_topic
from mq.daemons.broker.pop.request import PopRequest
from mq.daemons.broker.pop.taking import Pops
from mq.daemons.broker.reading.long_polling import COST, LONGEST_HOLD, size_of_texts
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.tables.topics import Topics
from mq.daemons.channel import Channel
from mq.protocol.command import Command

# Of one connection, as with pulls; beyond it the peer is broken or hostile.
MOST_OF_A_CHANNEL = 20_000

_HELD = "held pops"  # the attribute of a channel, and what it makes us keep


class HeldPop:
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
        self.line: _Line | None = None
        self.timer: asyncio.TimerHandle | None = None

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


class _Line:
    """Those that wait for a topic and group."""

    def __init__(self, waiters: "Waiters", group: str, topic: str) -> None:
        self._waiters = waiters
        self.group = group
        self.topic = topic
        self.held: dict[HeldPop, None] = {}
        self.queues: dict[ConsumeQueue, None] = {}
        self.unwoken: set[Channel] = set()  # woken again when these are not stalled any more

    def wake(self) -> None:
        """One of the queues has got messages."""
        self._waiters.wake_group(self.group, self.topic)

    def hang(self, queues: dict[ConsumeQueue, None]) -> None:
        """Be woken by these queues, and no others."""
        for queue in self.queues:
            if queue not in queues:
                queue.waiting.pop(self, None)
        for queue in queues:
            queue.waiting.setdefault(self, None)
        self.queues = queues

    def remove(self, held: HeldPop) -> None:
        self.held.pop(held, None)
        self.unwoken.discard(held.channel)
        if not self.held:
            self.hang({})
            self._waiters.forget(self)


class Waiters:
    """All that wait."""

    def __init__(self, pops: Pops, topics: Topics, settings: BrokerSettings) -> None:
        self._pops = pops
        self._settings = settings
        self._lines: dict[tuple[str, str], _Line] = {}
        topics.on_change.append(self._topic_changed)

    def waiting(self, group: str, topic: str, queue_id: int) -> int:
        """How many pops wait for a queue, or for any."""
        line = self._lines.get((group, topic))
        return 0 if line is None else sum(h.request.queue_id == queue_id for h in line.held)

    def add(self, held: HeldPop, seconds: float) -> bool:
        """Let a request wait; False if too many do."""
        request = held.request
        of_channel = held.channel.attributes.get(_HELD)
        if of_channel is None:
            of_channel = held.channel.attributes[_HELD] = {}
            held.channel.on_close.append(_drop_all)
        if len(of_channel) >= MOST_OF_A_CHANNEL:
            return False
        most = self._settings.broker.pop_polling_size
        if self.waiting(request.group, request.topic, request.queue_id) >= most:
            return False
        key = (request.group, request.topic)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(self, *key)
        of_channel[held] = None
        held.channel.keep(_HELD, held.channel.kept.get(_HELD, 0) + held.cost)
        keep_filter(held.channel, request.expression)
        line.held[held] = None
        held.line = line
        line.hang(line.queues | dict.fromkeys(self._pops.queues(request)))
        loop = asyncio.get_running_loop()
        held.timer = loop.call_later(min(seconds, LONGEST_HOLD), held.over)
        return True

    def wake_group(self, group: str, topic: str) -> None:
        """Something may be there for those that wait."""
        line = self._lines.get((group, topic))
        if line is None:
            return
        for held in list(line.held):
            if held.channel.closed or held not in line.held or held.is_served:
                continue
            if held.channel.stalled:
                self._wake_again(line, held.channel)
                continue
            held.is_served = True
            try:
                if held.serve():
                    held.drop()
            finally:
                held.is_served = False
            if not self._pops.rest(held.request):
                break

    def _wake_again(self, line: _Line, channel: Channel) -> None:
        """Wake once more when a peer that does not read now has taken what it got."""
        if channel not in line.unwoken:
            line.unwoken.add(channel)
            channel.postpone(partial(self._wake_late, line, channel))

    def _wake_late(self, line: _Line, channel: Channel) -> None:
        line.unwoken.discard(channel)
        self.wake_group(line.group, line.topic)

    def wake_when_free(self, request: PopRequest) -> None:
        """An ordered pop gets what is out once its invisible time is over."""
        free_at = self._pops.free_at(request) if request.is_ordered else 0
        if free_at:
            self.wake_at(request.group, request.topic, free_at)

    def wake_at(self, group: str, topic: str, moment: int) -> None:
        """Wake later, at a time in ms: a queue is free again then."""
        if (group, topic) in self._lines:
            seconds = max(moment / 1000 - clock.time(), 0) + 0.001
            asyncio.get_running_loop().call_later(seconds, self.wake_group, group, topic)

    def forget(self, line: _Line) -> None:
        self._lines.pop((line.group, line.topic), None)

    def end_group(self, group: str) -> None:
        """A group was deleted: those that wait for it are answered as at the end of their wait."""
        for line in [line for line in self._lines.values() if line.group == group]:
            for held in list(line.held):
                held.over()

    def drop_all(self) -> None:
        """The broker stops: nothing is answered any more."""
        for line in list(self._lines.values()):
            for held in list(line.held):
                held.drop()

    def _queues_of(self, line: _Line) -> dict[ConsumeQueue, None]:
        return dict.fromkeys(q for held in line.held for q in self._pops.queues(held.request))

    def _topic_changed(self, name: str) -> None:
        """A topic has come, or has other queues: mostly the retry topic with the first retry."""
        for line in list(self._lines.values()):
            if name in (
                "",
                line.topic,
                retry_topic(line.group, line.topic),
            ):
                line.hang(self._queues_of(line))


def _drop_all(channel: Channel) -> None:
    for held in list(channel.attributes[_HELD]):
        held.drop()
