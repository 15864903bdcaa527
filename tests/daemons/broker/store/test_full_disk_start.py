"""Starts on a full disk: readers are served, and messages are accepted when there is space."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import BrokerRole
from tests.daemons.broker.store.stores import HOST, put, settings

KEYS = b"KEYS\x01k\x02"  # as a start reads them


class Disk:
    """Refuses writes as a full disk with a file system that copies on write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        for name in ("pwrite", "write_all"):
            monkeypatch.setattr(files, name, self._refusing(getattr(files, name)))

    def _refusing(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any, **more: Any) -> Any:
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*arguments, **more)

        return refuse


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def fill(root: Path, disk: Disk, *, torn: bool) -> None:
    """Put three messages with keys, of which a checkpoint covers one, and crash on a full disk."""
    store = MessageStore(lambda: settings(root), HOST)
    await store.start()
    await put(store, "orders", 0, b"0", properties=KEYS, keys=("k",))
    await store.checkpointer.checkpoint()
    await put(store, "orders", 0, b"1", properties=KEYS, keys=("k",))
    await put(store, "orders", 0, b"2", properties=KEYS, keys=("k",))
    end = store.log.written
    disk.is_full = True
    await store.close()
    if torn:
        (file,) = (root / "commitlog").iterdir()
        with file.open("r+b") as opened:
            opened.seek(end)
            opened.write(b"\0\0\0\x80no record")


def bodies(store: MessageStore) -> int:
    return store.max_offset("orders", 0)


async def until_taken(store: MessageStore) -> None:
    works = {name: work for work, name in store.works()}
    await works["store: full disk"]()


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("is_new_mount", [False, True])
def test_a_store_on_a_full_disk_serves_readers_and_later_accepts_messages(
    tmp_path: Path,
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
    torn: bool,
    is_new_mount: bool,
) -> None:
    monkeypatch.setattr("mq.daemons.broker.store.message_store.FULL_DISK_SECONDS", 0)

    async def scenario() -> None:
        await fill(tmp_path, disk, torn=torn)
        assert (tmp_path / layout.ABORT_FILE).exists()
        if is_new_mount:
            (tmp_path / layout.ABORT_FILE).write_bytes(b"")
        before = (tmp_path / layout.CHECKPOINT_FILE).read_bytes()
        for _ in range(2):
            async with MessageStore(lambda: settings(tmp_path), HOST) as store:
                assert bodies(store) == 3
                with pytest.raises(StoreRefused, match=r"full at the start.*No space left"):
                    await put(store, "orders", 0, b"refused")
                await store.checkpointer.checkpoint()
            assert (tmp_path / layout.CHECKPOINT_FILE).read_bytes() == before
            assert (tmp_path / layout.ABORT_FILE).exists()
        async with MessageStore(lambda: settings(tmp_path), HOST) as store:
            taking = asyncio.create_task(until_taken(store))
            await asyncio.sleep(0)
            disk.is_full = False
            await taking
            assert (tmp_path / "damaged").exists() == torn
            await put(store, "orders", 0, b"3", properties=KEYS, keys=("k",))
            assert bodies(store) == 4
            assert store.key_index is not None
            assert len(set(store.key_index.find("orders", "k", 9, 0, 1 << 60))) == 4
        assert not (tmp_path / layout.ABORT_FILE).exists()
        async with MessageStore(lambda: settings(tmp_path), HOST) as store:
            assert (bodies(store), store.report.crashed) == (4, False)

    asyncio.run(scenario())


def test_a_slave_does_not_start_on_a_full_disk(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        await fill(tmp_path, disk, torn=False)
        slave = settings(tmp_path, broker_role=BrokerRole.SLAVE)
        with pytest.raises(OSError, match="No space left on device"):
            await MessageStore(lambda: slave, HOST).start()

    asyncio.run(scenario())


def test_an_empty_store_does_not_start_on_a_full_disk(tmp_path: Path, disk: Disk) -> None:
    async def scenario() -> None:
        disk.is_full = True
        with pytest.raises(OSError, match="No space left on device"):
            await MessageStore(lambda: settings(tmp_path), HOST).start()

    asyncio.run(scenario())
