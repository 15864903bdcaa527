"""Pulls of what is probably not in memory: the loop must not wait for a disk."""

import asyncio
from collections.abc import Coroutine

from mq.client.machine import clock
from mq.daemons.broker.handlers.pull_reply import answer_pull, request_of
from mq.daemons.broker.long_polling import COST
from mq.daemons.broker.message_finder import RETRY, FoundMessages
from mq.daemons.broker.queue_reader import QueueReader
from mq.daemons.broker.stats import BrokerStats, GroupCounter
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.mapped_file import read_ranges
from mq.daemons.channel import Channel


class ColdPulls:
    """Answers pulls a little later, with what a thread has read."""

    def __init__(self, log: CommitLog, reader: QueueReader, stats: BrokerStats) -> None:
        self._log = log
        self._reader = reader
        self._stats = stats
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait for reads from the disk that are under way."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def answer(
        self,
        header: dict[str, object],
        channel: Channel,
        queue: ConsumeQueue,
        found: FoundMessages,
        counter: GroupCounter,
        suggested: int,
    ) -> None:
        """Read what was found in a thread, and send it."""
        work = self._read(header, channel, queue, found, counter, suggested)
        self.run(work, header, channel)

    def run(
        self, work: Coroutine[None, None, None], header: dict[str, object], channel: Channel
    ) -> None:
        """Have a pull answered by this work; whatever goes wrong is an answer, too."""

        async def answer() -> None:
            try:
                await work
            except Exception as error:
                channel.reply_error(request_of(header), error)

        task = asyncio.ensure_future(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(
        self,
        header: dict[str, object],
        channel: Channel,
        queue: ConsumeQueue,
        found: FoundMessages,
        counter: GroupCounter,
        suggested: int,
    ) -> None:
        code, next_offset, ranges, count, size = found
        files = [self._log.file_at(start) for start, _ in ranges]
        began = clock.monotonic()
        owed = COST + size
        channel.owe(owed)
        try:
            slices = await asyncio.to_thread(read_ranges, files, ranges)
        except OSError:  # the file was deleted by age meanwhile
            code, slices, count, size = RETRY, [], 0, 0
        finally:
            channel.owe(-owed)
        answer_pull(header, channel, queue, code, next_offset, slices, size, suggested)
        self._reader.count_read(counter, count, size, found.end)
        waited = int((clock.monotonic() - began) * 1000)
        counter.waited += waited
        self._stats.longest_read = max(self._stats.longest_read, waited)
