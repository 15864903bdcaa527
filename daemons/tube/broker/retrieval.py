"""The newest messages of a partition, for administrators."""

import asyncio
from collections.abc import Collection

from mq.daemons.tube.broker.answers import BadRecords, messages_of
from mq.daemons.tube.broker.store.layout import INDEX_SIZE
from mq.daemons.tube.broker.store.reading import ReadRequest, ThreadRead
from mq.daemons.tube.broker.store.topic_store import TopicStore
from mq.protocol.tube.messages import TransferedMessage
from mq.protocol.tube.payload import key_code

_FILTER_FACTOR = 5  # times as many records of the index, if a filter skips some
_INDEX_FACTOR = 10  # records of other partitions in between
_LIMIT = 1024 * 1024


async def snapshot(
    store: TopicStore, partition: int, count: int, filters: Collection[str]
) -> list[TransferedMessage]:
    """Return at most ``count`` of the messages in the last records of the index.

    Raises OSError.
    """
    store.write_cached()
    codes = frozenset(map(key_code, filters)) if filters else None
    records = (count + 1) * _INDEX_FACTOR * (1 if codes is None else _FILTER_FACTOR)
    begin = max(store.min_index, store.max_index - records * INDEX_SIZE)
    wish = ReadRequest(partition, begin, codes, _LIMIT, store.max_index - begin, joined=False)
    reading = ThreadRead(store, wish)
    running = asyncio.ensure_future(asyncio.to_thread(reading.run))
    running.add_done_callback(lambda _: reading.end())
    found = await asyncio.shield(running)
    messages = []
    for piece in found.pieces:
        try:
            messages += messages_of(piece)
        except BadRecords:
            continue
    return messages[-count:]
