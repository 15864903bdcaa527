"""Indexing: puts published batches into the key index, and keeps them while it cannot be
written."""

import logging

from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.index.index import Index
from mq.daemons.broker.store.log.append import Appender
from mq.daemons.broker.store.log.batch import Batch
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)


class Indexing:
    """Puts batches into an index, if there is one. ``appender`` refuses messages while the index
    cannot be written.
    """

    def __init__(self, index: Index | None, appender: Appender) -> None:
        self._index = index
        self._appender = appender
        self._waiting: list[tuple[bytes, int]] = []  # items, with their store timestamps
        self._headers_failed = False  # headers of indexed items could not be saved the last time

    @property
    def is_behind(self) -> bool:
        """Whether a published batch is not in the index yet."""
        return bool(self._waiting) or self._headers_failed

    def put(self, batch: Batch) -> None:
        """Index a published batch."""
        if batch.keyed and self._index is not None:
            self._waiting.append((bytes(batch.keyed), batch.timestamp))
            self.put_rest()

    def put_rest(self) -> None:
        """Index the batches that wait. If the disk is full, messages are refused until this
        succeeds.
        """
        if not self.is_behind or self._index is None:
            return
        put = self._index.put
        done = 0
        try:
            for items, timestamp in self._waiting:
                put(items, timestamp)
                done += 1
            self._headers_failed = True
            self._index.save_headers()
            self._headers_failed = False
        except OSError as error:
            refusal = StoreRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"store refused: the key index cannot be written: {error}",
            )
            log.error("%s", refusal)
            self._appender.refuse("index", refusal)
        else:
            self._appender.accept("index")
        del self._waiting[:done]
