"""Log of an archive: what it holds, without gaps or duplicates even if runs are killed.

    day=2026-01-31/topic=Orders/00000007-part-….parquet   the messages
    _archive/00000007.json                                 what batch 7 added, and the ends since
    _archive/staging-00000007-ID/                          where batch 7 was written at first

A batch is written to a staging folder, which readers do not see. Then its manifest appears, by one
rename: from then on the batch belongs to the archive, even if the process dies. Its files are moved
to their places one by one; a run that finds files still in staging moves them first. A batch
without a manifest is written again, and its staging folder is deleted when the next one has its
manifest. So readers see each message at most once at any time, and exactly once if no batch is in
progress.

Of two runs at the same time one writes the manifest, and the other one fails without a trace. If
the file system cannot tell them apart (mq.pipeline.jobs.storage), a run declares that it is alone.

A manifest records of each queue which message was the last one, by its store time: a topic that was
deleted and recreated has another message at that offset.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mq.pipeline.jobs.declaration import BadArchive, JobError
from mq.pipeline.jobs.storage import Folder
from mq.pipeline.offsets import Offsets, Queue, from_nested, to_nested

HOME = "_archive"
_VERSION = 1
_DIGITS = 8


@dataclass(frozen=True)
class Manifest:
    """What batch `number` added: the messages from `begins` to `ends`, without those.

    `ends` has every queue that the archive holds, also those that the batch did not change. `files`
    are the names in the staging folder; `lost` are gaps: offsets that were deleted at the broker
    before they could be archived, as (queue, first, end). `damaged` is how many bodies could not be
    decompressed, and are as brokers store them. `marks` are, of every queue, the last message that
    was archived: its offset and its store time in ms since 1970.
    """

    number: int
    staging: str
    begins: Offsets
    ends: Offsets
    files: tuple[str, ...]
    messages: int
    lost: tuple[tuple[Queue, int, int], ...] = ()
    damaged: int = 0
    marks: Mapping[Queue, tuple[int, int]] = field(default_factory=dict)
    made: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_json(self) -> bytes:
        value = {
            "version": _VERSION,
            "number": self.number,
            "made": self.made.isoformat(),
            "staging": self.staging,
            "begins": to_nested(self.begins),
            "ends": to_nested(self.ends),
            "files": list(self.files),
            "messages": self.messages,
            "lost": [[*queue, first, end] for queue, first, end in self.lost],
            "damaged": self.damaged,
            "marks": [[*queue, *mark] for queue, mark in sorted(self.marks.items())],
        }
        return json.dumps(value, indent=2).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "Manifest":
        """Raises ValueError, KeyError or TypeError for anything but a manifest of this version."""
        value: Mapping[str, Any] = json.loads(text)
        if value["version"] != _VERSION:
            raise ValueError(f"version {value['version']} of archives is not known")
        return cls(
            number=int(value["number"]),
            staging=str(value["staging"]),
            begins=from_nested(value["begins"]),
            ends=from_nested(value["ends"]),
            files=tuple(map(str, value["files"])),
            messages=int(value["messages"]),
            lost=tuple(
                (Queue(topic, broker, queue), first, end)
                for topic, broker, queue, first, end in value["lost"]
            ),
            damaged=int(value.get("damaged", 0)),
            marks={
                Queue(topic, broker, queue): (offset, stored)
                for topic, broker, queue, offset, stored in value.get("marks", ())
            },
            made=datetime.fromisoformat(value["made"]),
        )


class ArchiveLog:
    """The manifests of an archive. Methods raise JobError if the folder fails."""

    def __init__(self, folder: Folder, *, alone: bool = False) -> None:
        """`alone` says that no other run writes. Raises JobError for a folder with other
        contents.
        """
        self.folder = folder
        self._alone = alone
        numbers = self._numbers()
        if not numbers and folder.files():
            raise JobError(
                f"{folder.path} is not an archive, and has files of something else: give an empty "
                "folder, or one that does not exist yet"
            )
        self.last = self._load(numbers[-1]) if numbers else None

    @property
    def ends(self) -> Offsets:
        """The offsets up to which queues are archived."""
        return {} if self.last is None else dict(self.last.ends)

    @property
    def marks(self) -> Mapping[Queue, tuple[int, int]]:
        """The last message of each queue: its offset and its store time. Archives of earlier
        releases have none until a batch adds to the queue.
        """
        return {} if self.last is None else self.last.marks

    @property
    def next_number(self) -> int:
        return 1 if self.last is None else self.last.number + 1

    def new_staging(self) -> str:
        """Return a name of a folder for the next batch, which no other run has."""
        return f"{HOME}/staging-{self.next_number:0{_DIGITS}}-{uuid.uuid4().hex[:8]}"

    def commit(self, manifest: Manifest) -> None:
        """Make a batch part of the archive. Raises JobError if another run was faster."""
        name = _name(manifest.number)
        if not self.folder.write_new(name, manifest.to_json(), alone=self._alone):
            self.folder.delete(manifest.staging)
            raise JobError(
                f"another run has archived batch {manifest.number} to {self.folder.path} at the "
                "same time; nothing is lost: run again when it has ended"
            )
        self.last = manifest
        self.finish()

    def waiting(self) -> list[str]:
        """Return the files of the last batch that are not in their places yet."""
        if self.last is None:
            return []
        there = set(self.folder.files(self.last.staging))
        return [name for name in self.last.files if name in there]

    def finish(self) -> int:
        """Move files of the last batch out of staging, as after a kill; returns how many."""
        last = self.last
        if last is None:
            return 0
        waiting = self.waiting()
        for name in waiting:
            self._move(f"{last.staging}/{name}", _place(last.number, name))
        for name in self.folder.names(HOME):
            if name.startswith("staging-") and int(name.split("-")[1]) <= last.number:
                self.folder.delete(f"{HOME}/{name}")
        return len(waiting)

    def _move(self, source: str, target: str) -> None:
        """Move a file; another run may do the same at the same time."""
        if self.folder.exists(target):
            self.folder.delete(source)  # in an object store: the copy is complete
            return
        try:
            self.folder.move(source, target)
        except JobError:
            if not self.folder.exists(target):
                raise

    def _numbers(self) -> list[int]:
        names = [name.removesuffix(".json") for name in self.folder.names(HOME)]
        return sorted(int(name) for name in names if name.isdecimal())

    def _load(self, number: int) -> Manifest:
        try:
            return Manifest.from_json(self.folder.read(_name(number)))
        except (ValueError, KeyError, TypeError) as error:
            path = self.folder.child(_name(number))
            raise BadArchive(f"{path} is not the manifest of an archive: {error!r}") from None


def _name(number: int) -> str:
    return f"{HOME}/{number:0{_DIGITS}}.json"


def _place(number: int, name: str) -> str:
    """Return the place of a file of a batch: day=…/topic=…/part-… with the batch before its
    name.
    """
    above, _, last = name.rpartition("/")
    return f"{above}/{number:0{_DIGITS}}-{last}"
