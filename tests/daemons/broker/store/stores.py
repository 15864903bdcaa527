"""Small stores for tests: files of a few kilobytes, so that rolling and cutting happen at once."""

import asyncio
import ctypes
import errno
import mmap
import os
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import MappedFile
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.recovery import recovery, replay
from mq.daemons.broker.store_config import FlushDiskType, MessageStoreConfig
from mq.protocol.command import RESPONSE, Command
from mq.protocol.frame import decode, encode
from mq.protocol.message import StoredMessage, encode_record

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
LOG_FILE = 4096
QUEUE_FILE = 400  # 20 entries
_LIBC = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


@pytest.fixture(params=["native", "Python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path, native or Python, that reads the log at a start."""
    if request.param == "Python":
        monkeypatch.setattr(replay, "_read_records", None)
    elif replay._read_records is None:
        pytest.skip("the native path is not built")


def settings(root: Path, **changes: Any) -> MessageStoreConfig:
    return MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=changes.pop("log_file", LOG_FILE),
        mapped_file_size_consume_queue=changes.pop("queue_file", QUEUE_FILE),
        max_hash_slot_num=changes.pop("slots", 50),
        max_index_num=changes.pop("items", 100),
        flush_disk_type=changes.pop("flush", FlushDiskType.ASYNC_FLUSH),
        **changes,
    )


def open_files(folder: Path) -> int:
    """The number of descriptors of this process for files below a folder; other files come and
    go."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += os.readlink(link).startswith(f"{folder}/")
        except FileNotFoundError:  # of another thread, or of this listing
            continue
    return count


def with_store(root: Path, work: Callable[[MessageStore], Awaitable[T]], **changes: Any) -> T:
    """Open a store, run an action on it, close it."""
    config = settings(root, **changes)

    async def run() -> T:
        async with MessageStore(lambda: config, HOST) as store:
            return await work(store)

    return asyncio.run(run())


async def put(
    store: MessageStore,
    topic: str,
    queue_id: int,
    *bodies: bytes,
    properties: bytes = b"",
    keys: tuple[str, ...] = (),
    tags_code: int = 0,
) -> list[int]:
    """Append messages and wait until they are stored; returns their physical offsets.

    Raises StoreRefused as the store does.
    """
    loop = asyncio.get_running_loop()
    stored: asyncio.Future[None] = loop.create_future()

    def done(refusal: StoreRefused | None) -> None:
        if refusal is None:
            stored.set_result(None)
        else:
            stored.set_exception(refusal)

    physicals = []
    for body in bodies:
        physical = store.appender.append(
            store.queue(topic, queue_id),
            body,
            len(properties).to_bytes(2, "big") + properties,
            flag=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            born_host=HOST,
            tags_code=tags_code,
        )
        if keys:
            store.appender.index(topic, keys, physical)
        physicals.append(physical)
    store.appender.call_when_stored(done)
    await stored
    return physicals


def bodies(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """The bodies of all readable messages of a queue, in order."""
    found = []
    for offset in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)):
        entry = store.entries.at(topic, queue_id, offset)
        assert entry is not None
        record = store.record_at(entry[0])
        assert record is not None and len(record) == entry[1]
        size = int.from_bytes(record[84:88], "big")
        found.append(record[88 : 88 + size])
    return found


def crashed_copy(store: MessageStore, target: Path) -> Path:
    """Copy what a kill -9 at this moment would leave to another folder."""
    shutil.copytree(store.root, target)
    return as_of_a_kill(target)


def as_of_a_kill(root: Path) -> Path:
    """Make a copy of a store look as if it was killed here, with its page cache intact.

    A store that was closed, or that Java had open, stays unchanged.
    """
    abort = root / layout.ABORT_FILE
    if abort.exists() and abort.read_bytes():
        abort.write_bytes(recovery.page_cache_id(abort))
    return root


class Sink:
    """Receives the replies of an appender, as a connection does."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.writes: list[list[Command]] = []  # the replies of each flush
        self.written = asyncio.Event()

    def queue_frame(self, frame: bytes) -> None:
        self.frames.append(frame)

    def flush(self) -> None:
        self.writes.append([decode(frame[4:]) for frame in self.frames])
        self.frames.clear()
        self.written.set()

    async def next_write(self) -> list[Command]:
        """Wait for replies; takes the oldest write."""
        async with asyncio.timeout(30):
            await self.written.wait()
        write = self.writes.pop(0)
        if not self.writes:
            self.written.clear()
        return write


def append(
    store: MessageStore,
    sink: Sink,
    opaque: int,
    body: bytes = b"body",
    *,
    topic: str = "orders",
    promptly: bool = False,
) -> int:
    """Append one message whose reply goes to a sink; returns its physical offset."""
    physical = store.appender.append(
        store.queue(topic, 0),
        body,
        b"\0\0",
        flag=0,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        born_host=HOST,
    )
    reply = Command(0, {"msgId": f"id{opaque}", "queueOffset": "0"}, opaque=opaque, flag=RESPONSE)
    store.appender.reply_when_stored(sink, encode(reply), promptly)
    return physical


async def leave_refused(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have messages refused by a full disk that cannot clear their bytes either."""

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        fill_disk(patch, 150)  # the first of both, and some of the second
        patch.setattr(files, "ftruncate", fail)
        with pytest.raises(StoreRefused, match="cannot write the commit log"):
            await put(store, "orders", 0, b"refused", b"refused")


def hold_fsyncs(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make every fsync wait until the event returned is set."""
    gate = threading.Event()
    real = os.fdatasync

    def wait_and_sync(descriptor: int) -> None:
        assert gate.wait(30)
        real(descriptor)

    monkeypatch.setattr(files, "fdatasync", wait_and_sync)
    return gate


def note_fsyncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the paths that are fsynced from now on, in order."""
    synced: list[str] = []
    real = os.fdatasync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(files, "fdatasync", note)
    return synced


def fail_fsyncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every fsync fail, as on a disk that loses data."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "fdatasync", fail)


def fill_disk(monkeypatch: pytest.MonkeyPatch, room: int = 0) -> None:
    """Let writes store this many bytes more, and then fail as on a full disk."""
    real = os.pwrite
    left = room

    def write(descriptor: int, data: bytes | memoryview, position: int) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, data[:left], position)
        left -= written
        return written

    monkeypatch.setattr(files, "pwrite", write)


def evict(log: CommitLog) -> None:
    """Evict the written part of a log from memory, as a machine under memory pressure does."""
    probe = MappedFile(log.paths[0] / "probe", 0, 4096)
    probe.write(b"x", 0)
    goes = _evict(probe, 1)
    probe.delete()
    if not goes:
        pytest.skip("the file system keeps everything in memory")
    for file in log.files:
        assert _evict(file, 30), f"the kernel keeps {file.path} in memory"


class Reads:
    """Record the reads into memory: offset in the log, bytes, whether a thread read."""

    def __init__(self) -> None:
        self.done: list[tuple[int, int, bool]] = []

    def has(self, offset: int) -> bool:
        return any(start <= offset < start + size for start, size, _ in self.done)


def forget_pages(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Let only flushed data that is read from now on count as in memory.

    Works on any file system, while `evict` needs one that evicts pages.
    """
    reads = Reads()
    real = MappedFile.read_into

    def read_into(self: MappedFile, buffer: memoryview, position: int) -> None:
        is_thread = threading.current_thread() is not threading.main_thread()
        real(self, buffer, position)
        reads.done.append((self.start + position, len(buffer), is_thread))

    def is_in_memory(self: MappedFile, position: int) -> bool:
        return reads.has(self.start + position)

    monkeypatch.setattr(MappedFile, "read_into", read_into)
    monkeypatch.setattr(MappedFile, "is_in_memory", is_in_memory)
    return reads


def _evict(file: MappedFile, seconds: float) -> bool:
    """Whether a file was evicted from memory at last: the kernel keeps dirty pages, and those in a
    list of a processor. Asks mincore, because a read without waiting reads ahead.
    """
    end = time.monotonic() + seconds
    file.sync()
    if file._map is not None:
        file._map.madvise(mmap.MADV_DONTNEED)  # what is mapped stays
    with mmap.mmap(file.descriptor, file.size, flags=mmap.MAP_PRIVATE) as pages:
        start = (ctypes.c_char * file.size).from_buffer(pages)
        found = (ctypes.c_ubyte * -(-file.size // mmap.PAGESIZE))()
        try:
            while True:
                os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                if _LIBC.mincore(start, ctypes.c_size_t(file.size), found) != 0:
                    raise OSError(ctypes.get_errno(), "mincore")
                if not any(page & 1 for page in found):
                    return True
                if time.monotonic() > end:
                    return False
                time.sleep(0.01)
        finally:
            del start


def record(physical: int, body: bytes) -> bytes:
    """A record as in the log."""
    message = StoredMessage("Topic", body, {"UNIQ_KEY": "A"})
    message.physical_offset = physical
    return encode_record(message)
