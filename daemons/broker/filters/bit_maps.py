"""Stores, with each message, which groups' filters it matches.

Source: CommitLogDispatcherCalcBitMap of Java 4.9.8. Java creates a unit in the queue's extension
for every message once enableConsumeQueueExt is set. Here only a message with a bit map gets one,
because without a bit map the unit has only data that the entry and the record have.
"""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filters.table import ConsumerFilters
from mq.daemons.broker.store import ConsumeQueue, Extend, Queues, Unit, layout
from mq.protocol.names import is_system_topic


def extender(settings: BrokerSettings, filters: ConsumerFilters, queues: Queues) -> Extend:
    """The function that an Appender calls for each message; it returns the tags code of the queue
    entry.
    """

    def extend(queue: ConsumeQueue, tags_code: int, timestamp: int, properties_field: bytes) -> int:
        groups = filters.table.get(queue.topic)
        # The tags code of a delayed message is its due time, and consumers do not read it.
        if (
            groups is None
            or is_system_topic(queue.topic)
            or not settings.broker.enable_calc_filter_bit_map
        ):
            return tags_code
        properties = properties_field[layout.SHORT.size :]
        positions: list[int] = []
        for data in groups.values():
            wanted = data.filter
            if wanted is not None and wanted.memory.decide(properties, 0, len(properties)):
                positions += data.bit_positions
        unit = Unit(tags_code, timestamp, filters.bloom.map_of(positions))
        address = queues.extension(queue).append(unit)
        return tags_code if address is None else address

    return extend
