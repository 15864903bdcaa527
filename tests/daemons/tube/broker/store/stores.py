"""Stores for tests: opened in a folder, written to, read from the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from mq.daemons.tube.broker.store.errors import FlushMode, Refused
from mq.daemons.tube.broker.store.layout import DATA_SUFFIX, HEAD, HEAD_SIZE, INDEX_SUFFIX
from mq.daemons.tube.broker.store.recovery import recover
from mq.daemons.tube.broker.store.topic_store import FlushSettings, TopicStore

DATA_SIZE, INDEX_SIZE = 1000, 28 * 5
NOW = 1_700_000_000_000

STILL_OPEN: list[TopicStore] = []  # those that a test has opened, even after a simulated kill


class Kept(list[TopicStore]):
    """Stores with pending flushes: a flusher that a test runs by hand."""

    def request(self, store: TopicStore) -> None:
        if store not in self:
            self.append(store)

    def flush(self, error: OSError | None = None) -> None:
        wanting = list(self)
        self.clear()
        for store in wanting:
            upto, segments = store.flushing()
            if error is None:
                for segment, _ in segments:
                    segment.sync()
            store.flushed(upto, segments, error)


def opened(
    folder: Path,
    mode: FlushMode = FlushMode.os,
    kept: Kept | None = None,
    sizes: tuple[int, int] = (DATA_SIZE, INDEX_SIZE),
    settings: FlushSettings | None = None,
) -> TopicStore:
    recovered = recover(folder, *sizes)
    kept = Kept() if kept is None else kept
    store = TopicStore("t-0", folder, recovered, mode, settings or FlushSettings(), kept.request)
    STILL_OPEN.append(store)
    return store


class Sender:
    """Sends to a store and records the results."""

    def __init__(self, store: TopicStore) -> None:
        self.store = store
        self.taken: list[tuple[bytes, int]] = []  # payload, index offset
        self.refused: list[Refused] = []
        self._next = 0

    def send(self, payload: bytes, partition: int = 0, code: int = -1) -> None:
        self._next += 1

        def done(refused: Refused | None, _: int, __: int, at_index: int) -> None:
            if refused is None:
                self.taken.append((payload, at_index))
            else:
                self.refused.append(refused)

        try:
            self.store.append(
                partition,
                payload,
                crc32(payload) & 0x7FFFFFFF,
                0x7F000001,
                code,
                0,
                self._next,
                NOW,
                done,
            )
        except Refused as refused:
            self.refused.append(refused)


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{DATA_SUFFIX}"))


def index_files(folder: Path) -> list[Path]:
    return sorted((folder / "index").glob(f"*{INDEX_SUFFIX}"))


def records(folder: Path) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Return heads and payloads from the files, unchecked."""
    data = b"".join(path.read_bytes() for path in data_files(folder))
    at = 0
    while at < len(data):
        head = HEAD.unpack_from(data, at)
        yield head, data[at + HEAD_SIZE : at + head[0] + 4]
        at += head[0] + 4


def payloads(folder: Path) -> list[bytes]:
    return [payload for _, payload in records(folder)]
