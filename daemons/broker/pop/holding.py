"""Pops and notifications that wait for a message.

All that wait for a topic and group hang on one bell, and the bell hangs on every queue of the topic
and of its retries. A message that arrives rings it in the same turn of the loop: those that wait
are asked in their order, until nothing is left to give.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from mq.daemons.broker.filter.kept import keep_filter, release_filter
from mq.daemons.broker.long_polling import COST, LONGEST_HOLD, size_of_texts
from mq.daemons.broker.pop.receipt import retry_topic
from mq.daemons.broker.pop.taking import Pops
from mq.daemons.broker.pop.want import Want
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.topics import Topics
from mq.daemons.channel import Channel
from mq.protocol.command import Command

# Of one connection, as with pulls; beyond it the peer is broken or hostile.
MOST_OF_A_CHANNEL = 20_000

_HELD = "held pops"  # the attribute of a channel, and what it makes us keep


class Held:
    """A request that waits. ``serve`` tries to answer it, ``end`` does when the wait is over."""

    __slots__ = ("bell", "channel", "command", "cost", "end", "serve", "timer", "want")

    def __init__(
        self,
        command: Command,
        channel: Channel,
        want: Want,
        serve: Callable[[], bool],
        end: Callable[[], None],
    ) -> None:
        self.cost = COST + size_of_texts(command.fields.values())
        command.fields, command.body = {}, b""  # what is needed of them is in ``want``
        self.command = command
        self.channel = channel
        self.want = want
        self.serve = serve
        self.end = end
        self.bell: _Bell | None = None
        self.timer: asyncio.TimerHandle | None = None

    def drop(self) -> None:
        """Wait no more."""
        if self.timer is not None:
            self.timer.cancel()
        if self.bell is not None:
            self.bell.remove(self)
        if self.channel.attributes.get(_HELD, {}).pop(self, self) is None:
            kept = self.channel.kept
            self.channel.keep(_HELD, kept.get(_HELD, 0) - self.cost)
            release_filter(self.channel, self.want.expression)

    def over(self) -> None:
        self.drop()
        if not self.channel.closed:
            self.end()


class _Bell:
    """Those that wait for a topic and group."""

    def __init__(self, holds: "Holds", group: str, topic: str) -> None:
        self._holds = holds
        self.group = group
        self.topic = topic
        self.held: dict[Held, None] = {}
        self.queues: set[ConsumeQueue] = set()
        self.unheard: set[Channel] = set()  # it is rung again when these are not stalled any more

    def wake(self) -> None:
        """One of the queues has got messages."""
        self._holds.ring(self.group, self.topic)

    def hang(self, queues: set[ConsumeQueue]) -> None:
        """Be rung by these queues, and no others."""
        for queue in self.queues - queues:
            queue.waiting.pop(self, None)
        for queue in queues - self.queues:
            queue.waiting[self] = None
        self.queues = queues

    def remove(self, held: Held) -> None:
        self.held.pop(held, None)
        self.unheard.discard(held.channel)
        if not self.held:
            self.hang(set())
            self._holds.forget(self)


class Holds:
    """All that wait."""

    def __init__(self, pops: Pops, topics: Topics, most: Callable[[], int]) -> None:
        """``most`` gives how many may wait for one queue of a group."""
        self._pops = pops
        self._most = most
        self._bells: dict[tuple[str, str], _Bell] = {}
        topics.on_change.append(self._topic_changed)

    def waiting(self, group: str, topic: str, queue_id: int) -> int:
        """How many pops wait for a queue, or for any."""
        bell = self._bells.get((group, topic))
        return 0 if bell is None else sum(h.want.queue_id == queue_id for h in bell.held)

    def add(self, held: Held, seconds: float) -> bool:
        """Let a request wait; False if too many do."""
        want = held.want
        of_channel = held.channel.attributes.get(_HELD)
        if of_channel is None:
            of_channel = held.channel.attributes[_HELD] = {}
            held.channel.on_close.append(_drop_all)
        if len(of_channel) >= MOST_OF_A_CHANNEL:
            return False
        if self.waiting(want.group, want.topic, want.queue_id) >= self._most():
            return False
        key = (want.group, want.topic)
        bell = self._bells.get(key)
        if bell is None:
            bell = self._bells[key] = _Bell(self, *key)
        of_channel[held] = None
        held.channel.keep(_HELD, held.channel.kept.get(_HELD, 0) + held.cost)
        keep_filter(held.channel, want.expression)
        bell.held[held] = None
        held.bell = bell
        bell.hang(bell.queues.union(self._pops.queues(want)))
        loop = asyncio.get_running_loop()
        held.timer = loop.call_later(min(seconds, LONGEST_HOLD), held.over)
        return True

    def ring(self, group: str, topic: str) -> None:
        """Something may be there for those that wait."""
        bell = self._bells.get((group, topic))
        if bell is None:
            return
        for held in list(bell.held):
            if held.channel.closed or held not in bell.held:
                continue
            if held.channel.stalled:
                self._ring_again(bell, held.channel)
                continue
            if held.serve():
                held.drop()
            if not self._pops.rest(held.want):
                break

    def _ring_again(self, bell: _Bell, channel: Channel) -> None:
        """Ring once more when a peer that does not read now has taken what it got."""
        if channel not in bell.unheard:
            bell.unheard.add(channel)
            channel.postpone(partial(self._ring_late, bell, channel))

    def _ring_late(self, bell: _Bell, channel: Channel) -> None:
        bell.unheard.discard(channel)
        self.ring(bell.group, bell.topic)

    def ring_at(self, group: str, topic: str, moment: int) -> None:
        """Ring later, at a time in ms: a queue is free again then."""
        if (group, topic) in self._bells:
            seconds = max(moment / 1000 - time.time(), 0) + 0.001
            asyncio.get_running_loop().call_later(seconds, self.ring, group, topic)

    def forget(self, bell: _Bell) -> None:
        self._bells.pop((bell.group, bell.topic), None)

    def drop_all(self) -> None:
        """The broker stops: nothing is answered any more."""
        for bell in list(self._bells.values()):
            for held in list(bell.held):
                held.drop()

    def _queues_of(self, bell: _Bell) -> set[ConsumeQueue]:
        return {queue for held in bell.held for queue in self._pops.queues(held.want)}

    def _topic_changed(self, name: str) -> None:
        """A topic has come, or has other queues: mostly the retry topic with the first retry."""
        for bell in list(self._bells.values()):
            if name in ("", bell.topic, retry_topic(bell.group, bell.topic)):
                bell.hang(self._queues_of(bell))


def _drop_all(channel: Channel) -> None:
    for held in list(channel.attributes[_HELD]):
        held.drop()
