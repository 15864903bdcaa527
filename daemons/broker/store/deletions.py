"""Which topics were deleted, and at which offset of the log.

The messages of a deleted topic stay in the log until their files go. A recovery that reads them
again must not put them into queues: the topic would be back, and if it was made anew meanwhile, its
old messages would stand where the new ones belong. (Java has no such file, and loses them.)
"""

from pathlib import Path

import orjson

from mq.daemons.broker.store import layout
from mq.daemons.state_file import read_with_backup, write_atomically


class Deletions:
    """Physical offsets by topic: what lies before one belongs to a topic that is gone."""

    def __init__(self, root: Path) -> None:
        self._path = root / layout.DELETIONS_FILE
        self._offsets: dict[str, int] = {}

    def load(self) -> None:
        """Read the file or its backup. What cannot be read counts as no deletions, and is said."""
        self._offsets = read_with_backup(self._path, _decode) or {}

    def covers(self, topic: str, physical: int) -> bool:
        """Whether the record at an offset is of a topic that was deleted after it."""
        return physical < self._offsets.get(topic, 0)

    def add(self, topic: str, physical: int, minimum: int) -> None:
        """Note that a topic is deleted now; forget those of which the log has nothing any more.

        Raises OSError; the topic then does not count as deleted, and must not be.
        """
        kept = {name: offset for name, offset in self._offsets.items() if offset > minimum}
        self._save({**kept, topic: physical})

    def cut(self, end: int) -> None:
        """The log ends here now: what is put behind is no message of before.

        Raises OSError; nothing may be put there then.
        """
        if any(offset > end for offset in self._offsets.values()):
            self._save({topic: min(offset, end) for topic, offset in self._offsets.items()})

    def _save(self, offsets: dict[str, int]) -> None:
        write_atomically(self._path, orjson.dumps(offsets))
        self._offsets = offsets


def _decode(data: bytes) -> dict[str, int]:
    try:
        return {str(topic): int(offset) for topic, offset in orjson.loads(data).items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no offsets by topic: {error}") from None
