"""Indexing continues after a temporary error."""

from typing import cast

from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.index.index import Index
from mq.daemons.broker.store.index.indexing import Indexing
from mq.daemons.broker.store.log.append import Appender
from mq.daemons.broker.store.log.batch import Batch


class FailingIndex:
    """An index whose next headers cannot be written."""

    fails = True

    def put(self, items: bytes, timestamp: int) -> None:
        pass

    def save_headers(self) -> None:
        if self.fails:
            raise OSError(5, "Input/output error")


class Causes:
    """The part of an appender that refuses messages."""

    def __init__(self) -> None:
        self.causes: set[str] = set()

    def refuse(self, cause: str, refusal: StoreRefused) -> None:
        self.causes.add(cause)

    def accept(self, cause: str) -> None:
        self.causes.discard(cause)


class Keyed:
    """A batch with one key."""

    keyed = b"x" * 12
    timestamp = 1


def test_messages_are_accepted_again_after_headers_could_not_be_written() -> None:
    index, appender = FailingIndex(), Causes()
    indexing = Indexing(cast(Index, index), cast(Appender, appender))
    indexing.put(cast(Batch, Keyed()))
    assert appender.causes == {"index"}
    assert indexing.is_behind
    indexing.put_rest()
    assert appender.causes == {"index"}
    index.fails = False
    indexing.put_rest()
    assert not appender.causes
    assert not indexing.is_behind
