"""Logs of masters, and slaves that receive their bytes."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.replica import replica as replica_module
from mq.daemons.broker.store.replica.replica import Replica
from mq.daemons.broker.store_config import BrokerRole
from tests.daemons.broker.store.stores import put, with_store

PATHS = ("native", "Python")


def written(root: Path, count: int = 60) -> bytes:
    """The log of a master, all of it."""

    async def fill(store: MessageStore) -> bytes:
        for number in range(count):
            body, key = b"%d-" % number * (number % 90), f"k{number}"
            properties = f"KEYS\x01{key}".encode()
            await put(store, "orders", number % 3, body, keys=(key,), properties=properties)
        log = store.log
        parts = [bytes(file.view[: min(file.end, log.written) - file.start]) for file in log.files]
        return b"".join(parts)

    return with_store(root, fill)


def on_slave(root: Path, work: Callable[[MessageStore, Replica], Awaitable[None]],
             **changes: object) -> None:  # fmt: skip
    async def run(store: MessageStore) -> None:
        assert store.replica is not None
        await work(store, store.replica)

    with_store(root, run, broker_role=BrokerRole.SLAVE, **changes)


# The first messages of queues at the master, by topic and id.
Firsts = dict[tuple[str, int], int]


def receive(replica: Replica, data: bytes, size: int, firsts: Firsts | None = None) -> None:
    """Pass pieces to a slave whose master answers its questions about queues."""
    for start in range(0, len(data), size):
        replica.receive(replica.received, data[start : start + size])
        while replica.doubt is not None:
            assert firsts is not None
            replica.decide({queue: firsts.get(queue) for queue in replica.queues_in_doubt()})


def firsts_of(store: MessageStore) -> Firsts:
    found = {}
    for queue in store.queues:
        entry = queue.entry(queue.minimum)
        if entry is not None:
            found[queue.topic, queue.queue_id] = entry[0]
    return found


def log_of(store: MessageStore) -> bytes:
    log = store.log
    return b"".join(
        bytes(file.view[: min(file.end, log.written) - file.start]) for file in log.files
    )


def read_by(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slaves read records by one of the `PATHS`; skip the test if that does not exist."""
    if path == "Python":
        monkeypatch.setattr(replica_module, "_read_records", None)
    elif replica_module._read_records is None:
        pytest.skip("the native path is not built")
