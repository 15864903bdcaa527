"""Consuming as a member of a group: hands out what `Reader` has read, and takes back failures."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from mq.client.consumer_requests import ConsumerRequests
from mq.client.credentials import AccessKey
from mq.client.errors import ClientError, MQError
from mq.client.heartbeat import Heartbeats
from mq.client.process_queue import ProcessQueue
from mq.client.reader import Reader
from mq.client.send_back import send_back
from mq.client.session import Session
from mq.client.subscription import TAG, Subscriptions
from mq.protocol.bodies import (
    CMResult,
    ConsumeFromWhere,
    ConsumerData,
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

REDELIVER_SECONDS = 5.0  # when even sending back fails, the listener gets the message after this
ORDERED_RETRY_SECONDS = 1.0  # DefaultMQPushConsumer.suspendCurrentQueueTimeMillis
MAX_RECONSUME_TIMES = 16  # then the broker puts a message among the dead letters

#: Consumes one message. Returning finishes it; raising sends it back, to come again later.
Listener = Callable[[StoredMessage], Awaitable[None]]


class Consumer:
    """A member of a consumer group. An async context manager.

    The members of a group share the queues of a topic: Java's consumers and this one alike. What is
    consumed is either given to `listener`, of which `concurrency` run at a time, or taken in loops:

        async with Consumer("127.0.0.1:9876", "billing", {"Orders": "paid"}) as consumer:
            async for message in consumer:
                ...

    There a message is finished when the loop asks for the next one. A message is never lost, but it
    may come again: after a crash, or when a queue passes from one member to another.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str],
        *,
        listener: Listener | None = None,
        concurrency: int = 20,
        ordered: bool = False,
        expression_type: str = TAG,
        consume_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        start_time: int | None = None,
        max_reconsume_times: int = MAX_RECONSUME_TIMES,
        pull_batch: int = 32,
        timeout: float = 3.0,
        instance: str | None = None,
        credentials: AccessKey | None = None,
        tls: "ssl.SSLContext | None" = None,
    ) -> None:
        """`subscriptions` are expressions by topic: "*", tags as "a || b", or `expression_type`'s.

        With `ordered` the messages of a queue come one after the other, and one that fails comes
        again at once; it needs a listener. `consume_from` says where to begin in queues that the
        group has never committed an offset of, `start_time` (ms since 1970; by default half an hour
        ago) goes with CONSUME_FROM_TIMESTAMP. `pull_batch` is messages per pull, `timeout` seconds
        per request.

        Raises IllegalName for group or topic, ValueError for an expression that cannot be read,
        ClientError for addresses that are none or for `ordered` without a listener.
        """
        if ordered and listener is None:
            raise ClientError("ordered consumption needs a listener")
        self.group = check_group(group)
        self.concurrency = concurrency
        self.ordered = ordered
        self.subscriptions = Subscriptions(group, subscriptions, expression_type)
        self.session = Session(
            namesrv, timeout=timeout, instance=instance, credentials=credentials, tls=tls
        )
        self.started = 0.0  # seconds since 1970
        self._listener = listener
        self._consume_from = consume_from
        self._max_reconsume_times = max_reconsume_times
        self._heartbeats = Heartbeats(self.session, self._describe, replicas=True)
        if start_time is None:
            start_time = int((time.time() - 1800) * 1000)  # DefaultMQPushConsumer.consumeTimestamp
        self.reader = Reader(
            self.session,
            group,
            self.subscriptions,
            consume_from=consume_from,
            start_time=start_time,
            ordered=ordered,
            pull_batch=pull_batch,
            greet=self._heartbeats.beat,
            on_ready=self._hand_out_in_order if ordered else self._hand_out,
            on_failure=self._fail,
        )
        # None ends whoever takes it; it is put back for the next one.
        self._ready: asyncio.Queue[tuple[ProcessQueue, StoredMessage] | None] = asyncio.Queue()
        self._turns: asyncio.Queue[ProcessQueue | None] = asyncio.Queue()
        self._in_hand: dict[int, ProcessQueue] = {}  # by id() of a message that is handed out
        self._workers: list[asyncio.Task[None]] = []
        self._again: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._closing = False
        self._closed = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None  # kept, or it could be collected

    async def open(self) -> None:
        """Join the group and begin to read. Raises RouteNotFound for a topic that does not exist.

        Messages of a queue begin to come once the other members have learnt of this one, which
        takes them a moment.
        """
        await self.session.open()
        self.started = time.time()
        ConsumerRequests(self).register()
        for topic in self.subscriptions.chosen:
            await self.session.route(topic)
        await self._heartbeats.beat()
        self._again = self.session.keep_task(self._heartbeats.run())
        self.reader.start()
        work = self._work_in_order if self.ordered else self._work
        if self._listener is not None:
            self._workers = [
                self.session.keep_task(work(self._listener)) for _ in range(self.concurrency)
            ]
            for worker in self._workers:
                worker.add_done_callback(self._watch)

    async def close(self, *, grace: float = 10.0) -> None:
        """Stop reading, let listeners finish for `grace` seconds, commit, leave the group."""
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        await self.reader.stop()
        self._ready.put_nowait(None)
        self._turns.put_nowait(None)
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=grace)
            for worker in late:
                worker.cancel()
            if late:
                await asyncio.wait(late)
        if self._again is not None:
            self._again.cancel()
            await self.reader.release()
            await self._heartbeats.unregister(consumer_group=self.group)
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
        if self._listener is not None:
            raise ClientError("this consumer gives its messages to a listener")
        while (ready := await self._next()) is not None:
            held, message = ready
            self._in_hand[id(message)] = held
            try:
                yield message
                # Only reached when the loop asks for more; a loop that was left has not finished.
                held.finish(message)
                self.reader.figures[held.queue.topic].consumed += 1
            finally:
                self._in_hand.pop(id(message), None)
        if self._failure is not None:
            raise self._failure

    async def retry_later(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Send back a message that the loop has in hand: the group sees it again later.

        `delay_level` 0 lets the broker choose (10 s at first, longer each time), 1 to 18 are its
        levels, -1 makes it a dead letter at once. Raises ClientError for a message that is not in
        hand, and what a send raises.
        """
        held = self._in_hand.get(id(message))
        if held is None:
            raise ClientError("only a message that a loop has in hand can be sent back")
        await self._send_back(held, message, delay_level)
        held.finish(message)
        self.reader.figures[held.queue.topic].failed += 1

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that are this member's now, the group's retry queue among them."""
        return sorted(self.reader.held)

    async def commit(self) -> None:
        """Commit now how far each queue is finished. Raises the first error of any broker."""
        for error in await self.reader.commit():
            raise error

    async def consume_directly(self, message: StoredMessage) -> tuple[CMResult, str | None]:
        """Give a message to the listener at an operator's wish; returns how that went."""
        if self._listener is None:
            return CMResult.CR_THROW_EXCEPTION, "this consumer has no listener"
        try:
            await self._listener(message)
        except Exception as error:
            return CMResult.CR_THROW_EXCEPTION, f"{type(error).__name__}: {error}"
        return CMResult.CR_SUCCESS, None

    def _hand_out(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        for message in messages:
            self._ready.put_nowait((held, message))

    def _hand_out_in_order(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        if held.line_up(messages):
            self._turns.put_nowait(held)

    async def _next(self) -> tuple[ProcessQueue, StoredMessage] | None:
        while True:
            ready = await self._ready.get()
            if ready is None or self._closing:
                self._ready.put_nowait(None)
                return None
            if not ready[0].dropped:
                return ready

    async def _work(self, listener: Listener) -> None:
        while (ready := await self._next()) is not None:
            held, message = ready
            while not await self._consume(listener, held, message):
                try:
                    await self._send_back(held, message, 0)
                    break
                except MQError as error:
                    log.warning("group %s: not sent back: %s", self.group, error)
                    if self._closing:
                        return  # unfinished: whoever has the queue next begins with it
                    await asyncio.sleep(REDELIVER_SECONDS)
            held.finish(message)

    async def _work_in_order(self, listener: Listener) -> None:
        while (held := await self._turns.get()) is not None:
            while (message := held.first_in_line()) is not None and not self._closing:
                if await self._consume(listener, held, message):
                    held.leave_line()
                    held.finish(message)
                else:
                    await asyncio.sleep(ORDERED_RETRY_SECONDS)
            held.end_turn()
        self._turns.put_nowait(None)

    async def _consume(
        self, listener: Listener, held: ProcessQueue, message: StoredMessage
    ) -> bool:
        figures = self.reader.figures[held.queue.topic]
        started = time.monotonic()
        try:
            await listener(message)
        except Exception:  # the listener is the user's: whatever it raises means "not consumed"
            log.exception("group %s: %s was not consumed", self.group, message.message_id)
            figures.failed += 1
            return False
        finally:
            figures.consume_seconds += time.monotonic() - started
        figures.consumed += 1
        return True

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
        )

    def _describe(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.session.client_id,
            producer_data_set=[],
            consumer_data_set=[
                ConsumerData(
                    group_name=self.group,
                    consume_type=ConsumeType.CONSUME_PASSIVELY,
                    message_model=MessageModel.CLUSTERING,
                    consume_from_where=self._consume_from,
                    subscription_data_set=list(self.subscriptions.data.values()),
                    unit_mode=False,
                )
            ],
        )

    def _watch(self, worker: asyncio.Task[None]) -> None:
        if not worker.cancelled() and (error := worker.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Something that must not end has ended: close, and let those who wait know why."""
        log.error("group %s: the consumer stops: %r", self.group, error)
        if self._failure is None and not self._closing:
            self._failure = error
            self._stopping = asyncio.get_running_loop().create_task(self.close())
