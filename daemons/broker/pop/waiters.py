"""Waiters: pops and notifications that wait for a message.

All requests for a topic and group form one wait queue, which is registered with every queue of the
topic and of its retry topic. An arriving message wakes it in the same turn of the event loop: the
requests are served in order until nothing is left for any of them. A wait queue is woken again when
messages in flight of an ordered pop may be redelivered, and when a pop has left messages.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from itertools import chain

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.pop.popper import Popper
from mq.daemons.broker.pop.request import PopRequest
from mq.daemons.broker.pop.wait_queue import Kind, SuspendedPop, WaitQueue
from mq.daemons.broker.pull.long_polling import LONGEST_HOLD
from mq.daemons.broker.store import ConsumeQueue
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.channel import Channel
from mq.daemons.time_slices import STEP_SECONDS
from mq.protocol.pop_receipt import retry_topic

log = logging.getLogger(__name__)

# Seconds until requests are served again that have more to get: the last search skipped many
# messages that do not match, or found no free time for a check point.
_SOON = 0.1
# Each such search takes up to some ms of the event loop, and there may be very many wait queues:
# after STEP_SECONDS of searches, other work gets this multiple of their time.
_REST = 4


class Waiters:
    """All suspended requests."""

    def __init__(self, pops: Popper, topics: Topics, settings: BrokerSettings) -> None:
        self._pops = pops
        self._settings = settings
        self._wait_queues: dict[tuple[str, str], WaitQueue] = {}
        # Kinds of wait queues that have more to get after a search.
        self._unfinished: dict[tuple[WaitQueue, Kind], None] = {}
        self._timer: asyncio.TimerHandle | None = None  # for _unfinished
        topics.on_change.append(self._topic_changed)

    def waiting(self, group: str, topic: str, queue_id: int) -> int:
        """The number of suspended pops for a queue, or for any."""
        wait_queue = self._wait_queues.get((group, topic))
        return (
            0
            if wait_queue is None
            else wait_queue.kinds[queue_id, False] + wait_queue.kinds[queue_id, True]
        )

    def add(self, held: SuspendedPop, seconds: float) -> bool:
        """Suspend a request; False if too many are suspended."""
        request, began = held.request, clock.milliseconds()
        most = self._settings.broker.pop_polling_size
        if self.waiting(request.group, request.topic, request.queue_id) >= most:
            return False
        if not held.keep():
            return False
        key = (request.group, request.topic)
        wait_queue = self._wait_queues.get(key)
        if wait_queue is None:
            wait_queue = self._wait_queues[key] = WaitQueue(*key, self._serve, self._forget)
        wait_queue.add(held)
        queues = dict.fromkeys(self._pops.queues(request))
        if not queues.keys() <= wait_queue.queues.keys():
            wait_queue.watch({**wait_queue.queues, **queues})
        loop = asyncio.get_running_loop()
        held.timer = loop.call_later(min(seconds, LONGEST_HOLD), held.over)
        self._wake_later(wait_queue, [held.kind] if self._has_more(request) else (), began)
        return True

    def wake_group(self, group: str, topic: str) -> None:
        """Serve a wait queue, because messages may be available."""
        wait_queue = self._wait_queues.get((group, topic))
        if wait_queue is not None:
            self._serve_all(wait_queue, set())

    def wake_for_rest(self, group: str, topic: str) -> None:
        """Wake a wait queue after one of its requests has left messages."""
        wait_queue = self._wait_queues.get((group, topic))
        if wait_queue is not None:
            wait_queue.wake()

    def wake_group_soon(self, group: str, topic: str) -> None:
        """Serve a wait queue again soon, after messages that were taken have been put back."""
        wait_queue = self._wait_queues.get((group, topic))
        if wait_queue is not None:
            self._wake_later(wait_queue, wait_queue.kinds, clock.milliseconds())

    def _serve(self, wait_queue: WaitQueue, queue: ConsumeQueue | None) -> None:
        """Serve the requests of a wait queue that can get something from a queue; None for all.

        Except for kinds that are served soon anyway: otherwise, with very many messages and wait
        queues, each message would make them search messages that do not match for some ms.
        """
        done = set() if queue is None else wait_queue.kinds_without(queue)
        if self._unfinished:
            done |= {kind for kind in wait_queue.kinds if (wait_queue, kind) in self._unfinished}
        self._serve_all(wait_queue, done)

    def _serve_all(self, wait_queue: WaitQueue, done: set[Kind]) -> None:
        """Serve the requests of a wait queue, except for kinds in ``done``, which get nothing, or
        not in this turn.
        """
        # Kinds whose queues are blocked, with the attempts that get the messages in flight again.
        blocked: dict[Kind, set[str]] = {}
        more: set[Kind] = set()
        began, spent = clock.milliseconds(), 0.0  # seconds spent on searches that found nothing
        for held in list(wait_queue.held):
            # each of very many kinds may skip many messages that do not match
            if spent > STEP_SECONDS:
                more |= wait_queue.kinds.keys() - done
                break
            if len(done) >= len(wait_queue.kinds) and done.issuperset(wait_queue.kinds):
                break
            if held.kind in done or held not in wait_queue.held or held.is_served:
                continue
            if held.channel.closed:
                continue
            attempts = blocked.get(held.kind)
            if attempts is not None and held.request.attempt_id not in attempts:
                continue
            if held.channel.stalled:
                self._wake_again(wait_queue, held.channel)
                continue
            start, scans = clock.perf_counter(), self._pops.empty_scans
            has_more = self._serve_safely(held, done, blocked)
            if has_more:
                more.add(held.kind)
            if has_more or self._pops.empty_scans > scans:  # also before it found something
                spent += clock.perf_counter() - start
        self._wake_later(wait_queue, more, began)

    def _serve_safely(
        self, held: SuspendedPop, done: set[Kind], blocked: dict[Kind, set[str]]
    ) -> bool:
        """Serve one request; returns whether its kind is to be served again soon. Raises
        nothing."""
        try:
            return self._serve_one(held, done, blocked)
        except Exception:  # of the disk of its queue; the others are served nevertheless
            topic = held.request.topic
            log.exception("cannot serve a suspended pop of %s", topic,
                          extra={"failure": f"pops of {topic}"})  # fmt: skip
            done.add(held.kind)
            return True

    def _serve_one(
        self, held: SuspendedPop, done: set[Kind], blocked: dict[Kind, set[str]]
    ) -> bool:
        kind, request = held.kind, held.request
        served = self._try(held)
        if not self._pops.rest(request):
            done.add(kind)
        elif not served and self._has_more(request):
            done.add(kind)
            return True
        # nor can most others of its kind, which would otherwise be served with each message
        elif not served:
            if kind not in blocked:
                blocked[kind] = self._pops.attempts(request)
            blocked[kind].discard(request.attempt_id)
            if not blocked[kind]:
                done.add(kind)
        return False

    def _try(self, held: SuspendedPop) -> bool:
        held.is_served = True
        try:
            served = held.serve()
        finally:
            held.is_served = False
        if served:
            held.drop()
        return served

    def _has_more(self, request: PopRequest) -> bool:
        """Whether a pop that got nothing has left something that it may get."""
        try:
            return self._pops.has_something(request)
        except OSError:  # reported when it is served again
            return True

    def _wake_again(self, wait_queue: WaitQueue, channel: Channel) -> None:
        """Wake again when a stalled channel has sent its data."""
        if channel not in wait_queue.unwoken:
            wait_queue.unwoken.add(channel)
            channel.postpone(partial(self._wake_late, wait_queue, channel))

    def _wake_late(self, wait_queue: WaitQueue, channel: Channel) -> None:
        wait_queue.unwoken.discard(channel)
        self.wake_group(wait_queue.group, wait_queue.topic)

    def wake_when_free(self, group: str, topic: str, since: int) -> None:
        """Schedule a wake after the redelivery time of messages in flight has changed; they were in
        flight at ``since``, in ms.
        """
        wait_queue = self._wait_queues.get((group, topic))
        if wait_queue is not None:
            self._wake_later(wait_queue, (), since)

    def _wake_later(self, wait_queue: WaitQueue, kinds: Iterable[Kind], since: int) -> None:
        """Schedule wakes without a new message: soon for some kinds, and for all when messages may
        be redelivered that an ordered pop had in flight at ``since``, in ms, at which a search
        started.

        One timer serves a whole wait queue: with one each, all requests would be served as often as
        there are requests.
        """
        if not wait_queue.held:
            return
        free_at = 0
        if any(is_ordered for _, is_ordered in wait_queue.kinds):
            free_at = self._pops.free_at(wait_queue.group, wait_queue.queues, since)
        if free_at:
            wait_queue.wake_in(max(free_at / 1000 - clock.time(), 0) + 0.001)
        self._unfinished.update(dict.fromkeys((wait_queue, kind) for kind in kinds))
        if self._unfinished and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SOON, self._serve_unfinished)

    def _serve_unfinished(self) -> None:
        """Serve some of the unfinished kinds again; the others follow soon."""
        began = clock.perf_counter()
        took = 0.0
        try:
            for wait_queue, kind in list(self._unfinished):
                self._unfinished.pop((wait_queue, kind), None)
                self._serve_all(wait_queue, wait_queue.kinds.keys() - {kind})
                took = clock.perf_counter() - began
                if took > STEP_SECONDS:
                    break
        finally:  # else the others would never be served
            self._timer = None
            if self._unfinished:
                pause = took * _REST if took > STEP_SECONDS else _SOON
                self._timer = asyncio.get_running_loop().call_later(pause, self._serve_unfinished)

    def _forget(self, wait_queue: WaitQueue) -> None:
        if self._wait_queues.get((wait_queue.group, wait_queue.topic)) is wait_queue:
            del self._wait_queues[wait_queue.group, wait_queue.topic]

    def end_group(self, group: str) -> None:
        """Answer the requests of a deleted group as at the end of their wait."""
        for wait_queue in [
            wait_queue for wait_queue in self._wait_queues.values() if wait_queue.group == group
        ]:
            for held in list(wait_queue.held):
                held.over()

    def drop_all(self) -> None:
        """Drop all requests unanswered, because the broker stops."""
        for wait_queue in list(self._wait_queues.values()):
            for held in list(wait_queue.held):
                held.drop()
        self._unfinished.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_queues(self, wait_queue: WaitQueue) -> None:
        """Register a wait queue with the current queues, and search these."""
        requests = {held.kind: held.request for held in wait_queue.held}
        queues = (self._pops.queues(request) for request in requests.values())
        wait_queue.watch(dict.fromkeys(chain.from_iterable(queues)))
        more = [kind for kind, request in requests.items() if self._has_more(request)]
        self._wake_later(wait_queue, more, clock.milliseconds())

    def _topic_changed(self, name: str) -> None:
        """A topic was created or has other queues; usually the retry topic with the first retry."""
        for wait_queue in list(self._wait_queues.values()):
            if name in (
                "",
                wait_queue.topic,
                retry_topic(wait_queue.group, wait_queue.topic),
            ):
                self._watch_queues(wait_queue)
