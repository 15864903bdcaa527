"""What the broker's own work could not handle, set aside where a person can look at it.

The broker reads what it has stored itself: delayed and timed messages, halves, check points. One
that it cannot handle, whatever is wrong with it, must hold up no other, and must not be lost
without a word. So it is passed over, and a line about it goes to `config/setAside.jsonl`:

    time            when, ms since 1970
    service, why    who could not handle it, and the error
    topic, queueId, queueOffset, physicalOffset    where it is, as far as that is known
    record          the record as it stands in the log, in Base64; null if it cannot be read

The file is bounded: over MOST_BYTES it becomes `setAside.jsonl.1`, in the place of the one before.
"""

import asyncio
import base64
import logging
from collections import Counter
from typing import Any

import orjson

from mq.client.machine import clock, files
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.state_file import make_folder
from mq.daemons.supervision import describe

log = logging.getLogger(__name__)

FILE_NAME = "setAside.jsonl"  # in the folder config
# Of one file, of which there are two: some thousands of usual messages, or four of the largest.
MOST_BYTES = 32 * 1024 * 1024
# What waits for the disk. Beyond it only the log tells of more.
MOST_WAITING = 16 * 1024 * 1024


class Quarantine:
    """Takes items, and writes them in `save`. ``counts`` has how many, by service."""

    def __init__(self, store: MessageStore) -> None:
        self.path = store.root / "config" / FILE_NAME
        self.counts: Counter[str] = Counter()
        self._store = store
        self._waiting: list[bytes] = []
        self._size = 0
        self._saving = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None

    def put(
        self,
        service: str,
        why: str | BaseException,
        topic: str,
        queue_id: int,
        queue_offset: int = -1,
        physical: int = -1,
    ) -> None:
        """Set aside what lies at a queue offset, or at a physical one. Raises nothing."""
        self.counts[service] += 1
        text = describe(why) if isinstance(why, BaseException) else why
        log.error(
            "%s: what is at %s queue %d offset %d (physical %d) is set aside in %s: %s",
            service, topic, queue_id, queue_offset, physical, self.path.name, text,
            exc_info=why if isinstance(why, BaseException) else None,
            extra={"failure": f"set aside by {service}"},
        )  # fmt: skip
        record = self._record(topic, queue_id, queue_offset, physical)
        line: dict[str, Any] = {
            "time": clock.milliseconds(),
            "service": service,
            "why": text,
            "topic": topic,
            "queueId": queue_id,
            "queueOffset": queue_offset,
            "physicalOffset": physical,
            "record": None if record is None else base64.b64encode(record).decode(),
        }
        try:
            data = orjson.dumps(line) + b"\n"
        except TypeError as error:  # a number of it needs more than 64 bits
            data = orjson.dumps({"service": service, "why": f"{text}; {error}"}) + b"\n"
        if self._size + len(data) <= MOST_WAITING:
            self._waiting.append(data)
            self._size += len(data)

    def info(self) -> dict[str, str]:
        """For GET_BROKER_RUNTIME_INFO: how many since the start."""
        return {"setAside": str(self.counts.total())}

    async def save(self) -> None:
        """Write what waits. Raises OSError; it waits on then.

        Whoever is cancelled in here leaves the write to the next one: its thread goes on, and lines
        that were given back now would be there twice.
        """
        async with self._saving:
            while self._writing is not None or self._waiting:
                if self._writing is None:
                    self._writing = asyncio.create_task(self._write_waiting())
                    self._writing.add_done_callback(self._written)
                await asyncio.shield(self._writing)

    async def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            await asyncio.to_thread(self._write, b"".join(waiting))
        except BaseException:
            self._waiting[:0] = waiting
            raise
        self._size -= sum(map(len, waiting))

    def _written(self, task: "asyncio.Task[None]") -> None:
        self._writing = None
        if not task.cancelled():
            task.exception()  # whoever saves is told; after a cancellation nobody may be there

    def _write(self, data: bytes) -> None:
        make_folder(self.path.parent)
        if files.exists(self.path) and files.size(self.path) + len(data) > MOST_BYTES:
            files.replace(self.path, self.path.with_name(FILE_NAME + ".1"))
        files.append(self.path, data)
        files.sync_folder(self.path.parent)  # rarely is anything set aside: each time

    def _record(self, topic: str, queue_id: int, queue_offset: int, physical: int) -> bytes | None:
        try:
            if physical < 0 <= queue_offset:
                entry = self._store.entries.at(topic, queue_id, queue_offset)
                physical = -1 if entry is None else entry[0]
            return None if physical < 0 else self._store.record_at(physical)
        except Exception as error:  # it is set aside because something is wrong with it
            log.error("its record cannot be read: %s", describe(error))
            return None
