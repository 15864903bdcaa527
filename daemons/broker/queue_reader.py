"""Queue reader: finds messages of queues, reads them, and counts what was read.

Pulls, pops, peeks and filters by properties read through it; only how they answer differs.
"""

import asyncio
import os

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.message_finder import FoundMessages, MessageFinder
from mq.daemons.broker.stats import BrokerStats, GroupCounter
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.mapped_file import read_ranges
from mq.daemons.broker.store.message_store import MessageStore


class QueueReader:
    """Reads queues of a store.

    ``find`` is that of a MessageFinder. What lies further than ``warm_bytes`` behind the end of
    the log is probably not in memory.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        stats: BrokerStats,
    ) -> None:
        self._log = store.log
        self._stats = stats
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.warm_bytes = memory * settings.store.access_message_in_memory_max_ratio // 100
        self.find = MessageFinder(store, settings, self.warm_bytes).find

    async def read(self, found: FoundMessages) -> bytes:
        """The records of what was found; none if they have been deleted meanwhile."""
        ranges = found.ranges
        if not ranges or self._log.written - ranges[0][0] <= self.warm_bytes:
            return b"".join(self.slices(ranges) or ())
        files = [self._log.file_at(start) for start, _ in ranges]
        try:
            parts = await asyncio.to_thread(read_ranges, files, ranges)
        except OSError:
            return b""
        return b"".join(parts)

    def slices(self, ranges: list[tuple[int, int]]) -> list[bytes | memoryview] | None:
        """The records as slices of the mapped log; None if one is not there any more."""
        slices: list[bytes | memoryview] = []
        base = limit = 0
        for start, length in ranges:
            if not base <= start <= limit - length:
                file = self._log.file_at(start)
                if file is None:
                    return None
                base, limit, view = file.start, min(file.end, self._log.written), file.view
                if start + length > limit:
                    return None
            start -= base
            slices.append(view[start : start + length])
        return slices

    def is_warm(self, queue: ConsumeQueue, index: int) -> bool:
        """Whether a message is probably in memory, or there is none."""
        entry = queue.entry(index)
        return entry is None or self._log.written - entry[0] <= self.warm_bytes

    def count(self, topic: str, group: str, queue_id: int, found: FoundMessages) -> None:
        """Count what was given to a group."""
        counter = self._stats.group(topic, group, queue_id)
        self.count_read(counter, found.messages, found.size, found.end)

    def count_read(self, counter: GroupCounter, count: int, size: int, end: int) -> None:
        """Count what was read for a group of which this is the counter, up to a physical offset."""
        if count:
            counter.messages += count
            counter.size += size
            counter.pulls += 1
            counter.behind = self._log.written - end
            self._stats.found += 1
            self._stats.transferred += count
        else:
            self._stats.missed += 1
