"""All consume queues of a store, by topic and queue id."""

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store.log.mapped_file import DescriptorCache
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.daemons.broker.store.queue.extension import QueueExtension
from mq.daemons.open_files import most_open_files
from mq.protocol.names import REPLY_POSTFIX, REVIVE_TOPIC_PREFIX, IllegalName, check_topic

log = logging.getLogger(__name__)

_MAX_OPEN_FILES = 4096
LOOKED_BACK = 4096  # entries searched for the last one with a unit in the queue's extension

# No broker uses larger queue ids or queue offsets; a larger number is a flipped bit.
_MAX_QUEUE_ID = 1_000_000
_MAX_QUEUE_OFFSET = 1 << 48


class Queues:
    """The queues under ``root`` (the folder consumequeue), with files of ``file_size`` bytes.

    Their extensions are under ``extension_root``.
    """

    def __init__(
        self,
        root: Path,
        file_size: int,
        extension_root: Path,
        extension_file_size: int,
    ) -> None:
        self._root = root
        self._file_size = file_size
        self._extension_root = extension_root
        self._extension_file_size = extension_file_size
        self._queues: dict[str, dict[int, ConsumeQueue]] = {}
        #: Called with each queue that is deleted.
        self.on_deleted: Callable[[ConsumeQueue], object] = lambda queue: None
        # A quarter of the files that this process may open; connections and log files need the
        # rest.
        self.descriptors = DescriptorCache(max(16, min(most_open_files() // 4, _MAX_OPEN_FILES)))

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for queues in self._queues.values():
            yield from queues.values()

    def load(self) -> None:
        """Find the existing queues. Folders with other names are ignored, as in Java.

        Raises StoreLoadError if a queue has files of another size than configured.
        """
        files.make_folders(self._root)
        extended = self._extended()
        for topic in files.folders(self._root):
            if not _is_topic(self._root, topic):
                continue
            for name in files.folders(self._root / topic):
                if name.isascii() and name.isdigit():
                    queue = self._get_or_make(topic, int(name))
                    queue.load()
                    self._load_extension(queue, topic in extended)

    def _extended(self) -> set[str]:
        """The topics whose queues may have an extension."""
        there = files.is_folder(self._extension_root)
        return set(files.folders(self._extension_root)) if there else set()

    def _load_extension(self, queue: ConsumeQueue, extended: bool) -> None:
        """Load the extension whatever the settings are now, because entries may refer to it."""
        folder = self._extension_root / queue.topic / str(queue.queue_id) if extended else None
        is_there = folder is not None and files.is_folder(folder)
        if is_there:
            self.extension(queue).load()
        last = queue.last_address(most=LOOKED_BACK if is_there else 1)
        if last is not None:
            self.extension(queue).start_after(last)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queues = self._queues.get(topic)
        return None if queues is None else queues.get(queue_id)

    def get_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; a missing one is created empty in memory. Its files are created with its
        messages.

        Raises IllegalName (a ValueError) for a topic that must not become a folder.
        """
        if topic not in self._queues:
            check_folder_name(topic)
        return self._get_or_make(topic, queue_id)

    def _get_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        queues = self._queues.setdefault(topic, {})
        if (queue := queues.get(queue_id)) is not None:
            return queue
        # str and not Path: a start creates ten thousand
        folder = f"{self._root}/{topic}/{queue_id}"
        queue = ConsumeQueue(topic, queue_id, folder, self._file_size, self.descriptors)
        queues[queue_id] = queue
        return queue

    def extension(self, queue: ConsumeQueue) -> QueueExtension:
        """The queue's extension; a missing one is created empty in memory."""
        if queue.extension is None:
            folder = self._extension_root / queue.topic / str(queue.queue_id)
            queue.extension = QueueExtension(folder, self._extension_file_size, self.descriptors)
        return queue.extension

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The queues of a topic, ordered by id."""
        queues = self._queues.get(topic, {})
        return [queues[queue_id] for queue_id in sorted(queues)]

    def newest(self) -> int:
        """The physical offset of the newest record that is in a queue, 0 without records."""
        newest = 0
        for queue in self:
            entry = queue.entry(queue.readable - 1) if queue.readable > queue.minimum else None
            if entry is not None and entry[0] > newest:
                newest = entry[0]
        return newest

    def topics(self) -> list[str]:
        return list(self._queues)

    def folder(self, queue: ConsumeQueue) -> Path:
        return self._root / queue.topic / str(queue.queue_id)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic's queues from the disk; its messages are deleted with their log files.

        Raises OSError. Queues that still have files then remain, to be deleted again: a new queue
        on top of old files would have its entries after the old ones.
        """
        if topic not in self._queues:
            return
        stuck: OSError | None = None
        for queue in self.of_topic(topic):
            try:
                self.delete_queue(queue)
            except OSError as error:  # the others are deleted nevertheless
                stuck = error
        if stuck is not None:
            raise stuck
        files.remove_tree(self._root / topic)
        files.remove_tree(self._extension_root / topic)
        del self._queues[topic]

    def delete_queue(self, queue: ConsumeQueue) -> None:
        """Delete one queue from the disk without a trace. Raises OSError as `delete_topic`."""
        queue.delete()
        del self._queues[queue.topic][queue.queue_id]
        self.on_deleted(queue)

    def rename_deleted(self, queue: ConsumeQueue) -> list[Path]:
        """Remove a queue whose files cannot be deleted: its folders get names that neither this
        broker nor Java reads as a queue. Returns the new paths. Raises OSError.
        """
        # open files are cached by path, and other files will get these paths
        self.descriptors.close()
        moved = []
        place = Path(queue.topic) / str(queue.queue_id)
        for folder in (self._root / place, self._extension_root / place):
            if files.is_folder(folder):
                moved.append(_free_name(folder))
                files.rename(folder, moved[-1])
                files.sync_folder(folder.parent)
        queue.deleted = True
        del self._queues[queue.topic][queue.queue_id]
        self.on_deleted(queue)
        return moved

    def close(self) -> None:
        self.descriptors.close()


def _free_name(folder: Path) -> Path:
    names = (folder.with_name(f"{folder.name}.deleted{n or ''}") for n in itertools.count())
    return next(path for path in names if not files.exists(path))


def _is_topic(root: Path, name: str) -> bool:
    try:
        check_folder_name(name)
    except IllegalName as error:
        log.warning("%s is not the folder of a topic; ignoring it: %s", root / name, error)
        return False
    return True


def implausible(topic: str, queue_id: int, queue_offset: int) -> str:
    """Return why a field of a record that no checksum covers cannot be right, or ""."""
    try:
        check_folder_name(topic)
    except ValueError as error:
        return f"a record was skipped: {error}"
    if not 0 <= queue_id <= _MAX_QUEUE_ID:
        return f"a record was skipped: queue id {queue_id}"
    if not 0 <= queue_offset <= _MAX_QUEUE_OFFSET:
        return f"a record was skipped: queue offset {queue_offset}"
    return ""


def check_folder_name(topic: str) -> None:
    """Check that a topic name may become a folder. Raises IllegalName.

    5.x stores have retry topics of up to 255 bytes. The topics of revivals and replies contain the
    name of the cluster, which may be any printable text without / and \\.
    """
    if len(topic.encode("utf-8", "replace")) > 255:
        raise IllegalName(f"a topic of {len(topic)} characters")
    of_cluster = topic.startswith(REVIVE_TOPIC_PREFIX) or topic.endswith(f"_{REPLY_POSTFIX}")
    if of_cluster and topic.isprintable() and not {"/", "\\"} & {*topic}:
        return
    check_topic(topic[:100])
    for begin in range(100, len(topic), 100):
        check_topic(topic[begin : begin + 100])
