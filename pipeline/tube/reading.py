"""Read tasks: they hold their partition, and build record batches from the replies of its broker.

A reply states its start in the index, and its confirmation returns its end; the messages have no
positions. Most replies are completely in the range of the task. If a reply extends past the end,
the messages after the end must be identified:

- if it has as many messages as index records, the position of each is known;
- otherwise the partition is read again from the end of the range: the first message that arrives is
  the first after the end, and is recognized by its id.

So a range has the same messages however often it is read, and wherever replies begin.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout
from mq.client.tube.balance_consumer import TubeBalanceConsumer
from mq.client.tube.errors import NotAuthenticated, TubeError
from mq.client.tube.message import TubeBatch
from mq.pipeline.data_loss import report_away, report_gone
from mq.pipeline.puller import QueueRange
from mq.pipeline.tables import Table
from mq.pipeline.tube.background import Background
from mq.pipeline.tube.columns import COLUMNS, Maker, Reply
from mq.pipeline.tube.offsets import INDEX_RECORD, TubePartition
from mq.pipeline.tube.options import TubeReadOptions
from mq.pipeline.tube.partition_group import hold, member
from mq.protocol.tube.codes import Code

log = logging.getLogger(__name__)

_AHEAD = 2  # replies, of at most a megabyte each
# Each partition waits for its turn, or a broker limits its rate: no reason to give up.
_WAITING = (
    Code.ALL_PARTITION_WAITING,
    Code.ALL_PARTITION_INUSE,
    Code.SERVER_CONSUME_SPEED_LIMIT,
)
# How long a broker may keep acknowledged messages in memory; Java's writes them after at most 20 s.
_FLUSH_SECONDS = 60.0
# Errors that a reconnect may solve: the broker has forgotten us, is starting, or has newer tokens.
_TRANSIENT = (
    Code.UNAUTHORIZED,
    Code.CERTIFICATE_FAILURE,
    Code.PARTITION_UNSUBSCRIBABLE,
    Code.CONFIRM_TIMEOUT,
)


@dataclass
class TubeTask(InputPartition):
    """The range that one task reads. An empty topic has none."""

    whole: QueueRange | None
    # continue without a broker that stays unavailable, if data loss is allowed
    skip_absent: bool = True


def read(
    options: TubeReadOptions, schema: StructType, task: TubeTask
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the messages of a task's range, in order.

    Raises DataLoss for deleted messages if the options say so, PartitionOccupied, and the errors of
    a broker that refuses.
    """
    table: Table[Maker] = Table(schema, COLUMNS)
    if task.whole is None:
        return
    reader = RangeReader(options, task.whole, skip_absent=task.skip_absent)
    with Background() as background:
        for reply in background.iterate(reader.replies(), _AHEAD):
            if reply.messages:
                yield table.batch(len(reply.messages), partial(_made, reply))


def _made(reply: Reply, make: Maker) -> pa.Array:
    return make(reply)


class RangeReader:
    """Reads a range of a partition."""

    def __init__(
        self, options: TubeReadOptions, whole: QueueRange, *, skip_absent: bool = True
    ) -> None:
        self._options = options
        self._partition = TubePartition(*whole[:3])
        self._key = self._partition.key
        self._at = whole.begin
        self._end = whole.end
        self._skip_absent = skip_absent
        self._failures = 0
        # since when the broker has not returned existing messages
        self._waits_since: float | None = None

    async def replies(self) -> AsyncGenerator[Reply, None]:
        """Yield the replies with messages of the range; iterate once."""
        while self._at < self._end:
            try:
                async with member(self._options) as consumer:
                    async with aclosing(self._replies(consumer)) as replies:
                        async for reply in replies:
                            yield reply
            except (ConnectError, RequestTimeout, BadAnswer, TubeError) as error:
                if not _is_transient(error):
                    raise
                if not await self._retry(error):
                    return

    async def _replies(self, consumer: TubeBalanceConsumer) -> AsyncGenerator[Reply, None]:
        await self._hold(consumer)
        while self._at < self._end:
            try:
                batch = await consumer.get_message()
            except TubeError as error:
                if error.code == Code.NOT_FOUND:
                    await self._pass_nothing(consumer, error)
                elif error.code not in _WAITING:
                    raise
                continue
            reply = await self._take(consumer, batch)
            self._failures, self._waits_since = 0, None
            yield reply

    async def _hold(self, consumer: TubeBalanceConsumer) -> None:
        found = await hold(consumer, self._key, self._options, self._at)
        if found.offset > self._at:
            self._lose(self._at, min(found.offset, self._end))
            self._at = found.offset
        if 0 <= found.most < self._end:
            # A broker that did not flush acknowledged messages loses them in a crash.
            self._lose(max(self._at, found.most), self._end, f"it ends at {found.most} now")
            self._end = found.most

    async def _pass_nothing(self, consumer: TubeBalanceConsumer, error: TubeError) -> None:
        """Find out how far the broker searched when it had nothing for us.

        It may report an end that includes messages in its memory, and not return these until they
        are written.
        """
        now = asyncio.get_running_loop().time()
        reached = (await consumer.ask_offset(self._key)).offset
        if reached > self._at:
            self._at, self._waits_since = reached, None
            self._failures = 0
        elif self._waits_since is None:
            self._waits_since = now
        elif now - self._waits_since > _FLUSH_SECONDS:
            self._waits_since = None
            raise error

    async def _take(self, consumer: TubeBalanceConsumer, batch: TubeBatch) -> Reply:
        """Return the part of a reply that is in the range, and move on to the next reply."""
        address = self._key
        if batch.offset < self._at:
            raise BadAnswer(address, f"messages from {batch.offset} on, which is before {self._at}")
        reached = await consumer.confirm(batch)
        if reached <= batch.offset:
            raise BadAnswer(address, f"messages from {batch.offset} on, but next offset {reached}")
        if batch.offset > self._at:
            self._lose(self._at, min(batch.offset, self._end))
        messages = batch.messages
        exact = reached - batch.offset == len(messages) * INDEX_RECORD
        if reached > self._end:
            if exact:
                messages = messages[: max(0, self._end - batch.offset) // INDEX_RECORD]
            else:
                messages = messages[: await self._count_before_end(consumer, batch, reached)]
        self._at = reached
        return Reply(self._key, batch.offset, exact, messages)

    async def _count_before_end(
        self, consumer: TubeBalanceConsumer, batch: TubeBatch, reached: int
    ) -> int:
        """Count the messages of a reply before the end of the range, past which it extends."""
        if batch.offset >= self._end:
            return 0
        await consumer.disconnect(self._key)
        found = await hold(consumer, self._key, self._options, self._end)
        if found.offset != self._end or found.most < reached:
            text = f"it goes from {found.offset} to {found.most}, not from {self._end} to {reached}"
            raise BadAnswer(self._key, text)
        while True:
            try:
                after = await consumer.get_message()
            except TubeError as error:
                if error.code in _WAITING:
                    continue
                if error.code != Code.NOT_FOUND:
                    raise
                if (await consumer.ask_offset(self._key)).offset >= reached:
                    return len(batch.messages)
                continue
            first = after.messages[0].message_id
            ids = [message.message_id for message in batch.messages]
            return ids.index(first) if first in ids else len(ids)

    def _lose(self, begin: int, end: int, why: str = "they were deleted") -> None:
        if begin < end:
            fail = self._options.fail_on_data_loss
            report_gone(self._partition, begin, end, why, fail=fail)

    async def _retry(self, error: MQError) -> bool:
        """Pause before another attempt. If none is left, raise, or report the unread part and
        return False.
        """
        options = self._options
        self._failures += 1
        if self._failures > options.retries:
            if isinstance(error, NotAuthenticated):
                raise error
            report_away(
                f"{self._partition}, offset {self._at}: {self._failures} attempts failed: {error}",
                self._end,
                error,
                fail=options.fail_on_data_loss,
                skip=self._skip_absent,
            )
            return False
        pause = options.retry_pause_ms / 1000 * 2 ** (self._failures - 1)
        log.warning("%s, offset %d: retrying in %g s: %s", self._partition, self._at, pause, error)
        await asyncio.sleep(pause)
        return True


def _is_transient(error: MQError) -> bool:
    """Whether a retry may succeed a moment later."""
    return not isinstance(error, TubeError) or error.retriable or error.code in _TRANSIENT
