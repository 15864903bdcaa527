"""Concurrent consumption, without an order (ConsumeMessageConcurrentlyService)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import NamedTuple

from mq.client.consumer.push.listener import Call, RetryLater
from mq.client.errors import MQError
from mq.client.hooks import ConsumeOutcome
from mq.client.machine import clock
from mq.client.pull.consume_hooks import ConsumeHooks
from mq.client.pull.process_queue import ConsumeCounts, ProcessQueue
from mq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

REDELIVER_SECONDS = 5.0  # how soon a message is delivered again that could not even be sent back
_TIMED_OUT_LEVEL = 3  # ProcessQueue.cleanExpiredMsg sends back with 10 s of delay

#: Sends a message back, for redelivery with a delay level.
SendBack = Callable[[ProcessQueue, StoredMessage, int], Awaitable[None]]


class _Run(NamedTuple):
    """A running call of the listener."""

    started: float  # by the monotonic clock
    held: ProcessQueue
    messages: list[StoredMessage]
    sending_back: asyncio.Lock  # its holder sends messages of this call back


class ConcurrentConsumption:
    """Pulled messages that wait for a listener, or for the loops of a user."""

    def __init__(
        self,
        group: str,
        counts: Mapping[str, ConsumeCounts],
        send_back: SendBack | None,
        *,
        batch: int = 1,
        timeout: float = 900.0,
        hooks: ConsumeHooks | None = None,
    ) -> None:
        """Without `send_back` a message that fails is dropped: no other member could get it.

        `batch` is the number of messages per call. A listener that takes longer than `timeout`
        seconds loses its messages, which are sent back.
        """
        self._group = group
        self._counts = counts
        self._send_back = send_back
        self._batch = batch
        self._timeout = timeout
        self._hooks = hooks
        # None ends the task that takes it; the task puts it back for the next one.
        self._ready: asyncio.Queue[tuple[ProcessQueue, list[StoredMessage]] | None] = (
            asyncio.Queue()
        )
        self._closing = False
        self._numbers = count()
        self._running: dict[int, _Run] = {}

    def enqueue(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        """Queue pulled messages for delivery."""
        for first in range(0, len(messages), self._batch):
            self._ready.put_nowait((held, messages[first : first + self._batch]))

    def close(self) -> None:
        """Stop delivering messages."""
        self._closing = True
        self._ready.put_nowait(None)

    async def next(self) -> tuple[ProcessQueue, list[StoredMessage]] | None:
        """Wait for messages to consume; None when closed."""
        while True:
            ready = await self._ready.get()
            if ready is None or self._closing:
                self._ready.put_nowait(None)
                return None
            if not ready[0].dropped:
                return ready

    async def work(self, call: Call) -> None:
        """Pass messages to the listener until closed."""
        while (ready := await self.next()) is not None:
            held, messages = ready
            number = next(self._numbers)
            run = self._running[number] = _Run(clock.monotonic(), held, messages, asyncio.Lock())
            try:
                consumed, delay_level = await self._consume(call, held, messages)
                for message in messages[:consumed]:
                    held.finish(message)
                if consumed < len(messages):
                    async with run.sending_back:
                        # Messages that took too long were sent back meanwhile, and are no longer
                        # unfinished.
                        failed = [message for message in messages[consumed:] if held.holds(message)]
                        await self._return(held, failed, delay_level)
            except BaseException as error:  # not an error of the listener: see `Call`
                self._redeliver(held, [message for message in messages if held.holds(message)])
                if not isinstance(error, Exception):
                    raise
                log.exception("group %s: consumption failed; redelivering a message", self._group)
            finally:
                self._running.pop(number, None)

    async def _consume(
        self, call: Call, held: ProcessQueue, messages: list[StoredMessage]
    ) -> tuple[int, int]:
        """Return how many of the messages are consumed, and the delay level for the others."""
        counts = self._counts[held.queue.topic]
        hooks = self._hooks
        began = None if hooks is None else hooks.begin(held.queue, messages)
        started = clock.monotonic()
        outcome = ConsumeOutcome.EXCEPTION
        failure: Exception | None = None
        consumed, delay_level = len(messages), 0
        try:
            await call(messages)
            outcome = ConsumeOutcome.SUCCESS
        except RetryLater as later:
            outcome, failure = ConsumeOutcome.FAILED, later
            consumed, delay_level = min(later.consumed, len(messages)), later.delay_level
        except Exception as error:  # user code: any exception means "not consumed"
            log.exception("group %s: %s was not consumed", self._group, messages[0].message_id)
            failure, consumed = error, 0
        finally:
            seconds = clock.monotonic() - started
            counts.consume_seconds += seconds
            if outcome is ConsumeOutcome.SUCCESS and seconds >= self._timeout:
                outcome = ConsumeOutcome.TIME_OUT
            if hooks is not None and began is not None:
                hooks.end(began, outcome, failure)
        counts.consumed += consumed
        counts.failed += len(messages) - consumed
        return consumed, delay_level

    async def _return(
        self, held: ProcessQueue, messages: list[StoredMessage], delay_level: int
    ) -> None:
        again = []
        for message in messages:
            if not await self._give_back(held, message, delay_level):
                again.append(message)
        self._redeliver(held, again)

    def _redeliver(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        if messages:
            loop = asyncio.get_running_loop()
            loop.call_later(REDELIVER_SECONDS, self.enqueue, held, messages)

    async def _give_back(
        self, held: ProcessQueue, message: StoredMessage, delay_level: int
    ) -> bool:
        """Whether the message is finished here."""
        if self._send_back is None:
            log.warning("group %s: dropped message %s", self._group, message.message_id)
        else:
            try:
                await self._send_back(held, message, delay_level)
            # for example too long with the properties of a retry
            except (MQError, ValueError) as error:
                log.warning("group %s: not sent back: %s", self._group, error)
                message.reconsume_times += 1
                return False
        held.finish(message)
        return True

    async def expire(self) -> None:
        """Periodically send back messages that a listener has not finished in time."""
        while True:
            await asyncio.sleep(min(self._timeout / 4, 60.0))
            try:
                await self._expire_late()
            except Exception:
                log.exception("group %s: cannot send back overdue messages", self._group)

    async def _expire_late(self) -> None:
        late = clock.monotonic() - self._timeout
        for number, run in list(self._running.items()):
            if number not in self._running or run.started > late or run.sending_back.locked():
                continue
            async with run.sending_back:
                await self._take_from_listener(run.held, run.messages)

    async def _take_from_listener(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        for message in messages:
            if held.holds(message) and not held.dropped:
                log.warning(
                    "group %s: the listener has not finished %s within %.0f s",
                    *(self._group, message.message_id, self._timeout),
                )
                await self._give_back(held, message, _TIMED_OUT_LEVEL)
