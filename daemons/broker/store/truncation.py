"""Cutting the end of the log off while the store is open: on a slave, whose master lacks it.

What is cut is kept in the folder damaged/ of the store, as what a start cuts. A start that follows
a kill amid all this has the end again, and whoever wanted it cut finds so.
"""

import asyncio
import errno

from mq.daemons.broker.store.errors import Damage
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.quarantine import put_aside


async def cut_end(store: MessageStore, end: int, why: str) -> list[Damage]:
    """Take away what lies behind a physical offset, with its entries in queues and index; says
    what was cut. Nothing may be appended meanwhile.

    Raises OSError, and StoreLoadError if what is cut cannot be kept: nothing has been cut then.
    """
    if not await store.flusher.drain():
        raise OSError(errno.EIO, str(store.flusher.halt))
    await store.next_file.discard()
    checkpointer, log = store.checkpointer, store.log
    async with checkpointer.turn:
        await checkpointer.lower(end)
        damages = await asyncio.to_thread(put_aside, store.root, list(log.files), end, why)
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
    store.forget_behind(end)
