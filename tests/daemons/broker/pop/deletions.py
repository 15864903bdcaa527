"""Deletions of the topic and the group of the tests of pops."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.store.mapped_file import MappedFile
from mq.protocol.codes import RequestCode
from tests.daemons.broker.pop.consumers import GROUP, TOPIC, PopConsumer
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer

DELETIONS = {
    RequestCode.DELETE_TOPIC_IN_BROKER: {"topic": TOPIC},
    RequestCode.DELETE_SUBSCRIPTIONGROUP: {"groupName": GROUP, "removeOffset": "true"},
}


def run(
    root: Path, script: Callable[[Broker, Peer, PopConsumer], Awaitable[None]], **settings: str
) -> None:
    async def main() -> None:
        async with broker_on(root, **settings) as broker, Peer(broker.port) as peer:
            await script(broker, peer, PopConsumer(peer, broker))

    asyncio.run(main())


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
