"""Read tasks: they hold their partition, and make record batches of the replies of its broker.

A reply says at which place of the index it begins, and its confirmation where it ends; of its
messages none says where it is. Most replies lie in the range of the task. Of the one that goes past
its end it has to be known which messages do:

- if it has as many messages as index records, each one's place is known;
- else the partition is read again from the end of the range: the first message that comes is the
  first that is too much, and known by its id.

So what a range has is the same however often it is read, and wherever replies begin.
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

_AHEAD = 2  # replies, of a megabyte at most each
# Each partition waits for its turn, or a broker limits how fast it is read: no reason to give up.
_WAITING = (
    Code.ALL_PARTITION_WAITING,
    Code.ALL_PARTITION_INUSE,
    Code.SERVER_CONSUME_SPEED_LIMIT,
)
# How long a broker may leave what it acknowledged in memory; Java's writes it after 20 s at most.
_FLUSH_SECONDS = 60.0
# What passes when we come anew: the broker has forgotten us, is being started, or has newer tokens.
_PASSING = (
    Code.UNAUTHORIZED,
    Code.CERTIFICATE_FAILURE,
    Code.PARTITION_UNSUBSCRIBABLE,
    Code.CONFIRM_TIMEOUT,
)


@dataclass
class TubeTask(InputPartition):
    """What one task reads. No range is what an empty topic has."""

    whole: QueueRange | None
    skip_absent: bool = True  # go on without a broker that stays away, where a loss does not fail


def read(
    options: TubeReadOptions, schema: StructType, task: TubeTask
) -> Generator[pa.RecordBatch, None, None]:
    """The messages of a task's range, in their order.

    Raises DataLoss for messages that are not there any more if that is to fail, PartitionOccupied,
    and what a broker says that refuses.
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
        self._waits_since: float | None = None  # the broker has not given what is there

    async def replies(self) -> AsyncGenerator[Reply, None]:
        """The replies that have something of the range; iterate once."""
        while self._at < self._end:
            try:
                async with member(self._options) as consumer:
                    async with aclosing(self._replies(consumer)) as replies:
                        async for reply in replies:
                            yield reply
            except (ConnectError, RequestTimeout, BadAnswer, TubeError) as error:
                if not _is_passing(error):
                    raise
                if not await self._try_again(error):
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
            # Whoever did not flush what it acknowledged has lost it with a crash.
            self._lose(max(self._at, found.most), self._end, f"it ends at {found.most} now")
            self._end = found.most

    async def _pass_nothing(self, consumer: TubeBalanceConsumer, error: TubeError) -> None:
        """The broker had nothing for us: how far did it look?

        Of what it has in memory only it may say the end, and not give it until that is written.
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
        """What of a reply is in the range. Behind it is where the next one begins."""
        address = self._key
        if batch.offset < self._at:
            raise BadAnswer(address, f"messages from {batch.offset} on, which is before {self._at}")
        reached = await consumer.confirm(batch)
        if reached <= batch.offset:
            raise BadAnswer(address, f"messages from {batch.offset} on, to go on at {reached}")
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
        """How many messages of a reply lie before the end of the range, which it goes past."""
        if batch.offset >= self._end:
            return 0
        await consumer.disconnect(self._key)
        found = await hold(consumer, self._key, self._options, self._end)
        if found.offset != self._end or found.most < reached:
            text = f"it goes from {found.offset} to {found.most}, not from {self._end} to {reached}"
            raise BadAnswer(self._key, text)
        while True:
            try:
                behind = await consumer.get_message()
            except TubeError as error:
                if error.code in _WAITING:
                    continue
                if error.code != Code.NOT_FOUND:
                    raise
                if (await consumer.ask_offset(self._key)).offset >= reached:
                    return len(batch.messages)
                continue
            first = behind.messages[0].message_id
            ids = [message.message_id for message in batch.messages]
            return ids.index(first) if first in ids else len(ids)

    def _lose(self, begin: int, end: int, why: str = "they were deleted") -> None:
        if begin < end:
            fail = self._options.fail_on_data_loss
            report_gone(self._partition, begin, end, why, fail=fail)

    async def _try_again(self, error: MQError) -> bool:
        """Wait for a further try. Without one left: raise, or say what is not read and be False."""
        options = self._options
        self._failures += 1
        if self._failures > options.retries:
            if isinstance(error, NotAuthenticated):
                raise error
            report_away(
                f"{self._partition}, offset {self._at}: {self._failures} tries failed: {error}",
                self._end,
                error,
                fail=options.fail_on_data_loss,
                skip=self._skip_absent,
            )
            return False
        pause = options.retry_pause_ms / 1000 * 2 ** (self._failures - 1)
        log.warning("%s, offset %d: again in %g s: %s", self._partition, self._at, pause, error)
        await asyncio.sleep(pause)
        return True


def _is_passing(error: MQError) -> bool:
    """Whether the same may succeed a moment later."""
    return not isinstance(error, TubeError) or error.retriable or error.code in _PASSING
