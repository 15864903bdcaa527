"""Waiters: pops and notifications that wait for a message.

All that wait for a topic and group are one line, and the line hangs on every queue of the topic
and of its retries. A message that arrives wakes it in the same turn of the loop: those that wait
are asked in their order, until nothing is left to give to any of them. A line is woken once more
when something that is out in order may come again, and where a pop has left something behind.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from itertools import chain

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.pop.popper import Popper
from mq.daemons.broker.pop.receipt import retry_topic
from mq.daemons.broker.pop.request import PopRequest
from mq.daemons.broker.pop.wait_queue import Kind, SuspendedPop, WaitQueue
from mq.daemons.broker.reading.long_polling import LONGEST_HOLD
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.tables.topics import Topics
from mq.daemons.channel import Channel
from mq.daemons.time_slices import STEP_SECONDS

log = logging.getLogger(__name__)

# s until those are asked again for whom there is more: the last look went over many messages that
# are not theirs, or found no time for a check point.
_SOON = 0.1
# Each such look takes up to some ms of the loop, and there may be very many lines: after
# STEP_SECONDS of that, others have so many times what it took.
_REST = 4


class Waiters:
    """All that wait."""

    def __init__(self, pops: Popper, topics: Topics, settings: BrokerSettings) -> None:
        self._pops = pops
        self._settings = settings
        self._lines: dict[tuple[str, str], WaitQueue] = {}
        # Those of lines for whom a look has left something behind.
        self._behind: dict[tuple[WaitQueue, Kind], None] = {}
        self._timer: asyncio.TimerHandle | None = None  # for them
        topics.on_change.append(self._topic_changed)

    def waiting(self, group: str, topic: str, queue_id: int) -> int:
        """How many pops wait for a queue, or for any."""
        line = self._lines.get((group, topic))
        return 0 if line is None else line.kinds[queue_id, False] + line.kinds[queue_id, True]

    def add(self, held: SuspendedPop, seconds: float) -> bool:
        """Let a request wait; False if too many do."""
        request, began = held.request, clock.milliseconds()
        most = self._settings.broker.pop_polling_size
        if self.waiting(request.group, request.topic, request.queue_id) >= most:
            return False
        if not held.keep():
            return False
        key = (request.group, request.topic)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = WaitQueue(*key, self._ask, self._forget)
        line.add(held)
        queues = dict.fromkeys(self._pops.queues(request))
        if not queues.keys() <= line.queues.keys():
            line.hang({**line.queues, **queues})
        loop = asyncio.get_running_loop()
        held.timer = loop.call_later(min(seconds, LONGEST_HOLD), held.over)
        self._wake_later(line, [held.kind] if self._has_more(request) else (), began)
        return True

    def wake_group(self, group: str, topic: str) -> None:
        """Something may be there for those that wait."""
        line = self._lines.get((group, topic))
        if line is not None:
            self._ask_all(line, set())

    def wake_for_rest(self, group: str, topic: str) -> None:
        """One of those that wait has left something for others."""
        line = self._lines.get((group, topic))
        if line is not None:
            line.wake()

    def wake_group_soon(self, group: str, topic: str) -> None:
        """What somebody had taken has been put back: those that wait for it look again."""
        line = self._lines.get((group, topic))
        if line is not None:
            self._wake_later(line, line.kinds, clock.milliseconds())

    def _ask(self, line: WaitQueue, queue: ConsumeQueue | None) -> None:
        """Ask those of a line that get something out of a queue; None for all of them.

        But for kinds that are asked again soon: each of very many messages, and lines, would have
        them look at what is not for them for some ms.
        """
        done = set() if queue is None else line.strangers_to(queue)
        if self._behind:
            done |= {kind for kind in line.kinds if (line, kind) in self._behind}
        self._ask_all(line, done)

    def _ask_all(self, line: WaitQueue, done: set[Kind]) -> None:
        """Ask those of a line, but for kinds for whom there is nothing, or not in this turn."""
        # Those whose queues are out, with the attempts that are given that again.
        blocked: dict[Kind, set[str]] = {}
        more: set[Kind] = set()
        began, spent = clock.milliseconds(), 0.0  # seconds, in vain
        for held in list(line.held):
            if spent > STEP_SECONDS:  # each of very many kinds may look at much that is not for it
                more |= line.kinds.keys() - done
                break
            if len(done) >= len(line.kinds) and done.issuperset(line.kinds):
                break
            if held.kind in done or held not in line.held or held.is_served:
                continue
            if held.channel.closed:
                continue
            attempts = blocked.get(held.kind)
            if attempts is not None and held.request.attempt_id not in attempts:
                continue
            if held.channel.stalled:
                self._wake_again(line, held.channel)
                continue
            begun, looks = clock.perf_counter(), self._pops.looks_in_vain
            is_behind = self._is_behind(held, done, blocked)
            if is_behind:
                more.add(held.kind)
            if is_behind or self._pops.looks_in_vain > looks:  # also before it found something
                spent += clock.perf_counter() - begun
        self._wake_later(line, more, began)

    def _is_behind(
        self, held: SuspendedPop, done: set[Kind], blocked: dict[Kind, set[str]]
    ) -> bool:
        """Ask one that waits; returns whether those of its kind are to be asked again soon."""
        try:
            return self._ask_one(held, done, blocked)
        except Exception:  # of the disk of its queue; the others are asked all the same
            topic = held.request.topic
            log.exception("what there is in %s for a pop that waits cannot be told", topic,
                          extra={"failure": f"pops of {topic}"})  # fmt: skip
            done.add(held.kind)
            return True

    def _ask_one(self, held: SuspendedPop, done: set[Kind], blocked: dict[Kind, set[str]]) -> bool:
        kind, request = held.kind, held.request
        served = self._serve(held)
        if not self._pops.rest(request):
            done.add(kind)
        elif not served and self._has_more(request):
            done.add(kind)
            return True
        elif not served:  # nor are most others of its kind: each would be asked with each message
            if kind not in blocked:
                blocked[kind] = self._pops.attempts(request)
            blocked[kind].discard(request.attempt_id)
            if not blocked[kind]:
                done.add(kind)
        return False

    def _serve(self, held: SuspendedPop) -> bool:
        held.is_served = True
        try:
            served = held.serve()
        finally:
            held.is_served = False
        if served:
            held.drop()
        return served

    def _has_more(self, request: PopRequest) -> bool:
        """Whether a pop that got nothing has left something behind that it may get."""
        try:
            return self._pops.has_something(request)
        except OSError:  # it is told when it is asked again
            return True

    def _wake_again(self, line: WaitQueue, channel: Channel) -> None:
        """Wake once more when a peer that does not read now has taken what it got."""
        if channel not in line.unwoken:
            line.unwoken.add(channel)
            channel.postpone(partial(self._wake_late, line, channel))

    def _wake_late(self, line: WaitQueue, channel: Channel) -> None:
        line.unwoken.discard(channel)
        self.wake_group(line.group, line.topic)

    def wake_when_free(self, group: str, topic: str, since: int) -> None:
        """What is out in order of a topic, and was at a time in ms, may come again at another time
        than before."""
        line = self._lines.get((group, topic))
        if line is not None:
            self._wake_later(line, (), since)

    def _wake_later(self, line: WaitQueue, kinds: Iterable[Kind], since: int) -> None:
        """Have a line woken without a message: those of some kinds soon, and all when what is out
        in order may come again that was out at a time in ms, at which a look began.

        One timer is for all of a line: with one for each, all would be asked as often as they are.
        """
        if not line.held:
            return
        free_at = 0
        if any(is_ordered for _, is_ordered in line.kinds):
            free_at = self._pops.free_at(line.group, line.queues, since)
        if free_at:
            line.wake_in(max(free_at / 1000 - clock.time(), 0) + 0.001)
        self._behind.update(dict.fromkeys((line, kind) for kind in kinds))
        if self._behind and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SOON, self._ask_again)

    def _ask_again(self) -> None:
        """Ask some of those again for whom there is more; the others follow soon."""
        began = clock.perf_counter()
        took = 0.0
        try:
            for line, kind in list(self._behind):
                self._behind.pop((line, kind), None)
                self._ask_all(line, line.kinds.keys() - {kind})
                took = clock.perf_counter() - began
                if took > STEP_SECONDS:
                    break
        finally:  # nothing else would have the others asked
            self._timer = None
            if self._behind:
                pause = took * _REST if took > STEP_SECONDS else _SOON
                self._timer = asyncio.get_running_loop().call_later(pause, self._ask_again)

    def _forget(self, line: WaitQueue) -> None:
        if self._lines.get((line.group, line.topic)) is line:
            del self._lines[line.group, line.topic]

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
        self._behind.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hang(self, line: WaitQueue) -> None:
        """Have a line wait for the queues that there are now, and look for what is in them."""
        requests = {held.kind: held.request for held in line.held}
        queues = (self._pops.queues(request) for request in requests.values())
        line.hang(dict.fromkeys(chain.from_iterable(queues)))
        more = [kind for kind, request in requests.items() if self._has_more(request)]
        self._wake_later(line, more, clock.milliseconds())

    def _topic_changed(self, name: str) -> None:
        """A topic has come, or has other queues: mostly the retry topic with the first retry."""
        for line in list(self._lines.values()):
            if name in (
                "",
                line.topic,
                retry_topic(line.group, line.topic),
            ):
                self._hang(line)
