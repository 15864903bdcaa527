"""Ordered consumption: the messages of each queue one after the other
(ConsumeMessageOrderlyService).

A queue with waiting messages has one turn, which one worker processes. Between two calls of the
listener the lock is checked: the queue waits until the lock is certainly held.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from mq.client.consumer.push.listener import Call, SuspendQueue, suspension_of
from mq.client.errors import MQError
from mq.client.hooks import ConsumeOutcome
from mq.client.machine import clock
from mq.client.pull.consume_hooks import ConsumeHooks
from mq.client.pull.process_queue import ConsumeCounts, ProcessQueue, is_locked
from mq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

LOCK_WAIT_SECONDS = 0.1  # until a queue without a valid lock is checked again
# After this time other queues get their turn (MAX_TIME_CONSUME_CONTINUOUSLY).
LONGEST_TURN_SECONDS = 60.0
UNLIMITED = 2**31 - 1  # attempts of a message

#: Makes a message a dead letter.
GiveUp = Callable[[StoredMessage], Awaitable[None]]


class OrderedConsumption:
    """The waiting messages of queues, and the workers that process them."""

    def __init__(
        self,
        group: str,
        counts: Mapping[str, ConsumeCounts],
        give_up: GiveUp,
        *,
        locks: bool,
        batch: int = 1,
        suspension: float = 1.0,
        max_reconsume_times: int = UNLIMITED,
        hooks: ConsumeHooks | None = None,
    ) -> None:
        """With `locks` a queue is consumed only while this member holds its lock.

        `suspension` is how many seconds a queue pauses when its first message fails.
        """
        self._group = group
        self._counts = counts
        self._give_up = give_up
        self._locks = locks
        self._batch = batch
        self._suspension = suspension
        self._max_reconsume_times = max_reconsume_times
        self._hooks = hooks
        self._turns: asyncio.Queue[ProcessQueue | None] = asyncio.Queue()
        self._closing = False
        self._inside: set[ProcessQueue] = set()  # queues with messages inside the listener
        self._abandoned: set[ProcessQueue] = set()  # those of them whose workers were cancelled

    def enqueue(self, held: ProcessQueue, messages: list[StoredMessage]) -> None:
        """Append pulled messages to the line."""
        if held.line_up(messages):
            self._turns.put_nowait(held)

    def close(self) -> None:
        """Stop delivering messages."""
        self._closing = True
        self._turns.put_nowait(None)

    async def work(self, call: Call) -> None:
        """Process queues until closed."""
        while (held := await self._turns.get()) is not None and not self._closing:
            held.begin_consuming()
            pause: float | None
            try:
                pause = await self._turn(call, held)
            except Exception:  # not an error of the listener: see `Call`
                log.exception("group %s: consumption failed; retrying the message", self._group)
                pause = self._suspension
            except BaseException:
                if held in self._inside:  # a thread cannot be stopped: it still has the message
                    self._abandoned.add(held)
                else:
                    self._pass_on(held)
                raise
            held.end_consuming(turn=pause is None)
            if pause is not None:
                loop = asyncio.get_running_loop()
                loop.call_later(pause, self._turns.put_nowait, held)
        self._turns.put_nowait(None)

    def _pass_on(self, held: ProcessQueue) -> None:
        """Pass the line of a queue to another worker."""
        held.end_consuming(turn=False)
        self._turns.put_nowait(held)

    def _left(self, held: ProcessQueue, messages: list[StoredMessage], returned: bool) -> None:
        """Handle that no code is inside the listener any more. If the worker was cancelled before,
        the line continues here, after these messages if the listener `returned` normally.
        """
        self._inside.discard(held)
        if held in self._abandoned:
            self._abandoned.discard(held)
            if returned:
                self._counts[held.queue.topic].consumed += len(messages)
                held.leave_line(len(messages))
            self._pass_on(held)

    async def _turn(self, call: Call, held: ProcessQueue) -> float | None:
        """Process a line; returns how many seconds it must pause, or None when it is empty."""
        began = clock.monotonic()
        while (messages := held.first_in_line(self._batch)) and not self._closing:
            if self._locks and not is_locked(held):
                return LOCK_WAIT_SECONDS
            if clock.monotonic() - began > LONGEST_TURN_SECONDS:
                return 0.0
            error = await self._consume(call, held, messages)
            if error is None:
                held.leave_line(len(messages))
            elif not await self._give_up_old(held, messages):
                return suspension_of(error, self._suspension)
        return None

    async def _consume(
        self, call: Call, held: ProcessQueue, messages: list[StoredMessage]
    ) -> Exception | None:
        counts = self._counts[held.queue.topic]
        hooks = self._hooks
        began = None if hooks is None else hooks.begin(held.queue, messages)
        started = clock.monotonic()
        outcome = ConsumeOutcome.EXCEPTION
        failure: Exception | None = None
        try:
            self._inside.add(held)
            await call(messages, lambda returned: self._left(held, messages, returned))
            outcome = ConsumeOutcome.SUCCESS
        except SuspendQueue as error:
            outcome, failure = ConsumeOutcome.FAILED, error
        except Exception as error:  # user code: any exception means the same
            log.exception("group %s: %s was not consumed", self._group, messages[0].message_id)
            failure = error
        finally:
            seconds = clock.monotonic() - started
            counts.consume_seconds += seconds
            if hooks is not None and began is not None:
                hooks.end(began, outcome, failure)
        if failure is None:
            counts.consumed += len(messages)
        else:
            counts.failed += len(messages)
        return failure

    async def _give_up_old(self, held: ProcessQueue, messages: list[StoredMessage]) -> bool:
        """Make messages whose attempts are used up dead letters, up to the first that has attempts
        left; returns whether that were all.

        (Java consumes the whole batch again, and makes such a message a dead letter each time:
        ConsumeMessageOrderlyService.checkReconsumeTimes.)
        """
        for place, message in enumerate(messages):
            if not await self._is_given_up(message):
                for later in messages[place:]:
                    later.reconsume_times += 1
                return False
            held.leave_line()
        return True

    async def _is_given_up(self, message: StoredMessage) -> bool:
        if message.reconsume_times < self._max_reconsume_times:
            return False
        try:
            await self._give_up(message)
        except MQError as error:
            log.warning("group %s: dead letter not sent: %s", self._group, error)
            return False
        return True
