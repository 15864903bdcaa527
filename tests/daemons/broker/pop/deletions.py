"""Deletions of the topic and the group of the tests of pops."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mq.daemons.broker.store.log.mapped_file import MappedFile
from mq.protocol.codes import RequestCode
from tests.daemons.broker.pop.consumers import GROUP, TOPIC

DELETIONS = {
    RequestCode.DELETE_TOPIC_IN_BROKER: {"topic": TOPIC},
    RequestCode.DELETE_SUBSCRIPTIONGROUP: {"groupName": GROUP, "removeOffset": "true"},
}


@contextmanager
def flushes_held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is flushed in here."""
    goes_on = threading.Event()
    sync = MappedFile.sync

    def sync_later(file: MappedFile) -> None:
        if threading.current_thread() is not threading.main_thread():
            goes_on.wait()
        sync(file)

    monkeypatch.setattr(MappedFile, "sync", sync_later)
    try:
        yield
    finally:
        goes_on.set()
