"""Defects to plant: steps that a store must not omit. Each must be found."""

from typing import Any, NamedTuple

from mq.client.machine import files
from mq.daemons.broker.store import checkpointer, message_store
from mq.daemons.broker.store.index import index
from mq.daemons.broker.store.log import commit_log, mapped_file
from mq.daemons.broker.store.queue import generations
from mq.daemons.broker.store.recovery import recovery
from mq.daemons.tube.broker.store import recovery as tube_recovery
from mq.daemons.tube.broker.store import segments as tube_segments


class _FilesWithoutFolderSync:
    """`files` for a module that does not fsync folders."""

    def __getattr__(self, name: str) -> Any:
        return getattr(files, name)

    @staticmethod
    def sync_folder(_: object) -> None:
        pass


def _nothing(*_: object, **__: object) -> None:
    pass


def _keep_in_memory(
    self: generations.Deletions, offsets: dict[str, int], log: generations.MarkedLog
) -> None:
    self._offsets = offsets


def _never_crashed(self: commit_log.CommitLog, *, crashed: bool = False) -> None:
    _load(self, crashed=False)


def _believed(self: Any) -> None:
    """Replaces the fsyncs in the recovery of a TubeMQ store."""
    for segment in (*self._data.segments, *self._index.segments):
        segment.synced = segment.end


_load = commit_log.CommitLog.load
_no_folders = _FilesWithoutFolderSync()


class Replaced(NamedTuple):
    """The replacement of an attribute of a class or a module."""

    target: Any
    attribute: str
    new: object


# By name: the workload that finds it, and the replaced attributes.
ALL: dict[str, tuple[str, list[Replaced]]] = {
    "log-is-not-synced": ("at-once", [Replaced(mapped_file.MappedFile, "sync", _nothing)]),
    "name-of-log-file-is-not-synced": (
        "append-synced",
        [Replaced(commit_log, "files", _no_folders)],
    ),
    "new-store-is-not-synced": ("append-synced", [Replaced(message_store, "files", _no_folders)]),
    "deletion-is-not-saved": (
        "topic-deletion",
        [Replaced(generations.Deletions, "_save", _keep_in_memory)],
    ),
    "queues-are-not-synced": (
        "append-synced",
        [Replaced(checkpointer.Checkpointer, "_sync_files", _nothing)],
    ),
    "index-is-not-synced": ("append-synced", [Replaced(index.IndexFile, "sync", _nothing)]),
    "checkpoint-is-not-lowered": (
        "append-synced",
        [Replaced(recovery.Recovery, "_lower_checkpoint", _nothing)],
    ),
    "short-log-file-is-refused": (
        "append-unsynced",
        [
            # As on a full disk.
            Replaced(mapped_file.MappedFile, "clear_after", mapped_file.MappedFile.clear_by_hole),
            Replaced(commit_log.CommitLog, "load", _never_crashed),
        ],
    ),
    "tube-recovery-is-not-synced": (
        "tube-os",
        [Replaced(tube_recovery._Recovery, "_sync", _believed)],
    ),
    "tube-checkpoint-is-not-lowered": (
        "tube-damaged",
        [Replaced(tube_recovery._Recovery, "_lower_checkpoint", _nothing)],
    ),
    "tube-tail-is-not-written-again": (
        "tube-failed-fsync",
        [Replaced(tube_recovery._Recovery, "_write_again", _nothing)],
    ),
    "tube-files-are-not-named": ("tube-sync", [Replaced(tube_segments, "files", _no_folders)]),
    "found-names-are-not-synced": (
        "append-synced",
        [Replaced(recovery.Recovery, "_sync_names", _nothing)],
    ),
}


def plant(name: str) -> str:
    """Plant a defect in the store of this process; returns the workload that finds it."""
    workload, replaced = ALL[name]
    for one in replaced:
        setattr(one.target, one.attribute, one.new)
    return workload
