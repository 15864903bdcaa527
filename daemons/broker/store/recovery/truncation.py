"""Truncates the end of the log while the store is open: on a slave, whose master lacks that end.

The removed part is kept in the folder damaged/ of the store, as by a start. A start after a kill
during the truncation finds the end again, and the slave truncates it again.
"""

import asyncio
import errno

from mq.daemons.broker.store.errors import Damage
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.recovery.quarantine import keep_after


async def cut_end(store: MessageStore, end: int, why: str) -> list[Damage]:
    """Remove everything after a physical offset, with its entries in queues and index; returns the
    damages. Nothing may be appended meanwhile.

    Raises OSError, and StoreLoadError if the removed part cannot be kept: nothing was removed then.
    """
    if not await store.flusher.drain():
        raise OSError(errno.EIO, str(store.flusher.halt))
    await store.next_file.discard()
    checkpointer, log = store.checkpointer, store.log
    async with checkpointer.turn:
        await checkpointer.lower(end)
        damages = await asyncio.to_thread(keep_after, store.root, list(log.files), end, why)
        bound = store.bound
        if bound is not None:
            bound.lift(store.queues)
        try:
            _cut(store, end)
        finally:
            if bound is not None:
                bound.hide(store.queues, log.written)
    return damages


def _cut(store: MessageStore, end: int) -> None:
    log = store.log
    for queue in store.queues:
        queue.cut(end)
        queue.set_minimum(log.minimum)
    if store.key_index is not None:
        store.key_index.cut(end)
        store.key_index.save_headers()
    log.cut(end)
    store.truncated_at(end)
