"""Which topics were deleted, and at which offset of the log.

The messages of a deleted topic stay in the log until their files go. A recovery that reads them
again must not put them into queues: the topic would be back, and if it was made anew meanwhile, its
old messages would stand where the new ones belong. (Java has no such file, and loses them.)

A slave sees of a deletion at its master only that a queue begins anew, at queue offset 0: it notes
such queues by themselves.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from mq.daemons.broker.store import layout
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.protocol.checksum import crc32


class Deletions:
    """Physical offsets by topic, or by topic and queue id: what lies before one is gone."""

    def __init__(self, root: Path) -> None:
        self._path = root / layout.DELETIONS_FILE
        self._offsets: dict[str, int] = {}
        self._has_queues = False

    def load(self) -> None:
        """Read the file or its backup. What cannot be read counts as no deletions, and is said."""
        self._take(read_with_backup(self._path, _decode) or {})

    def covers(self, topic: str, queue_id: int, physical: int) -> bool:
        """Whether the record at an offset is of a topic, or in a queue, that was deleted after
        it."""
        if physical < self._offsets.get(topic, 0):
            return True
        return self._has_queues and physical < self._offsets.get(_key(topic, queue_id), 0)

    def last_of(self, topic: str, queue_id: int) -> int:
        """The offset of the last deletion of a queue, or of its topic; 0 if none is known."""
        own = self._offsets.get(_key(topic, queue_id), 0) if self._has_queues else 0
        return max(own, self._offsets.get(topic, 0))

    def add(self, topics: Iterable[str], physical: int, minimum: int) -> None:
        """Note that topics are deleted now; forget those of which the log has nothing any more.

        Raises OSError; the topics then do not count as deleted, and must not be.
        """
        self._add(dict.fromkeys(topics, physical), minimum)

    def add_queues(self, queues: Mapping[tuple[str, int], int], minimum: int) -> None:
        """Note that queues, by topic and id, begin anew at offsets, likewise: in one write."""
        self._add({_key(*queue): physical for queue, physical in queues.items()}, minimum)

    def _add(self, added: dict[str, int], minimum: int) -> None:
        kept = {name: offset for name, offset in self._offsets.items() if offset > minimum}
        self._save(kept | added)

    def cut(self, end: int, minimum: int) -> None:
        """The log, which begins at ``minimum``, ends here now: what is put behind is no message of
        before. One that has nothing left may begin anew before that, as a slave's does where
        another master begins.

        Raises OSError; nothing may be put there then.
        """
        if end <= minimum:
            if self._offsets:
                self._save({})
        elif any(offset > end for offset in self._offsets.values()):
            self._save({topic: min(offset, end) for topic, offset in self._offsets.items()})

    def _save(self, offsets: dict[str, int]) -> None:
        write_atomically(self._path, orjson.dumps({**offsets, _mark(offsets): 0}))
        self._take(offsets)

    def _take(self, offsets: dict[str, int]) -> None:
        self._offsets = offsets
        self._has_queues = any("/" in key for key in offsets)


def _key(topic: str, queue_id: int) -> str:
    """No topic has a slash in its name."""
    return f"{topic}/{queue_id}"


def _mark(offsets: Mapping[str, int]) -> str:
    """A name for the checksum of the file: one wrong bit of an offset would take all messages of a
    topic, also those of today, out of their queues. Whoever does not know it takes it for a topic
    without deletions, and does not write it again."""
    return f"#{crc32(orjson.dumps(offsets)):08x}"


def _decode(data: bytes) -> dict[str, int]:
    try:
        offsets = {str(topic): int(offset) for topic, offset in orjson.loads(data).items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no offsets by topic: {error}") from None
    marks = [name for name in offsets if name.startswith("#")]
    for name in marks:
        del offsets[name]
    if marks and marks != [_mark(offsets)]:
        raise ValueError("its checksum is wrong")
    return offsets
