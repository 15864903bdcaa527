"""Consumer offsets: each group's committed offset by queue, kept in config/consumerOffset.json.

An offset is that of the next message to consume. A kill before the next save loses commits: the
group then consumes some messages again, as with Java. Removals are not lost: deleting a topic or a
group is answered after the file has been written.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path

from mq.daemons.broker.offsets.copy_version import CopyVersion
from mq.daemons.broker.tables.saves import Saves
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.protocol import fastjson

log = logging.getLogger(__name__)

_LOST = (
    "no group has an offset now. In a queue whose first message is still in memory groups start "
    "at that message; in others they start as consumeFromWhere of their consumers says, mostly "
    "at the end, which skips messages. A slave of this broker has a copy of the file"
)

SEPARATOR = "@"  # between topic and group in the keys of the file


class ConsumerOffsets:
    """Offsets by topic@group and queue id.

    ``flush`` flushes the log to the disk; it returns False if that fails.
    """

    def __init__(self, path: Path, flush: Callable[[], Awaitable[bool]] | None = None) -> None:
        self._path = path
        self._flush = flush
        self.table: dict[str, dict[int, int]]
        # The table when this slave began to act as the master; None if it has not acted since the
        # last copy. Never modified, because threads read it.
        self._base: Mapping[str, Mapping[int, int]] | None
        found = read_with_backup(path, _decode_file, lost=_LOST)
        self.table, self._base = found or ({}, None)
        self.version = CopyVersion()
        self.version.has_acted = self._base is not None
        self._copied: frozenset[str] = frozenset()  # keys of the master's last copy
        self._dirty = False
        self._saving = asyncio.Lock()
        # Called in the same turn with the name of a deleted topic or group, for objects that keep
        # more of the groups' progress.
        self.on_topic_removed: list[Callable[[str], None]] = []
        self.on_group_removed: list[Callable[[str], None]] = []
        # Likewise with cleared queues, by topic and id.
        self.on_queues_cleared: list[Callable[[Collection[tuple[str, int]]], None]] = []
        # Awaited before removals are saved: the callbacks save their own removals, and wait for
        # work in progress that would restore removed data. They may raise OSError.
        self.before_removals_are_saved: list[Callable[[], Awaitable[None]]] = []
        self._saves = Saves()

    def commit(self, group: str, topic: str, queue_id: int, offset: int, peer: str = "") -> None:
        """Store an offset. A lower one is accepted, too: a consumer may have been reset."""
        key = f"{topic}{SEPARATOR}{group}"
        queues = self.table.get(key)
        if queues is None:
            self.table[key] = {queue_id: offset}
        else:
            stored = queues.get(queue_id, -1)
            if stored == offset:
                return
            if offset < stored:
                log.warning("group %s: offset of %s queue %d goes back from %d to %d", group,
                            topic, queue_id, stored, offset, extra={"peer": peer})  # fmt: skip
            queues[queue_id] = offset
        self._dirty = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The offset, or -1 if the group has none for the queue."""
        return self.table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id, -1)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """All offsets of a group in a topic, by queue id."""
        return dict(self.table.get(f"{topic}{SEPARATOR}{group}", {}))

    def topics_of_group(self, group: str) -> list[str]:
        """Topics in which a group has offsets."""
        end = SEPARATOR + group
        return [key[: -len(end)] for key in self.table if key.endswith(end)]

    def groups_of_topic(self, topic: str) -> list[str]:
        """Groups that have offsets in a topic."""
        start = topic + SEPARATOR
        return [key[len(start) :] for key in self.table if key.startswith(start)]

    def least_of_all_groups(
        self, topic: str, min_offsets: dict[int, int], without: Iterable[str] = ()
    ) -> dict[int, int]:
        """The least offset by queue of any group that still refers to a stored message.

        `min_offsets` are the first stored offsets by queue. Removes nothing, unlike
        ConsumerOffsetManager.queryMinOffsetInAllGroup, which deletes the offsets of `without`.
        """
        excluded = set(without)
        least: dict[int, int] = {}
        for group in self.groups_of_topic(topic):
            if group in excluded:
                continue
            for queue_id, offset in self.queues(group, topic).items():
                if offset >= min_offsets.get(queue_id, 0):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        return least

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of a group in a topic to another group."""
        offsets = self.table.get(f"{topic}{SEPARATOR}{source}")
        if offsets is not None:
            self.table[f"{topic}{SEPARATOR}{target}"] = dict(offsets)
            self._dirty = True

    def go_back_to_ends(self, end_of: Callable[[str, int], int]) -> None:
        """Correct offsets past the end of their queue, after a crash has removed the end.

        The next messages get these offsets again, so the groups would skip them. (Java leaves the
        offsets.)
        """
        for key, queues in self.table.items():
            topic, _, group = key.partition(SEPARATOR)
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if offset > end:
                    log.warning("group %s: the end of %s queue %d is lost; resetting its offset "
                                "from %d to %d", group, topic, queue_id, offset, end)  # fmt: skip
                    queues[queue_id] = end
                    self._dirty = True

    def begin_acting(self) -> None:
        """Record commits from now on, for the master when it returns."""
        self.version.has_acted = True
        if self._base is None:
            self._base = {key: queues.copy() for key, queues in self.table.items()}
            self._dirty = True

    def end_acting(self) -> None:
        """Stop recording commits: this broker is not a slave any more."""
        self._base, self.version.has_acted = None, False

    async def take_copy(self, table: Mapping[str, dict[int, int]]) -> None:
        """Take the offsets of this slave's master, in the file before in memory.

        The master's offsets replace those of this slave (SlaveSynchronize.syncConsumerOffset). Keys
        that groups have committed only here, while the master was absent, stay. Keys that an
        earlier copy had and this one lacks are removed: a topic that was deleted and created again
        starts at 0. (Java keeps them.) Raises OSError; nothing has changed then.
        """
        gone = self._copied - table.keys()

        def merged() -> dict[str, dict[int, int]]:
            kept = {key: queues for key, queues in self.table.items() if key not in gone}
            return kept | {key: queues.copy() for key, queues in table.items()}

        async with self._saving:
            written, dirty = merged(), self._dirty
            if dirty or written != self.table or self._base is not None:
                self._dirty = False
                text = {key: queues.copy() for key, queues in written.items()}
                try:
                    await self._saves.run(
                        lambda: write_atomically(
                            self._path, fastjson.dumps_pretty({"offsetTable": text})
                        )
                    )
                except BaseException:
                    self._dirty = self._dirty or dirty
                    raise
            self.end_acting()
            self.table = merged()  # includes commits made meanwhile, which are still to be saved
            self._copied = frozenset(table)

    def advance(
        self, table: Mapping[str, dict[int, int]], end_of: Callable[[str, int], int]
    ) -> None:
        """Advance groups to the offsets at a slave that has acted as the master, as far as they are
        higher there and the messages before them exist here.
        """
        for key, queues in table.items():
            topic, _, group = key.partition(SEPARATOR)
            for queue_id, offset in queues.items():
                reached = min(offset, end_of(topic, queue_id))
                if reached > self.query(group, topic, queue_id):
                    self.commit(group, topic, queue_id, reached)

    def remove_group(self, group: str) -> None:
        """Remove the offsets of a deleted group."""
        self._remove(key for key in list(self.table) if key.endswith(SEPARATOR + group))
        for callback in self.on_group_removed:
            callback(group)

    def remove_topic(self, topic: str) -> None:
        """Remove the offsets in a deleted topic: a new topic of that name starts at 0."""
        self._remove(key for key in list(self.table) if key.startswith(topic + SEPARATOR))
        for callback in self.on_topic_removed:
            callback(topic)

    def reset_cleared(self, cleared: Collection[tuple[str, int]]) -> None:
        """Reset groups to offset 0 of cleared queues, given by topic and id. The next message there
        gets offset 0, and the groups would skip it.
        """
        topics = {topic for topic, _ in cleared}
        for key, queues in self.table.items():
            topic = key.partition(SEPARATOR)[0]
            if topic not in topics:
                continue
            for queue_id, offset in queues.items():
                if offset > 0 and (topic, queue_id) in cleared:
                    queues[queue_id] = 0
                    self._dirty = True
        for callback in self.on_queues_cleared:
            callback(cleared)

    def _remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            del self.table[key]
            self._dirty = True
            log.info("offsets of %s removed", key)

    def encoder(self, *, compact: bool = False) -> Callable[[], bytes]:
        """Return a function that encodes the current offsets, for a thread: there may be very many.

        The result is the file, indented like Java's, or with ``compact`` one line for a slave
        (GET_ALL_CONSUMER_OFFSET), with the version and the commits made while this slave acted as
        the master.
        """
        table = {key: queues.copy() for key, queues in self.table.items()}
        base = self._base
        if not compact:
            return lambda: fastjson.dumps_pretty({"offsetTable": table, **_acted_from(table, base)})
        version = self.version.fields()

        def encode() -> bytes:
            since = {} if base is None else {"changedTable": _named(changed(table, base))}
            return fastjson.dumps({"dataVersion": version, "offsetTable": table, **since})

        return encode

    async def save(self) -> None:
        """Write the file if anything has changed; a failure is logged and the next call retries."""
        try:
            await self.save_now()
        except NotFlushed:
            pass  # already logged
        except OSError as error:
            log.error("cannot save consumer offsets: %s", error)

    async def save_removals(self) -> None:
        """Save removals, so that a kill does not restore removed offsets.

        Raises OSError if some may reappear; saves as much as possible.
        """
        failures: list[OSError] = []
        if self._flush is not None:
            await self._flush()  # `save_now` reports a failed flush
        for prepare in self.before_removals_are_saved:
            try:
                await prepare()
            except OSError as error:
                failures.append(error)
        await self.save_now()
        if failures:
            raise failures[0]

    async def save_now(self) -> None:
        """Write the file if anything has changed. Raises OSError; `save` retries.

        The log is flushed first. Messages before an offset may have been stored again, as a check
        point of popped messages or as a retry, and a power cut must not lose those alone.
        """
        async with self._saving:
            if not self._dirty:
                return
            self._dirty = False
            encode = self.encoder()
            try:
                if self._flush is not None and not await self._flush():
                    # The offsets in the file are older: after a restart some messages are delivered
                    # again.
                    raise NotFlushed(errno.EIO, "the log cannot be flushed")
                await self._saves.run(lambda: write_atomically(self._path, encode()))
            except BaseException:  # also when a stop cancels it, which saves again
                self._dirty = True
                raise


class NotFlushed(OSError):
    """The log could not be flushed, so offsets must not be saved."""


def changed(
    table: Mapping[str, Mapping[int, int]], base: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """The offsets that differ from those of an earlier table."""
    found = {}
    for key, queues in table.items():
        before = base.get(key, {})
        moved = {number: at for number, at in queues.items() if before.get(number) != at}
        if moved:
            found[key] = moved
    return found


_NONE = -1  # the same value as in `query`


def _named(table: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """A table with strings as keys: Java versions that do not know it cannot skip numbers."""
    return {
        key: {str(number): at for number, at in queues.items()} for key, queues in table.items()
    }


def _acted_from(
    table: Mapping[str, Mapping[int, int]], base: Mapping[str, Mapping[int, int]] | None
) -> dict[str, dict[str, dict[str, int]]]:
    """The field for the file: the earlier offsets of queues whose offsets have changed since."""
    if base is None:
        return {}
    moved = changed(table, base)
    return {
        "actedFrom": {
            key: {str(number): base.get(key, {}).get(number, _NONE) for number in queues}
            for key, queues in moved.items()
        }
    }


def _decode_file(data: bytes) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]] | None]:
    """The offsets of a file, and those at the time when a slave began to act. Raises ValueError."""
    content = fastjson.loads(data)
    table, moved = _find(content, "offsetTable"), _find(content, "actedFrom")
    if table is None:
        raise ValueError("no offsetTable")
    if moved is None:
        return table, None
    base = {key: queues.copy() for key, queues in table.items()}
    for key, queues in moved.items():
        base.setdefault(key, {}).update(queues)
    return table, base


def decode_offsets(data: bytes) -> dict[str, dict[int, int]]:
    """The offsets of a file, or of a reply to GET_ALL_CONSUMER_OFFSET. Raises ValueError."""
    table = _find(fastjson.loads(data), "offsetTable")
    if table is None:
        raise ValueError("no offsetTable")
    return table


def decode_changed_offsets(data: bytes) -> dict[str, dict[int, int]]:
    """The offsets of a reply that were committed at a slave while it acted as the master; all
    offsets if the reply does not distinguish them. Raises ValueError.
    """
    table = _find(fastjson.loads(data), "changedTable")
    return decode_offsets(data) if table is None else table


def _find(content: object, name: str) -> dict[str, dict[int, int]] | None:
    """A table of a JSON object, None if it is missing. Raises ValueError."""
    table = content.get(name) if isinstance(content, dict) else None
    if not isinstance(table, dict):
        return None
    try:
        return {
            str(key): {int(queue_id): int(offset) for queue_id, offset in queues.items()}
            for key, queues in table.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ValueError("the offsets are not numbers by queue") from None
