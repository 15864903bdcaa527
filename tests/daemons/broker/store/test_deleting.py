"""Topics deleted while messages are on their way to them."""

from pathlib import Path

import pytest

from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType
from tests.daemons.broker.store.stores import bodies, put, with_store


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_a_topic_deleted_under_a_send_does_not_stop_checkpoints(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "kept", 0, b"before")
        await put(store, "gone", 0, b"stored")
        # In the batch that is open while the topic is deleted.
        store.appender.append(
            store.queue("gone", 0),
            b"on its way",
            b"\0\0",
            flag=0,
            sys_flag=0,
            born_timestamp=0,
            born_host=store.appender.store_host,
        )
        store.delete_topic("gone")
        await put(store, "kept", 0, b"after")
        await store.checkpointer.checkpoint()
        assert not (store.root / "consumequeue" / "gone").exists()
        await put(store, "gone", 0, b"made again")
        assert bodies(store, "gone", 0) == [b"made again"]
        await store.checkpointer.checkpoint()

    async def reopened(store: MessageStore) -> None:
        assert bodies(store, "kept", 0) == [b"before", b"after"]
        assert bodies(store, "gone", 0) == [b"made again"]

    with_store(tmp_path, work, flush=flush)
    with_store(tmp_path, reopened)
