"""Offsets of groups in each partition: committed ones, which are stored, and pending ones.

Offsets are positions in the index of a (topic, store). A get that returns messages leaves the
progress as *pending*; the next get or a commit adds that to the committed offset, or discards it.
Committed offsets go to the same file as Java's (FileOffsetStorage: `offsetDir/offsets.meta`, JSON),
as a whole, in a thread, every `offsetStgFileSyncMs` if any has changed: a kill loses only later
commits, and consumers read those messages again. An administrator's change is in the file before
the answer. Entries without a commit for `grpOffsetStgExpMs` (20 days) are deleted.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from mq.client.machine import clock
from mq.daemons.state_file import StateFile, read_with_backup
from mq.daemons.tube.broker.store.layout import INDEX_SIZE, STORE_BASE

log = logging.getLogger(__name__)

FOLDER = "offsetDir"
FILE = "offsets.meta"

# Of all groups together: clients choose the names of groups, and each entry takes memory and a part
# of the file for 20 days.
MAX_ENTRIES = 1_000_000


class TooManyOffsets(Exception):
    """The maximum number of entries exists. The text explains it."""


@dataclass(slots=True)
class Entry:
    """The offset of a group in a partition. ``is_new``: no commit since its creation."""

    topic: str
    partition: int
    offset: int
    created_offset: int
    created_ms: int
    updated_ms: int
    pending: int = 0
    is_new: bool = False
    term: int = 0  # lstRstTerm and msgId of Java's newer brokers: kept unchanged
    message_id: int = 0

    @property
    def key(self) -> str:
        return f"{self.topic}-{self.partition}"


Key = tuple[str, int]  # topic, partition


class Offsets:
    """The offsets of all groups at a broker."""

    def __init__(self, path: Path, broker_id: int) -> None:
        self.file = StateFile(path, self._encode)
        self._broker_id = broker_id
        self._groups: dict[str, dict[Key, Entry]] = {}
        self._count = 0
        self._version = 0
        self._encoded: dict[str, bytes] = {}  # of groups that have not changed since

    def load(self) -> None:
        """Load the file. Raises OSError if it cannot be read."""
        path = self.file.path
        groups = read_with_backup(path, _decode)
        if groups is None:  # Java leaves one of these if killed between two renames
            for name in ("offsets.mid", "offsets.old"):
                groups = read_with_backup(path.with_name(name), _decode)
                if groups is not None:
                    break
        self._groups = groups or {}
        self._count = sum(map(len, self._groups.values()))

    # what consumers do ------------------------------------------------------------------------

    def register(
        self, group: str, key: Key, status: int, requested: int, bounds: tuple[int, int]
    ) -> int:
        """Return the start offset of a consumer that registers; its pending offset is discarded.

        DefaultOffsetManager.loadOffset. Raises TooManyOffsets.
        """
        least, most = bounds
        entry = self._entry(group, key, least if status == 0 else most)
        entry.pending = 0
        if status == 2:
            self._set(group, entry, most)
        elif requested >= 0:
            self._set(group, entry, _aligned(max(least, min(requested, most))))
        return entry.offset

    def next(
        self, group: str, key: Key, *, manual: bool, consumed: bool, bounds: tuple[int, int],
        lowers: bool,
    ) -> tuple[int, bool]:  # fmt: skip
        """Return the start offset of a get, and whether messages may exist there.

        With ``manual`` it is after the pending part; else the pending part is committed if
        ``consumed``, and discarded if not: Java keeps it, and after a refused get the next one
        would commit messages that were not consumed. ``lowers`` reduces an offset beyond the end to
        the end (updateConsumerOffsets). DefaultOffsetManager.getOffset.
        """
        least, most = bounds
        entry = self._entry(group, key, 0)
        if manual:
            offset = entry.offset + entry.pending // INDEX_SIZE * INDEX_SIZE
        else:
            offset = self.commit(group, key, consumed=consumed)
        if offset >= most:
            if offset > most and lowers:
                self._set(group, entry, min(entry.offset, most))
                entry.pending = most - entry.offset if manual else 0
                offset = most
            return offset, False
        if offset < least:
            entry.pending = 0
            self._set(group, entry, least)
            offset = least
        return _aligned(offset), True

    def at(self, group: str, key: Key, *, manual: bool) -> int:
        """Return the start offset of the get that is being answered."""
        entry = self._entry(group, key, 0)
        return _aligned(entry.offset + (entry.pending if manual else 0))

    def read(self, group: str, key: Key, scanned: int, *, manual: bool, empty: bool) -> None:
        """Record the progress of a get; a part without messages for its consumer is committed at
        once.

        DefaultOffsetManager.bookOffset.
        """
        if scanned:
            entry = self._entry(group, key, 0)
            entry.pending = entry.pending + scanned if manual else scanned
            if empty and not manual:
                self.commit(group, key, consumed=True)

    def commit(self, group: str, key: Key, *, consumed: bool) -> int:
        """Add the pending part, or discard it; return the committed offset."""
        entry = self._entry(group, key, 0)
        pending, entry.pending = entry.pending, 0
        if consumed and (pending or entry.is_new):
            self._set(group, entry, entry.offset + pending)
        return entry.offset

    # what administrators ask and do -----------------------------------------------------------

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __len__(self) -> int:
        return self._count

    def of_group(self, group: str) -> Mapping[Key, Entry]:
        return self._groups.get(group, {})

    def committed(self, group: str, key: Key) -> int:
        """Return the committed offset; 0 if the group has none, as in Java."""
        entry = self._groups.get(group, {}).get(key)
        return 0 if entry is None else entry.offset

    async def replace(self, changes: Iterable[tuple[str, Key, int]]) -> list[int]:
        """Set offsets (group, partition, offset), durably; return the previous ones.

        Raises OSError, and TooManyOffsets without any change. After an OSError they are in effect,
        and are saved with the next change.
        """
        wanted = [(group, key, _aligned(offset)) for group, key, offset in changes]
        new = {(g, k) for g, k, _ in wanted if k not in self._groups.get(g, {})}
        if self._count + len(new) > MAX_ENTRIES:
            raise TooManyOffsets(f"there are {self._count} offsets; the limit is {MAX_ENTRIES}")
        before = []
        for group, key, offset in wanted:
            before.append(self.committed(group, key))
            entry = self._entry(group, key, offset)
            entry.pending = 0
            self._set(group, entry, offset)
        await self.file.save_pending()
        return before

    async def remove(self, group: str, topics: frozenset[str] | None) -> int:
        """Delete the offsets of a group, in some topics or in all; return their number. Raises
        OSError.
        """
        count = self._forget(group, topics)
        await self.file.save_pending()
        return count

    async def forget_topics(self, topics: frozenset[str]) -> None:
        """Delete the offsets of removed topics, durably, so that a topic of the same name starts
        without
        offsets. Raises OSError."""
        for group in list(self._groups):
            self._forget(group, topics)
        await self.file.save_pending()

    async def lower(self, ends: Mapping[Key, int]) -> int:
        """Lower offsets beyond the ends of stores (by topic and number), durably; return their
        number.

        Raises OSError. A power cut can lose messages that a group has already consumed. An
        unchanged offset would skip the messages that are written in their place.
        """
        count = 0
        for group, entries in self._groups.items():
            for (topic, partition), entry in entries.items():
                end = ends.get((topic, partition // STORE_BASE))
                if end is not None and entry.offset > end:
                    log.warning("%s was at %d of %s, which ends at %d: it continues at the end",
                                group, entry.offset, entry.key, end)  # fmt: skip
                    entry.pending = 0
                    self._set(group, entry, end)
                    count += 1
        if count:
            await self.file.save_pending()
        return count

    def expire(self, longest_ms: int) -> list[str]:
        """Delete the offsets of groups without a commit for this time; return the groups' names."""
        oldest = clock.milliseconds() - longest_ms
        gone = [
            group
            for group, entries in self._groups.items()
            if all(entry.updated_ms < oldest for entry in entries.values())
        ]
        for group in gone:
            self._forget(group, None)
        return gone

    # ------------------------------------------------------------------------------------------

    async def run_saves(self, period: float) -> None:
        """Save changes at this interval until cancelled."""
        while True:
            await asyncio.sleep(period)
            try:
                await self.file.save_pending()
            except OSError as error:
                log.error("cannot save offsets now: %s", error,
                          extra={"failure": "saves of offsets"})  # fmt: skip

    def _entry(self, group: str, key: Key, offset: int) -> Entry:
        entries = self._groups.get(group)
        entry = entries.get(key) if entries is not None else None
        if entry is None:
            if self._count >= MAX_ENTRIES:
                raise TooManyOffsets(f"there are {self._count} offsets; the limit is {MAX_ENTRIES}")
            now = clock.milliseconds()
            entry = Entry(*key, offset, offset, now, now, is_new=True)
            self._groups.setdefault(group, {})[key] = entry
            self._count += 1
            self._changed(group)
        return entry

    def _set(self, group: str, entry: Entry, offset: int) -> None:
        entry.offset = offset
        entry.updated_ms = clock.milliseconds()
        entry.is_new = False
        self._changed(group)

    def _changed(self, group: str) -> None:
        self._encoded.pop(group, None)
        self._version += 1
        self.file.unsaved = True

    def _forget(self, group: str, topics: frozenset[str] | None) -> int:
        entries = self._groups.get(group, {})
        gone = [key for key in entries if topics is None or key[0] in topics]
        for key in gone:
            del entries[key]
        if gone:
            self._count -= len(gone)
            self._changed(group)
        if not entries:
            self._groups.pop(group, None)
        return len(gone)

    def _encode(self) -> tuple[bytes, int]:
        """Encode the file, as Gson writes a GroupOffsetStgInfo. Only changed groups are encoded."""
        pieces = []
        for group, entries in self._groups.items():
            encoded = self._encoded.get(group)
            if encoded is None:
                encoded = self._encoded[group] = _encode_group(group, entries.values())
            pieces.append(encoded)
        head = b'{"lstStoreTime":%d,"brokerId":%d,"groupOffsetStgInfo":{' % (
            clock.milliseconds(),
            self._broker_id,
        )
        return b"%b%b}}" % (head, b",".join(pieces)), self._version


def _encode_group(group: str, entries: Collection[Entry]) -> bytes:
    parts = {
        one.key: {
            "topic": one.topic,
            "partId": one.partition,
            "lstRstTerm": one.term,
            "lstOffset": one.offset,
            "msgId": one.message_id,
            "lstUpdTime": one.updated_ms,
            "createOffset": one.created_offset,
            "createTime": one.created_ms,
        }
        for one in entries
    }
    last = max((one.updated_ms for one in entries), default=0)
    body = orjson.dumps({"lstCommitTime": last, "partOffsetInfo": parts})
    return orjson.dumps(group) + b":" + body


def _decode(data: bytes) -> dict[str, dict[Key, Entry]]:
    try:
        document = orjson.loads(data)
        return {
            str(group): {(one.topic, one.partition): one for one in _entries(info)}
            for group, info in document["groupOffsetStgInfo"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no offsets of groups: {error}") from None


def _entries(info: Mapping[str, Any]) -> Iterator[Entry]:
    for part in info["partOffsetInfo"].values():
        yield Entry(
            str(part["topic"]),
            int(part["partId"]),
            int(part["lstOffset"]),
            int(part.get("createOffset", -2)),
            int(part.get("createTime", 0)),
            int(part.get("lstUpdTime", 0)),
            term=int(part.get("lstRstTerm", 0)),
            message_id=int(part.get("msgId", 0)),
        )


def _aligned(offset: int) -> int:
    """Return the offset rounded to a record of the index."""
    return offset // INDEX_SIZE * INDEX_SIZE
