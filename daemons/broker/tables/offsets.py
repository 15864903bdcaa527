"""Consumer offsets: how far each group has consumed each queue, kept in config/consumerOffset.json.

An offset is that of the next message to consume. It is lost if the broker is killed before the next
save: its group then consumes some messages again, as with Java. That offsets were removed is not:
who deletes a topic or a group is answered when it is in the file.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path

from mq.daemons.broker.copy_version import CopyVersion
from mq.daemons.broker.tables.saves import Saves
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.protocol import fastjson

log = logging.getLogger(__name__)

_LOST = (
    "no group has an offset now. In a queue whose first message is still in memory groups begin "
    "with that message; in others they begin where consumeFromWhere of their consumers says, "
    "mostly at the end, which skips messages. A slave of this broker has a copy of the file"
)

SEPARATOR = "@"  # between topic and group in the keys of the file


class ConsumerOffsets:
    """Offsets by topic@group and queue id.

    ``flush`` brings to the disk what is in the log by now; it says False if that cannot be.
    """

    def __init__(self, path: Path, flush: Callable[[], Awaitable[bool]] | None = None) -> None:
        self._path = path
        self._flush = flush
        self.table: dict[str, dict[int, int]]
        # What it was when this slave began to act as the master; None if it has not since it copied
        # the last time. Never changed, for threads read it.
        self._base: Mapping[str, Mapping[int, int]] | None
        found = read_with_backup(path, _decode_file, lost=_LOST)
        self.table, self._base = found or ({}, None)
        self.version = CopyVersion()
        self.version.has_acted = self._base is not None
        self._copied: frozenset[str] = frozenset()  # keys that a master had the last time
        self._dirty = False
        self._saving = asyncio.Lock()
        # Called, in the same turn, with the name of a topic or a group that was deleted, by those
        # who keep more of how far groups have come.
        self.on_topic_removed: list[Callable[[str], None]] = []
        self.on_group_removed: list[Callable[[str], None]] = []
        # Likewise with queues, by topic and id, that were cleared.
        self.on_queues_cleared: list[Callable[[Collection[tuple[str, int]]], None]] = []
        # Awaited before it is saved that offsets were removed: they save what is kept more of that,
        # and nothing that was on its way then may bring it back. They may raise OSError.
        self.before_removals_are_saved: list[Callable[[], Awaitable[None]]] = []
        self._saves = Saves()

    def commit(self, group: str, topic: str, queue_id: int, offset: int, peer: str = "") -> None:
        """Take over an offset. One that goes back is taken too: a consumer may have been reset."""
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
        """By queue, the least offset of any group that still points at a stored message.

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
        """Let a group start in a topic where another one is."""
        offsets = self.table.get(f"{topic}{SEPARATOR}{source}")
        if offsets is not None:
            self.table[f"{topic}{SEPARATOR}{target}"] = dict(offsets)
            self._dirty = True

    def go_back_to_ends(self, end_of: Callable[[str, int], int]) -> None:
        """Correct the offsets that are beyond the end of their queue, which a crash has taken.

        What comes next has these offsets again: its groups would pass it over. (Java leaves them.)
        """
        for key, queues in self.table.items():
            topic, _, group = key.partition(SEPARATOR)
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if offset > end:
                    log.warning("group %s: the end of %s queue %d is lost, its offset goes back "
                                "from %d to %d", group, topic, queue_id, offset, end)  # fmt: skip
                    queues[queue_id] = end
                    self._dirty = True

    def begin_acting(self) -> None:
        """What is committed from now on, the master is to be told when it is back."""
        self.version.has_acted = True
        if self._base is None:
            self._base = {key: queues.copy() for key, queues in self.table.items()}
            self._dirty = True

    def end_acting(self) -> None:
        """The offsets count as they are: this broker is no slave any more."""
        self._base, self.version.has_acted = None, False

    async def take_copy(self, table: Mapping[str, dict[int, int]]) -> None:
        """Have the offsets that the master of this slave has, in the file before in memory.

        They win where both have some (SlaveSynchronize.syncConsumerOffset). What groups have
        committed here alone, while the master was away, stays; what came from the master and is
        not there any more goes: a topic that was deleted and made again begins at 0. (Java keeps
        it.) Raises OSError; nothing has changed.
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
            self.table = merged()  # with what was committed meanwhile, which stays to be saved
            self._copied = frozenset(table)

    def go_on_from(
        self, table: Mapping[str, dict[int, int]], end_of: Callable[[str, int], int]
    ) -> None:
        """Have groups be where they were at a slave that has acted as the master, as far as they
        were further there, and the messages before are here."""
        for key, queues in table.items():
            topic, _, group = key.partition(SEPARATOR)
            for queue_id, offset in queues.items():
                reached = min(offset, end_of(topic, queue_id))
                if reached > self.query(group, topic, queue_id):
                    self.commit(group, topic, queue_id, reached)

    def remove_group(self, group: str) -> None:
        """Forget the offsets of a group that was deleted."""
        self._remove(key for key in list(self.table) if key.endswith(SEPARATOR + group))
        for callback in self.on_group_removed:
            callback(group)

    def remove_topic(self, topic: str) -> None:
        """Forget the offsets in a topic that was deleted: a new one of that name starts at 0."""
        self._remove(key for key in list(self.table) if key.startswith(topic + SEPARATOR))
        for callback in self.on_topic_removed:
            callback(topic)

    def begin_anew(self, cleared: Collection[tuple[str, int]]) -> None:
        """Have groups be at the beginning of queues, by topic and id, that were cleared, and have
        offset 0 next: they would pass over what comes there."""
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
        """What encodes the offsets as they are now, for a thread: there may be very many.

        As the file, indented as Java writes it, or on one line, as it travels to a slave
        (GET_ALL_CONSUMER_OFFSET), with what it is worth, and what groups have committed while this
        slave acted.
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
        """Write the file if anything has changed; a failure is logged and tried again next time."""
        try:
            await self.save_now()
        except NotFlushed:
            pass  # which was told
        except OSError as error:
            log.error("consumer offsets cannot be saved: %s", error)

    async def save_removals(self) -> None:
        """Have what was removed be gone behind a kill, too.

        Raises OSError where it may be back: what can be saved is.
        """
        failures: list[OSError] = []
        if self._flush is not None:
            await self._flush()  # where it cannot be, `save_now` says so
        for prepare in self.before_removals_are_saved:
            try:
                await prepare()
            except OSError as error:
                failures.append(error)
        await self.save_now()
        if failures:
            raise failures[0]

    async def save_now(self) -> None:
        """Write the file if anything has changed. Raises OSError; `save` tries it again.

        The log is flushed first: what a group has passed may have been put into it again, as a
        check point of popped messages or as a retry, and a power cut would take that alone.
        """
        async with self._saving:
            if not self._dirty:
                return
            self._dirty = False
            encode = self.encoder()
            try:
                if self._flush is not None and not await self._flush():
                    # What is in the file is older: after a restart some messages come once more.
                    raise NotFlushed(errno.EIO, "the log cannot be flushed")
                await self._saves.run(lambda: write_atomically(self._path, encode()))
            except BaseException:  # also where a stop cancels it, which saves once more
                self._dirty = True
                raise


class NotFlushed(OSError):
    """What is in the log is not on the disk, so that nothing may be said to lie behind it."""


def changed(
    table: Mapping[str, Mapping[int, int]], base: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """Of offsets those that a table of before has not."""
    found = {}
    for key, queues in table.items():
        before = base.get(key, {})
        moved = {number: at for number, at in queues.items() if before.get(number) != at}
        if moved:
            found[key] = moved
    return found


_NONE = -1  # as `query` has it


def _named(table: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    """A table with texts for names: a Java that does not know it cannot pass over numbers."""
    return {
        key: {str(number): at for number, at in queues.items()} for key, queues in table.items()
    }


def _acted_from(
    table: Mapping[str, Mapping[int, int]], base: Mapping[str, Mapping[int, int]] | None
) -> dict[str, dict[str, dict[str, int]]]:
    """The field for the file: where groups were that have moved since."""
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
    """The offsets of a file, and those from which a slave has acted. Raises ValueError."""
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
    """The offsets of a file, or of an answer to GET_ALL_CONSUMER_OFFSET. Raises ValueError."""
    table = _find(fastjson.loads(data), "offsetTable")
    if table is None:
        raise ValueError("no offsetTable")
    return table


def decode_changed_offsets(data: bytes) -> dict[str, dict[int, int]]:
    """Those of an answer that were committed at a slave while it acted as the master: all of them,
    where it does not say which. Raises ValueError."""
    table = _find(fastjson.loads(data), "changedTable")
    return decode_offsets(data) if table is None else table


def _find(content: object, name: str) -> dict[str, dict[int, int]] | None:
    """A table of JSON, None if there is none. Raises ValueError."""
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
