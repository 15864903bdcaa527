"""Delay levels: messages wait in SCHEDULE_TOPIC_XXXX until they are due, then go to their real
topic.

Each level is a queue of that topic, so its messages are due in the order of storing; the tags code
of a queue entry is the time at which its message is due. One task for each level sleeps until the
first message of its queue is due. The offset of each level is kept in config/delayOffset.json,
which Java reads, too. After a crash, messages delivered since the last save are delivered again.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.delivery.waiting import NextMessage, is_stored, store_all
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.offsets.copy_version import CopyVersion
from mq.daemons.broker.store import ConsumeQueue, MessageStore, OnStored, StoreRefused, layout
from mq.daemons.broker.tables.saves import Saves
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.daemons.supervision import Work
from mq.protocol import fastjson, names

log = logging.getLogger(__name__)

_AT_ONCE = 256  # messages delivered in one turn of the event loop
# Longest sleep in seconds, so that a clock that was set forward is noticed.
_LONGEST_SLEEP = 1.0
# Longest plausible delay in ms of a message in a level that messageDelayLevel no longer has.
_LONGEST_DELAY = 7 * 24 * 3600 * 1000


class DelayedMessages:
    """Delivers messages whose delay is over."""

    def __init__(
        self, path: Path, store: MessageStore, writer: MessageWriter, aside: Quarantine
    ) -> None:
        self._path = path
        self._store = store
        self._writer = writer
        self._aside = aside
        self.offsets: dict[int, int] = (
            read_with_backup(path, decode_delay_offsets) or {}
        )  # by level
        self._saved: dict[int, int] = dict(self.offsets)
        self._saves = Saves()
        self.delivered = 0
        self.version = CopyVersion()
        self.go_back_to_ends()

    def go_back_to_ends(self) -> None:
        """Keep the offsets within their queues after the queues lost their ends, because the next
        messages get the lost offsets again.
        """
        for level in self._levels():
            self._correct(level)
        self._save_corrected()

    def _levels(self) -> list[int]:
        """The levels of messageDelayLevel, and other levels in which messages wait."""
        queues = self._store.queues_of(names.SCHEDULE_TOPIC)
        removed = [n + 1 for n in queues if n + 1 not in self._writer.delays and self._left(n + 1)]
        return sorted([*self._writer.delays, *removed])

    def _left(self, level: int) -> int:
        """Number of messages that wait in a level."""
        queue = self._queue(level)
        return queue.appended - max(self.offsets.get(level, 0), queue.minimum)

    def _save_corrected(self) -> None:
        """Save corrected offsets before a message arrives; otherwise a kill would leave an offset
        that is then after it.
        """
        if self.offsets == self._saved:
            return
        try:
            write_atomically(self._path, self.encode())
            self._saved = dict(self.offsets)
        except OSError as error:
            log.error("cannot save delay offsets: %s", error)

    def works(self) -> Iterator[tuple[Work, str]]:
        """The task of each level, which runs until the broker stops, and its name."""
        for level in self._levels():
            if level not in self._writer.delays:
                log.warning(
                    "delay level %d: %d messages wait in a level that messageDelayLevel no longer "
                    "has; they are delivered when they are due",
                    *(level, self._left(level)),
                )
            yield partial(self._run_level, level), f"delay level {level}"

    async def save(self) -> None:
        """Write the offsets if they have changed. Raises OSError."""
        if self.offsets == self._saved:
            return
        offsets = dict(self.offsets)
        # Messages before the offsets must be on the disk: in their topic or in quarantine.
        await self._aside.save()
        if not await self._store.flusher.drain():
            # the failed fsync has been logged: the messages are delivered again after a restart
            return
        await self._saves.run(lambda: write_atomically(self._path, _encode(offsets)))
        self._saved = offsets

    async def take_copy(self, offsets: Mapping[int, int]) -> None:
        """Copy the offsets of this slave's master, from which this broker delivers when it is
        started as a master. Raises OSError; nothing has changed then.
        """
        self.version.has_acted = False
        copied = dict(sorted(offsets.items()))
        if copied == self._saved and self.is_known:
            return
        await self._saves.run(lambda: write_atomically(self._path, _encode(copied)))
        self.offsets, self._saved = copied, dict(copied)

    @property
    def is_known(self) -> bool:
        """Whether this broker, or a master that it has copied from, has ever saved offsets."""
        return files.exists(self._path)

    def encode(self) -> bytes:
        """The content of the file."""
        return _encode(self.offsets)

    def answer(self) -> bytes:
        """The reply to GET_ALL_DELAY_OFFSET: the file and the version of the copy."""
        table = dict(sorted(self.offsets.items()))
        return fastjson.dumps_pretty({"dataVersion": self.version.fields(), "offsetTable": table})

    def running_info(self) -> dict[str, str]:
        """Offset and end of each level, for GET_BROKER_RUNTIME_INFO."""
        return {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{self._store.max_offset(names.SCHEDULE_TOPIC, level - 1)}"
            )
            for level, offset in sorted(self.offsets.items())
        }

    def _correct(self, level: int) -> None:
        """Keep an offset within its queue (ScheduleMessageService.correctDelayOffset). After a
        start, the end of the queue may not be confirmed any more.
        """
        offset = self.offsets.get(level)
        queue = self._queue(level)
        if offset is None or queue.minimum <= offset <= queue.appended:
            return
        self.offsets[level] = min(max(offset, queue.minimum), queue.appended)
        log.error("delay level %d: offset %d is outside of %r; correcting it", level, offset, queue)

    def _queue(self, level: int) -> ConsumeQueue:
        return self._store.queue(names.SCHEDULE_TOPIC, level - 1)

    async def _run_level(self, level: int) -> None:
        queue = self._queue(level)
        news = NextMessage()
        while True:
            offset = max(self.offsets.get(level, 0), queue.minimum)
            entries = queue.entries(offset, _AT_ONCE)
            if not entries:
                if offset < queue.readable:  # the end of a deleted file
                    self.offsets[level] = queue.next_file_index(offset)
                    continue
                await news.wait(queue)
                continue
            due = self._due(level, entries)
            if due:
                await self._deliver(level, offset, due)
            else:
                await asyncio.sleep(self._seconds_left(level, entries))

    def _due(self, level: int, entries: bytes) -> list[int]:
        """The physical offsets of the first entries that are due."""
        now = _now()
        latest = now + self._writer.delays.get(level, _LONGEST_DELAY)
        found = []
        for physical, _, at in layout.ENTRY.iter_unpack(entries):
            # A time further away than the level's delay means that the levels or the clock were
            # changed.
            if now < at <= latest:
                break
            found.append(physical)
        return found

    def _seconds_left(self, level: int, entries: bytes) -> float:
        at: int = layout.ENTRY.unpack_from(entries)[2]
        return min(max((at - _now()) / 1000, 0.001), _LONGEST_SLEEP)

    async def _deliver(self, level: int, offset: int, due: list[int]) -> None:
        """Deliver messages; the offset moves past those that are done."""
        done: set[int] = set()  # positions in `due`

        def put(position: int, outcome: OnStored) -> None:
            def stored(refusal: StoreRefused | None) -> None:
                if is_stored(refusal):
                    done.add(position)
                outcome(refusal)

            self._put(level, offset + position, due[position], stored)

        def set_aside(position: int, error: BaseException) -> None:
            done.add(position)
            index, physical = offset + position, due[position]
            self._aside.put(
                f"delay level {level}", error, names.SCHEDULE_TOPIC, level - 1, index, physical
            )

        try:
            await store_all(range(len(due)), put, set_aside, f"messages of delay level {level}")
        finally:
            if len(done) < len(due):  # the broker stops: with async flush this stores them
                self._store.appender.commit()
            moved = next((n for n in range(len(due)) if n not in done), len(due))
            self.offsets[level] = offset + moved
            self.delivered += moved

    def _put(self, level: int, index: int, physical: int, outcome: OnStored) -> None:
        """Deliver one message. Raises StoreRefused, OSError, and LookupError or NoTarget for a
        message that cannot be delivered.
        """
        message = self._writer.read_entry(names.SCHEDULE_TOPIC, level - 1, index, physical)
        if message is None:
            raise LookupError("the message of this queue entry is not in the log")
        self._writer.restore_target(message)
        self._writer.put(message, outcome)


def _now() -> int:
    return clock.milliseconds()


def _encode(offsets: dict[int, int]) -> bytes:
    return fastjson.dumps_pretty({"offsetTable": dict(sorted(offsets.items()))})


def advance_saved(path: Path, offsets: Mapping[int, int]) -> None:
    """Advance the offsets in the file of a broker that has not opened it yet to at least these.
    Called in a thread. Raises OSError.
    """
    own = read_with_backup(path, decode_delay_offsets) or {}
    reached = {level: max(own.get(level, 0), at) for level, at in offsets.items()}
    if any(own.get(level) != at for level, at in reached.items()):
        write_atomically(path, _encode({**own, **reached}))


def decode_delay_offsets(data: bytes) -> dict[int, int]:
    """The offsets of a file, or of a reply to GET_ALL_DELAY_OFFSET. Raises ValueError."""
    plain = fastjson.loads(data)
    table = plain.get("offsetTable") if isinstance(plain, dict) else None
    if not isinstance(table, dict):
        raise ValueError("no offsetTable")
    offsets = {int(level): offset for level, offset in table.items()}
    if not all(isinstance(offset, int) and offset >= 0 for offset in offsets.values()):
        raise ValueError("an offset is not a number")
    return offsets
