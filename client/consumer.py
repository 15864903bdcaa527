"""Consuming as a member of a group: hands out what `Reader` has read, and takes back failures."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mq.client.closing import Closing
from mq.client.consumer_requests import ConsumerRequests
from mq.client.credentials import AccessKey
from mq.client.errors import ClientError, ConnectError, RequestTimeout, RouteNotFound
from mq.client.heartbeat import Heartbeats, describe_member
from mq.client.intervals import DEFAULT_INTERVALS, Intervals
from mq.client.local_offsets import DEFAULT_DIRECTORY, LocalOffsetStore
from mq.client.namespace import with_namespace
from mq.client.offsets import OffsetStore
from mq.client.process_queue import FlowLimits, ProcessQueue
from mq.client.pulling import PullSettings
from mq.client.push.concurrent import ConcurrentConsumption
from mq.client.push.listener import BatchListener, Listener, make_call
from mq.client.push.ordered import UNLIMITED, OrderedConsumption
from mq.client.reader import AssignmentListener, Offsets, Reader, ReaderSettings
from mq.client.rebalance import Strategy, allocate_averagely
from mq.client.send_back import send_back, send_dead_letter
from mq.client.session import Session
from mq.client.starting_offset import StartingOffset
from mq.client.subscription import TAG, Subscriptions
from mq.client.trace.hooks import make_trace
from mq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    MessageQueue,
)
from mq.protocol.message import StoredMessage
from mq.protocol.names import check_group

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

RESTART_SECONDS = 1.0  # until the place of a worker that has ended is taken
MAX_RECONSUME_TIMES = 16  # then the broker puts a message among the dead letters
_BROADCASTING_INSTANCE = "DEFAULT"  # must be the same after a restart, as Java's is


class Consumer:
    """A member of a consumer group. An async context manager.

    The members of a group share the queues of a topic: Java's consumers and this one alike. What is
    consumed is either given to `listener`, of which `concurrency` run at a time, or taken in loops:

        async with Consumer("127.0.0.1:9876", "billing", {"Orders": "paid"}) as consumer:
            async for message in consumer:
                ...

    There a message is finished when the loop asks for the next one; the one at which a loop is left
    comes in the next loop. A message is never lost, but it may come again: after a crash, or when a
    queue passes from one member to another.

    With `broadcasting` every member gets every message. It keeps its offsets in a file, and what
    its listener fails on does not come again.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str],
        *,
        listener: Listener | None = None,
        batch_listener: BatchListener | None = None,
        batch: int = 1,
        concurrency: int = 20,
        ordered: bool = False,
        suspension: float = 1.0,
        broadcasting: bool = False,
        offset_directory: Path = DEFAULT_DIRECTORY,
        strategy: Strategy = allocate_averagely,
        on_assigned: AssignmentListener | None = None,
        offsets: Offsets | None = None,
        intervals: Intervals = DEFAULT_INTERVALS,
        limits: FlowLimits | None = None,
        expression_type: str = TAG,
        consume_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        start_time: int | None = None,
        max_reconsume_times: int | None = None,
        consume_timeout: float = 900.0,
        pull_batch: int = 32,
        timeout: float = 3.0,
        trace: bool | str = False,
        namespace: str | None = None,
        unit_name: str | None = None,
        instance: str | None = None,
        credentials: AccessKey | None = None,
        tls: "ssl.SSLContext | None" = None,
    ) -> None:
        """`subscriptions` are expressions by topic: "*", tags as "a || b", or `expression_type`'s.

        A listener is `async def`, or a plain function, which is then called in a thread; see
        `push.listener` for what it may raise. A `batch_listener` gets lists of up to `batch`
        messages of one queue.

        With `ordered` the messages of a queue come one after the other, and one that fails comes
        again after `suspension` seconds; it needs a listener. `consume_from` says where to begin in
        queues that the group has never committed an offset of, `start_time` (ms since 1970; by
        default half an hour ago) goes with CONSUME_FROM_TIMESTAMP.

        A message that has failed more than `max_reconsume_times` is a dead letter: 16 by default,
        no limit with `ordered`. What a listener has had for `consume_timeout` seconds is sent back.
        `limits` bounds what is held unfinished, `pull_batch` is messages per pull, `timeout`
        seconds per request. `trace` sends what is consumed to the trace topic, or to that of the
        name given. All members must have the same `strategy`.

        `on_assigned(topic, all, mine)` hears which queues of a topic are this member's, each time
        that a rebalance has changed that. `offsets` is a store of one's own for them (see
        `reader.Offsets`) instead of the brokers' or the file's. `intervals` says how often routes
        are refreshed, heartbeats sent and offsets committed.

        Raises IllegalName for group or topic, ValueError for an expression that cannot be read,
        ClientError for addresses that are none, for `ordered` without a listener, for two.
        """
        self.call = make_call(listener, batch_listener, batch, ordered, concurrency)
        self.group = check_group(with_namespace(namespace, check_group(group)))
        self.concurrency = concurrency
        self.ordered = ordered
        self.broadcasting = broadcasting
        self.subscriptions = Subscriptions(
            self.group,
            subscriptions,
            expression_type,
            namespace=namespace,
            retries=not broadcasting,
        )
        self.session = Session(
            namesrv,
            timeout=timeout,
            instance=_BROADCASTING_INSTANCE if broadcasting and instance is None else instance,
            unit_name=unit_name,
            credentials=credentials,
            tls=tls,
            route_interval=intervals.routes,
        )
        self.started = 0.0  # seconds since 1970
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.namespace = namespace
        self._consume_from = consume_from
        if max_reconsume_times is None:
            max_reconsume_times = UNLIMITED if ordered else MAX_RECONSUME_TIMES
        self._max_reconsume_times = max_reconsume_times
        self._heartbeats = Heartbeats(
            self.session, self._describe, replicas=True, interval=intervals.heartbeats
        )
        if start_time is None:
            start_time = int((time.time() - 1800) * 1000)  # DefaultMQPushConsumer.consumeTimestamp
        self.reader = Reader(
            self.session,
            self.group,
            self.subscriptions,
            offsets or self._own_offsets(offset_directory),
            StartingOffset(self.session, consume_from, start_time),
            ReaderSettings(
                ordered=ordered,
                broadcasting=broadcasting,
                strategy=strategy,
                commit_interval=None if intervals is DEFAULT_INTERVALS else intervals.offsets,
                limits=limits or FlowLimits(span=None if ordered else FlowLimits.span),
                pulls=PullSettings(batch=pull_batch, commits=not broadcasting, namespace=namespace),
            ),
            greet=self._heartbeats.greet,
            on_ready=self._hand_out,
            on_failure=self._fail,
            on_assigned=on_assigned,
        )
        self.trace = make_trace(self.session, self.group, trace, namespace) if trace else None
        self._consumption: ConcurrentConsumption | OrderedConsumption
        if ordered:
            self._consumption = OrderedConsumption(
                self.group,
                self.reader.figures,
                self._give_up,
                locks=not broadcasting,
                batch=batch,
                suspension=suspension,
                max_reconsume_times=max_reconsume_times,
                trace=self.trace,
            )
        else:
            self._consumption = ConcurrentConsumption(
                self.group,
                self.reader.figures,
                None if broadcasting else self._send_back,
                batch=batch,
                timeout=consume_timeout,
                trace=self.trace,
            )
        self._in_hand: dict[int, ProcessQueue] = {}  # by id() of a message that is handed out
        self._workers: list[asyncio.Task[None]] = []
        self._again: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._closing = False
        self._closed = asyncio.Event()
        self._close_once = Closing()

    def _own_offsets(self, directory: Path) -> Offsets:
        if self.broadcasting:
            return LocalOffsetStore(directory, self.session.client_id, self.group)
        return OffsetStore(self.session, self.group)

    async def open(self) -> None:
        """Join the group and begin to read.

        Messages of a queue begin to come once the other members have learnt of this one, which
        takes them a moment; those of a topic that does not exist yet, or of which no name server
        tells at the moment, when it does.
        """
        await self.session.open()
        self.started = time.time()
        ConsumerRequests(self).register()
        await asyncio.gather(*map(self._look_for, self.subscriptions.chosen))
        if self.trace is not None:
            await self.trace.dispatcher.open()
        await self._heartbeats.beat()
        self._again = self.session.keep_task(self._heartbeats.run())
        self.reader.start()
        if self.call is None:
            return
        for _ in range(self.concurrency):
            self._start_worker()
        if isinstance(self._consumption, ConcurrentConsumption):
            self.session.keep_task(self._consumption.expire())

    async def _look_for(self, topic: str) -> None:
        try:
            await self.session.route(topic)
        except (RouteNotFound, ConnectError, RequestTimeout) as error:
            log.warning("group %s waits for its topic: %s", self.group, error)

    async def close(self, *, grace: float = 10.0) -> None:
        """Stop reading, let listeners finish for `grace` seconds, commit, leave the group.

        It goes on to the end even when whoever waits for it is cancelled. Called by an async
        listener it begins to close and returns, so that the listener can finish its message.
        """
        if asyncio.current_task() in self._workers:
            self._close_once.begin(lambda: self._close(grace))
        else:
            await self._close_once.run(lambda: self._close(grace))

    async def _close(self, grace: float) -> None:
        if self._closed.is_set():
            return
        self._closing = True
        try:
            await self.reader.stop()
            self._consumption.close()
            if self._workers:
                _, late = await asyncio.wait(self._workers, timeout=grace)
                for worker in late:
                    worker.cancel()
                if late:
                    await asyncio.wait(late)
            if self.call is not None:
                self.call.close()
            if self._again is not None:
                self._again.cancel()
                await self.reader.release()
                if self.trace is not None:
                    await self.trace.dispatcher.close()
                await self._heartbeats.unregister(consumer_group=self.group)
        finally:
            await self.session.close()
            self._closed.set()

    async def wait_closed(self) -> None:
        """Return when the consumer has been closed; raise the error that ended it, if one did."""
        await self._closed.wait()
        if self._failure is not None:
            raise self._failure

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[StoredMessage]:
        """Hand out messages until the consumer is closed. Several loops may run side by side."""
        if self.call is not None or not isinstance(self._consumption, ConcurrentConsumption):
            raise ClientError("this consumer gives its messages to a listener")
        while (ready := await self._consumption.next()) is not None:
            held, (message,) = ready
            self._in_hand[id(message)] = held
            try:
                yield message
                # Only reached when the loop asks for more; a loop that was left has not finished.
                if held.holds(message):
                    held.finish(message)
                    self.reader.figures[held.queue.topic].consumed += 1
            finally:
                self._in_hand.pop(id(message), None)
                if held.holds(message):  # the next loop gets it
                    self._consumption.hand_out(held, [message])
        if self._failure is not None:
            raise self._failure

    async def retry_later(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Send back a message that the loop has in hand: the group sees it again later.

        `delay_level` 0 lets the broker choose (10 s at first, longer each time), 1 to 18 are its
        levels, -1 makes it a dead letter at once. Raises ClientError for a message that is not in
        hand or with `broadcasting`, and what a send raises.
        """
        held = self._in_hand.get(id(message))
        if held is None:
            raise ClientError("only a message that a loop has in hand can be sent back")
        if self.broadcasting:
            raise ClientError("nothing can be sent back with broadcasting")
        await self._send_back(held, message, delay_level)
        held.finish(message)
        self.reader.figures[held.queue.topic].failed += 1

    def pause(self) -> None:
        """Pull nothing any more; what has been pulled is still consumed."""
        self.reader.pause(True)

    def resume(self) -> None:
        """Pull again after `pause`."""
        self.reader.pause(False)

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that are this member's now, the group's retry queue among them."""
        return sorted(self.reader.held)

    async def commit(self) -> None:
        """Commit now how far each queue is finished. Raises the first error of any broker."""
        for error in await self.reader.commit(again=True):
            raise error

    def _hand_out(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        self._consumption.hand_out(held, messages)

    async def _send_back(
        self, held: ProcessQueue, message: StoredMessage, delay_level: int
    ) -> None:
        await send_back(
            self.session,
            self.group,
            held.queue,
            message,
            delay_level=delay_level,
            max_reconsume_times=self._max_reconsume_times,
            namespace=self.namespace,
        )

    async def _give_up(self, message: StoredMessage) -> None:
        await send_dead_letter(
            self.session, self.group, message, self._max_reconsume_times, self.namespace
        )

    def _describe(self) -> HeartbeatData:
        model = MessageModel.BROADCASTING if self.broadcasting else MessageModel.CLUSTERING
        member = (self.session, self.group, self.subscriptions)
        return describe_member(*member, self.consume_type, model, self._consume_from)

    def _start_worker(self) -> None:
        if self._closing or self.call is None:
            return
        worker = self.session.keep_task(self._consumption.work(self.call))
        self._workers.append(worker)
        worker.add_done_callback(self._worker_ended)

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        if self._closing:
            return
        self._workers.remove(worker)
        error = None if worker.cancelled() else worker.exception()
        if error is not None and not isinstance(error, Exception):
            self._fail(error)
            return
        log.error(
            "group %s: a worker has ended, another takes its place: %r",
            self.group,
            error or "it was cancelled",
        )
        # Not at once: when the loop itself ends, it cancels every task that there is now.
        asyncio.get_running_loop().call_later(RESTART_SECONDS, self._start_worker)

    def _fail(self, error: BaseException) -> None:
        """Something that is to end the program: close, and let those who wait know why."""
        log.error("group %s: the consumer stops: %r", self.group, error)
        if self._failure is None and not self._closing:
            self._failure = error
            self._close_once.begin(lambda: self._close(0.0))
