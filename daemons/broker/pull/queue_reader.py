"""Queue reader: finds messages of queues, reads them, and counts them.

Pulls, pops, peeks and filters by properties read through it; only their replies differ.
"""

import os

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.pull.message_finder import FoundMessages, MessageFinder
from mq.daemons.broker.statistics.stats import BrokerStats, GroupCounter
from mq.daemons.broker.store import ConsumeQueue, MessageStore, NotInMemory, Residency


class QueueReader:
    """Reads queues of a store.

    ``find`` is the method of a MessageFinder; ``residency`` says which records are in memory.
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
        self.young_bytes = memory * settings.store.access_message_in_memory_max_ratio // 100
        self.residency = Residency(store.log)
        self.find = MessageFinder(store, settings).find

    async def read(self, found: FoundMessages) -> bytes:
        """Return the found records; nothing if they have been deleted meanwhile. Raises OSError."""
        missing = [
            chunk
            for start, length in found.ranges
            for chunk in self.residency.missing(start, length)
        ]
        if missing:
            await self.residency.load(NotInMemory(missing))
        return b"".join(self.records(found.ranges) or ())

    def records(self, ranges: list[tuple[int, int]]) -> list[bytes | memoryview] | None:
        """Return copies of the records; None if one has been deleted. Raises OSError.

        Slices of the mapped log would not do: if a peer reads slowly, sending them would touch
        pages long after these were evicted from memory.
        """
        records: list[bytes | memoryview] = []
        for start, length in ranges:
            data = self._log.read(start, length)
            if data is None:
                return None
            records.append(data)
        return records

    def is_young(self, queue: ConsumeQueue, index: int) -> bool:
        """Whether a message is near enough to the end of the log to count as in memory by Java's
        rule, or does not exist (checkInDiskByConsumeOffset).
        """
        entry = queue.entry(index)
        return entry is None or self._log.written - entry[0] <= self.young_bytes

    def count(self, topic: str, group: str, queue_id: int, found: FoundMessages) -> None:
        """Count messages that a group has received."""
        counter = self._stats.group(topic, group, queue_id)
        self.count_read(counter, found.messages, found.size, found.end)

    def count_read(self, counter: GroupCounter, count: int, size: int, end: int) -> None:
        """Count messages that a group has received, up to a physical offset, in the group's
        counter.
        """
        if count:
            counter.messages += count
            counter.size += size
            counter.pulls += 1
            counter.behind = self._log.written - end
            self._stats.found += 1
            self._stats.transferred += count
        else:
            self._stats.missed += 1
