"""Helpers for appends: what was written, and waiters that fail."""

from pathlib import Path

from mq.daemons.broker.store.message_store import MessageStore
from tests.daemons.broker.store.stores import Sink, bodies

# A record of topic "orders" without properties is 97 bytes longer than its body.
OVERHEAD = 97


def log_bytes(root: Path, start: int) -> bytes:
    return (root / "commitlog" / f"{start:020d}").read_bytes()


class BrokenSink(Sink):
    def flush(self) -> None:
        raise RuntimeError("the sink is broken")


async def all_there(store: MessageStore) -> None:
    assert len(bodies(store, "orders", 0)) == 4
