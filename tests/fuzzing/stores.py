"""Files of a store with arbitrary bytes: the next start reports them and continues, or refuses."""

import asyncio
import shutil
import struct
import tempfile
from pathlib import Path

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store.errors import StoreError
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.service import CannotStart

HOST = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)
SETTINGS = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "600",
    "maxHashSlotNum": "10",
    "maxIndexNum": "40",
    "maxMessageSize": "4096",
}


class Stores:
    """A store of a few messages, copied for each input and damaged as it says."""

    def __init__(self) -> None:
        shm = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.good = self.root / "good"
        asyncio.run(self._fill())
        self.files = sorted(
            path.relative_to(self.good)
            for path in self.good.rglob("*")
            if path.is_file() and path.name != "lock"
        )

    def _store(self, root: Path) -> MessageStore:
        settings = BrokerSettings.load(None, {**SETTINGS, "storePathRootDir": str(root)})
        return MessageStore(lambda: settings.store, HOST)

    async def _fill(self) -> None:
        async with self._store(self.good) as store:
            for number in range(60):
                queue = store.queue(f"T{number % 2}", number % 3)
                stored = asyncio.get_running_loop().create_future()
                position = store.appender.append(
                    queue,
                    b"x" * (number * 7),
                    struct.pack(">h", 7) + b"KEYS\x01ab",
                    flag=0,
                    sys_flag=0,
                    born_timestamp=1,
                    born_host=HOST,
                )
                store.appender.index(queue.topic, (f"k{number}",), position)
                store.appender.call_when_stored(stored.set_result)
                await stored

    def run(self, data: bytes) -> None:
        """Overwrite some bytes of some files, open, read everything, close, open again."""
        root = self.root / "damaged"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.good, root)
        position = 0
        while position + 5 <= len(data):
            path = root / self.files[data[position] % len(self.files)]
            kind = data[position + 1]
            at = int.from_bytes(data[position + 2 : position + 4], "big")
            count = data[position + 4] % 32
            piece = data[position + 5 : position + 5 + count]
            position += 5 + count
            self._damage(path, kind, at, piece)
        try:
            asyncio.run(self._read_all(root))
            asyncio.run(self._read_all(root))
        except (StoreError, CannotStart, OSError):
            pass

    def _damage(self, path: Path, kind: int, at: int, piece: bytes) -> None:
        if not path.exists():
            return
        size = path.stat().st_size
        if kind % 8 == 7:
            path.unlink()
        elif kind % 8 == 6:
            with path.open("r+b") as file:
                file.truncate(at % (size + 1))
        elif size:
            with path.open("r+b") as file:
                file.seek(at % size)
                file.write(piece[: size - at % size])

    async def _read_all(self, root: Path) -> None:
        async with self._store(root) as store:
            for queue in list(store.queues):
                for offset in range(queue.minimum, queue.readable):
                    queue.entry(offset)

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
