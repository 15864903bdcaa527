"""Gets messages in advance, and confirms them.

A get is a task of its own: if the caller that waits for its messages is cancelled, the next caller
gets them. As many gets are in flight as there are waiting callers; while the application processes
messages, `prefetch` more replies are fetched in advance, each from another partition. A partition
is read further only after its messages were confirmed, so confirmed messages were always given to
the application.

A get that is not answered within a second is not counted: a silent broker delays only its own
partitions, until the timeout.

The effect of a code on the partition (BaseConsumer::processGetMessageRspB2C, fetchMessage of Java):

  200             in use until confirmed; without a matching message it continues after them
  404             pauses for `not_found_wait`, or as long as the rules say
  403 503 301     pauses for 2 s, 0.3 s, 0.2 s; any other code 0.3 s
  452             pauses as long as the broker says
  411 412 415     lost
  no answer       the next messages are redelivered; 0.3 s, while the original retries at once
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from math import inf

from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout
from mq.client.tube.broker_calls import BrokerCalls
from mq.client.tube.decoding import GetAnswer
from mq.client.tube.errors import ConfirmTimeout, for_code
from mq.client.tube.flow import Reply
from mq.client.tube.membership import Membership
from mq.client.tube.message import ConsumedOffset, TubeBatch
from mq.client.tube.partitions import PartitionTable, RegisteredPartition
from mq.protocol.tube.codes import UNDEFINED, Code
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.strings import PartitionKey

log = logging.getLogger(__name__)

SLOW_SECONDS = 1.0
RETRY_SECONDS = 0.3
_DELAYS: dict[int, float] = {Code.FORBIDDEN: 2.0, Code.SERVICE_UNAVAILABLE: 0.3, Code.MOVED: 0.2}
_LOST = (Code.HB_NO_NODE, Code.DUPLICATE_PARTITION, Code.CERTIFICATE_FAILURE)
_STATUS_TEXT = {
    Code.NO_PARTITION_ASSIGNED: "this consumer has no partition yet",
    Code.ALL_PARTITION_WAITING: "each partition waits for its turn",
    Code.ALL_PARTITION_INUSE: "the messages of each partition wait to be confirmed",
}
_NO_ANSWER = (ConnectError, RequestTimeout, BadAnswer)


class Reading:
    """Gets and confirms messages of the partitions of a table."""

    def __init__(
        self,
        member: Membership,
        calls: BrokerCalls,
        table: PartitionTable,
        on_lost: Callable[[], None],
    ) -> None:
        """`on_lost` is called when a broker reports that this consumer has lost a partition."""
        self._member = member
        self._calls = calls
        self._table = table
        self._on_lost = on_lost
        self._ready: deque[tuple[RegisteredPartition, int, TubeBatch]] = deque()
        self._waiters: dict[asyncio.Future[MQError | None], None] = {}
        self._gets: set[asyncio.Task[None]] = set()
        self._commits: set[asyncio.Task[ConsumedOffset]] = set()
        self._slow = 0  # gets without an answer for SLOW_SECONDS
        self._closed: tuple[Code, str] | None = None
        #: Counts of messages: given, damaged, unwanted.
        self.counts: Counter[str] = Counter()

    def close(self, code: Code, why: str) -> None:
        """Stop getting messages; waiting and later callers get the error."""
        self._closed = code, why
        for task in self._gets:
            task.cancel()
        for waiter in self._waiters:
            _tell(waiter, None)

    async def finish(self) -> None:
        """Wait until no get and no confirmation is in flight. Call it after `close`."""
        while tasks := [*self._gets, *self._commits]:
            await asyncio.wait(tasks)

    async def abort(self) -> None:
        """Cancel the confirmations in flight; their results are unknown then."""
        for task in self._commits:
            task.cancel()
        await self.finish()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise for_code(*self._closed)

    # getting ------------------------------------------------------------------------------------

    async def get(self, ready_wait: float) -> TubeBatch:
        """Return the next messages. Raises why a get had none, as `get_message` of consumers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ready_wait
        while True:
            self._check_open()
            batch = self._take()
            if batch is not None:
                self.fill()
                return batch
            waiter: asyncio.Future[MQError | None] = loop.create_future()
            self._waiters[waiter] = None
            try:
                self.fill()
                error = await self._wait(waiter, deadline)
            finally:
                del self._waiters[waiter]
                if self._ready:
                    self._wake()  # the waiter for it may have been cancelled just now
            if error is not None:
                raise error

    async def _wait(
        self, waiter: "asyncio.Future[MQError | None]", deadline: float
    ) -> MQError | None:
        """Return the waiter's error, or one of this client if no partition is ready in time."""
        left = deadline - asyncio.get_running_loop().time()
        if left > 0 or not self._gets:
            await asyncio.wait([waiter], timeout=None if left == inf else max(left, 0))
        if not waiter.done() and not self._gets:
            code = self._table.status()
            return for_code(code, _STATUS_TEXT.get(code, "no partition may be asked now"))
        return await waiter

    def _take(self) -> TubeBatch | None:
        """Return the first available messages of a partition that is still owned."""
        while self._ready:
            held, stamp, batch = self._ready.popleft()
            if self._table.is_used(held, stamp):
                self._table.give(held)
                self.counts["given"] += len(batch.messages)
                return batch
        return None

    def fill(self) -> None:
        """Start as many gets as are wanted, if there are partitions for them."""
        if self._closed is not None:
            return
        wanted = sum(not waiter.done() for waiter in self._waiters) - len(self._ready)
        if self._table.given:
            wanted += self._member.options.prefetch
        while len(self._gets) - self._slow < wanted and (held := self._table.take()) is not None:
            task = asyncio.get_running_loop().create_task(self._get(held))
            self._gets.add(task)
            task.add_done_callback(self._got)

    def _got(self, task: "asyncio.Task[None]") -> None:
        self._gets.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a get has failed", exc_info=error)
        if not self._gets and not self._ready:
            for waiter in self._waiters:
                _tell(waiter, None)  # each one checks whether to wait on
        self.fill()

    async def _get(self, held: RegisteredPartition) -> None:
        loop = asyncio.get_running_loop()
        stamp, consumed = held.stamp, held.last_consumed
        if stamp is None or not self._table.is_used(held, stamp):
            return  # it was removed before this task started
        held.last_consumed = False
        slowness = _Slowness(self)
        timer = loop.call_later(SLOW_SECONDS, slowness.begin)
        try:
            answer = await self._calls.get(
                held.partition,
                consumed=consumed,
                limited=self._member.flow.is_limited(loop.time()),
            )
        except MQError as error:
            self._fail(error)
            self._table.put_back(held, stamp, consumed=False, delay=RETRY_SECONDS)
        except BaseException:
            self._table.put_back(held, stamp, consumed=False, delay=RETRY_SECONDS)
            raise
        else:
            self._answered(held, stamp, answer)
        finally:
            timer.cancel()
            slowness.end()

    def _answered(self, held: RegisteredPartition, stamp: int, answer: GetAnswer) -> None:
        # it was removed meanwhile: the messages are redelivered
        if not self._table.is_used(held, stamp):
            return
        now = asyncio.get_running_loop().time()
        self.counts["damaged"] += answer.damaged
        self.counts["unwanted"] += answer.unwanted
        key, address = held.key, str(held.partition.broker.address)
        if answer.damaged:
            log.warning("%s: %d damaged messages were left out", key, answer.damaged)
        if answer.code == Code.SUCCESS:
            held.book(answer.offset, answer.most)
            held.reply = Reply(
                Code.SUCCESS, now, answer.size, 0.0, answer.escapes, answer.lag, answer.is_slow
            )
            if answer.messages:
                batch = TubeBatch(
                    answer.messages,
                    held.partition.topic,
                    key,
                    f"{key}@{stamp}",
                    answer.offset,
                    answer.lag,
                )
                self._ready.append((held, stamp, batch))
                self._wake()
                return
            self._fail(for_code(Code.NOT_FOUND, "no matching message", address))
            self._put_back(held, stamp, consumed=True)
            return
        self._fail(for_code(answer.code, answer.text, address))
        if answer.code in _LOST:
            log.warning("%s was lost: %d %s", key, answer.code, answer.text)
            self._table.remove(key)
            self._on_lost()
        else:
            held.reply = Reply(answer.code, now, delay=self._delay(answer))
            self._put_back(held, stamp, consumed=False)

    def _delay(self, answer: GetAnswer) -> float:
        """Return the seconds that a code requires."""
        wait = self._member.options.not_found_wait
        if answer.code == Code.SERVER_CONSUME_SPEED_LIMIT:
            return wait if answer.wait_ms == UNDEFINED else answer.wait_ms / 1000
        if answer.code == Code.NOT_FOUND:
            return wait
        return _DELAYS.get(answer.code, RETRY_SECONDS)

    def _put_back(
        self, held: RegisteredPartition, stamp: int, *, consumed: bool, at_least: float = 0.0
    ) -> None:
        """End a use, with the delay that its reply and the rules require."""
        delay = at_least
        if held.reply is not None and self._table.is_used(held, stamp):
            now = asyncio.get_running_loop().time()
            filtered = self._member.subscription.wanted(held.partition.topic) is not None
            asked = held.flow.delay(held.reply, self._member.flow, filtered, now)
            delay = max(at_least, asked - (now - held.reply.at))
        self._table.put_back(held, stamp, consumed=consumed, delay=delay)

    def _fail(self, error: MQError) -> None:
        """Pass an error to the first waiter; to none if messages are only fetched in advance."""
        log.debug("a get returned no messages: %s", error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(error)
                return

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
                return

    # confirming ---------------------------------------------------------------------------------

    async def confirm(self, context: str, consumed: bool) -> int:
        """Confirm messages by their context; returns the offset after them, if it is known.

        Raises what `confirm` of consumers raises. A cancellation of the caller does not stop it.
        """
        self._check_open()
        held, stamp = self._given(context)
        if self._member.options.confirm_locally:
            self._put_back(held, stamp, consumed=consumed)
            return UNDEFINED
        held.confirming = True
        task = asyncio.get_running_loop().create_task(self._commit(held, stamp, consumed))
        self._commits.add(task)
        task.add_done_callback(self._committed)
        await asyncio.wait([task])
        if task.cancelled():
            raise for_code(Code.CLIENT_STOPPED, "the consumer was closed before it was answered")
        return task.result().offset

    async def ask_offset(self, key: str) -> ConsumedOffset:
        """Return the group's offset, as `ask_offset` of consumers."""
        self._check_open()
        # no get that would be committed by this may start
        with self._table.leaving([key]) as found:
            if not found:
                raise for_code(Code.NOT_FOUND, f"{key} is not held")
            held = found[0]
            if held.stamp is not None:
                raise for_code(Code.ALL_PARTITION_INUSE, f"the messages of {key} are in use")
            reached = await self._calls.commit(held.partition, consumed=held.last_consumed)
            held.book(*reached)
            return reached

    def _committed(self, task: "asyncio.Task[ConsumedOffset]") -> None:
        self._commits.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here, because there may be no waiter

    def _given(self, context: str) -> tuple[RegisteredPartition, int]:
        """Return the use of a context. Raises TubeError if it cannot be confirmed."""
        key, at, stamp = context.rpartition("@")
        try:
            if not at or not (stamp.isascii() and stamp.isdigit()):
                raise MalformedText(context, "a confirm context is broker:topic:partition@number")
            held = self._table.get(str(PartitionKey.parse(key)))
        except MalformedText as error:
            raise for_code(Code.BAD_REQUEST, str(error)) from None
        if held is None or held.stamp != int(stamp) or held.given is None:
            text = f"the messages of {context} can no longer be confirmed: they are redelivered"
            raise ConfirmTimeout(Code.CONFIRM_TIMEOUT, text)
        if held.confirming:
            raise for_code(Code.BAD_REQUEST, f"{context} is being confirmed already")
        return held, held.stamp

    async def _commit(
        self, held: RegisteredPartition, stamp: int, consumed: bool
    ) -> ConsumedOffset:
        at_least = 0.0
        try:
            reached = await self._calls.commit(held.partition, consumed=consumed)
            held.book(*reached)
            return reached
        except _NO_ANSWER:
            at_least = RETRY_SECONDS
            raise
        finally:
            self._put_back(held, stamp, consumed=consumed, at_least=at_least)


class _Slowness:
    """Tracks whether a get is one without an answer for SLOW_SECONDS."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._is_on = False

    def begin(self) -> None:
        self._is_on = True
        self._reading._slow += 1
        self._reading.fill()

    def end(self) -> None:
        if self._is_on:
            self._reading._slow -= 1


def _tell(waiter: "asyncio.Future[MQError | None]", error: MQError | None) -> None:
    if not waiter.done():
        waiter.set_result(error)
