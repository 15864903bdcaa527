"""All stores of a broker: opening for its topics, cleaning, deleting, closing.

Stores are opened in threads before their topics are announced: recovery reads and fsyncs.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.broker.store import Damage, StoreLock, StoreLocked
from mq.daemons.open_files import most_open_files
from mq.daemons.state_file import make_folder
from mq.daemons.tube.broker.store.errors import FlushMode
from mq.daemons.tube.broker.store.flusher import Flusher
from mq.daemons.tube.broker.store.layout import STORE_BASE, store_key
from mq.daemons.tube.broker.store.recovery import RecoveredStore, recover
from mq.daemons.tube.broker.store.retention import delete_expired, kept_ms
from mq.daemons.tube.broker.store.topic_store import TopicStore
from mq.daemons.tube.broker.topics import Topic

log = logging.getLogger(__name__)

_FILES_OF_A_STORE = 2  # at least: one of data, one of the index
_REMOVED = ".removed"  # the folder of a store that is being deleted

Opened = dict[tuple[str, int], TopicStore]  # by topic and number

# Called for recovered stores before they are served.
BeforeServing = Callable[[Opened], Awaitable[object]]


class Stores:
    """The stores under ``root`` (primaryPath), by topic and number.

    ``before_serving`` may raise OSError to prevent the opening of a store.
    """

    def __init__(
        self,
        root: Path,
        data_size: int,
        index_size: int,
        mode: FlushMode,
        flusher: Flusher,
        before_serving: BeforeServing | None = None,
    ) -> None:
        self.root = root
        self.mode = mode
        self.flusher = flusher
        self.damages: list[Damage] = []
        self.deleted = 0  # expired files
        self.held_files = 0  # open ones, as of the last check
        # A quarter of this process's open files is reserved for connections and saved files.
        most = most_open_files()
        self._most_files = most - most // 4
        self._sizes = data_size, index_size
        self._before_serving = before_serving or _nothing_first
        self._stores: dict[str, list[TopicStore | None]] = {}
        self._opening = asyncio.Lock()
        self._lock: StoreLock | None = None

    def open_root(self) -> None:
        """Lock the folder, and finish interrupted deletions. For a thread.

        Raises StoreLocked if another process has it, and OSError.
        """
        make_folder(self.root)
        lock = StoreLock(self.root)
        try:
            lock.take()
        except StoreLocked:
            text = f"{self.root} is in use by another broker: stop it, or set primaryPath"
            raise StoreLocked(text) from None
        self._lock = lock
        for name in files.folders(self.root):
            if name.endswith(_REMOVED):
                files.remove_tree(self.root / name)

    def get(self, topic: str, partition: int) -> TopicStore | None:
        """Return the store of a partition, if it is open."""
        number = partition // STORE_BASE
        stores = self._stores.get(topic, ())
        return stores[number] if 0 <= number < len(stores) else None

    def of_topic(self, topic: str) -> Iterator[tuple[int, TopicStore]]:
        """Yield the open stores of a topic, with their numbers."""
        for number, store in enumerate(self._stores.get(topic, ())):
            if store is not None:
                yield number, store

    def __iter__(self) -> Iterator[TopicStore]:
        for stores in self._stores.values():
            for store in stores:
                if store is not None:
                    yield store

    def names(self) -> list[str]:
        return list(self._stores)

    async def open(self, topics: Iterable[Topic]) -> None:
        """Open the stores of topics that are not open yet, and apply the settings of all.

        Raises OSError, also for too many open files, and StoreLoadError; those that were opened
        before stay open.
        """
        async with self._opening:
            self._count_files()
            opened: Opened = {}
            try:
                for topic in topics:
                    stores = self._stores.setdefault(topic.name, [])
                    stores += [None] * (topic.stores - len(stores))
                    for number in range(topic.stores):
                        store = stores[number]
                        if store is None:
                            opened[topic.name, number] = await self._open(topic, number)
                        else:
                            store.settings = topic.flush
            finally:
                await self._serve(opened)

    async def _serve(self, opened: Opened) -> None:
        """Publish opened stores. Raises OSError: none of them is published."""
        if opened:
            try:
                await self._before_serving(opened)
            except BaseException:
                for store in opened.values():
                    store.close()
                raise
        for (topic, number), store in opened.items():
            self._stores[topic][number] = store

    async def _open(self, topic: Topic, number: int) -> TopicStore:
        key = store_key(topic.name, number)
        if self.held_files + _FILES_OF_A_STORE > self._most_files:
            text = (
                f"its stores have {self.held_files} files open, and of those that it may open one "
                "in four is for other things: raise the limit (ulimit -n, LimitNOFILE)"
            )
            raise OSError(errno.EMFILE, text, key)
        began = clock.monotonic()
        opening = asyncio.ensure_future(asyncio.to_thread(recover, self.root / key, *self._sizes))
        try:
            recovered = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        self.held_files += len(recovered.data.segments) + len(recovered.index.segments)
        for damage in recovered.damages:
            log.error("recovery of %s: %s", key, damage)
        self.damages += recovered.damages
        if recovered.records or recovered.damages:
            log.info(
                "recovered %s: %d records read, %d bytes of the index rebuilt, in %.1f s",
                key, recovered.records, recovered.reindexed, clock.monotonic() - began,
            )  # fmt: skip
        folder = self.root / key
        return TopicStore(key, folder, recovered, self.mode, topic.flush, self.flusher.request)

    async def remove(self, topic: Topic) -> None:
        """Delete the stores of a topic with all their data. Raises OSError: some may remain.

        A kill in between leaves a folder under another name, which the next start deletes.
        """
        async with self._opening:
            for store in self._stores.pop(topic.name, ()):
                if store is not None:
                    store.finish()
                    store.closed = True  # no flush and no checkpoint of it begins any more
                    try:
                        await self.flusher.run(_nothing)  # after those that had begun
                    finally:
                        store.close()
            for number in range(topic.stores):
                folder = self.root / store_key(topic.name, number)
                # Not during a checkpoint: it would create the folder again.
                await self.flusher.run(partial(_remove_folder, folder))

    async def clean(self, topics: Iterable[Topic]) -> None:
        """Delete expired files."""
        for topic in list(topics):
            keep = kept_ms(topic.delete_policy)
            for _, store in list(self.of_topic(topic.name)):
                self.deleted += await delete_expired(store, keep, clock.milliseconds())
        if not self._opening.locked():  # else files are open that belong to no store yet
            self._count_files()

    def _count_files(self) -> None:
        self.held_files = sum(
            len(store.data.segments) + len(store.index.segments) for store in self
        )

    async def close(self) -> None:
        """Write and flush held data, write checkpoints, close the files. Idempotent."""
        for store in self:
            store.finish()
            self.flusher.request(store)
        await self.flusher.settle()
        for store in self:
            await self.flusher.checkpoint(store)
            store.close()
        self._stores.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _nothing() -> None:
    pass


async def _nothing_first(*_: object) -> None:
    pass


def _remove_folder(folder: Path) -> None:
    if not files.exists(folder):
        return
    gone = folder.with_name(folder.name + _REMOVED)
    files.remove_tree(gone)
    files.rename(folder, gone)
    files.sync_folder(folder.parent)
    files.remove_tree(gone)


def _close_unwanted(opening: "asyncio.Future[RecoveredStore]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        recovered = opening.result()
        recovered.data.close()
        recovered.index.close()
