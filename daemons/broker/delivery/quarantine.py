"""Quarantine: entries that the broker's own services could not process, kept for inspection.

The broker reads some of its own messages: delayed and timed messages, half messages, check points.
One that it cannot process, for whatever reason, must not block others, and must not be lost
silently. So it is skipped, and a line about it is appended to `config/setAside.jsonl`:

  time            when, ms since 1970
  service, why    the service that failed, and the error
  topic, queueId, queueOffset, physicalOffset    its location, as far as it is known
  record          the record as stored in the log, in Base64; null if it cannot be read

The file is bounded: above MOST_BYTES it is renamed to `setAside.jsonl.1`, replacing an earlier one.
"""

import asyncio
import base64
import logging
from collections import Counter
from typing import Any

import orjson

from mq.client.machine import clock, files
from mq.daemons.broker.store import MessageStore
from mq.daemons.state_file import make_folder
from mq.daemons.supervision import describe

log = logging.getLogger(__name__)

FILE_NAME = "setAside.jsonl"  # in the folder config
# Limit of each of the two files: some thousands of usual messages, or four of the largest.
MOST_BYTES = 32 * 1024 * 1024
# Limit of entries that wait to be written, in bytes. Entries beyond it are only logged.
MOST_WAITING = 16 * 1024 * 1024


class Quarantine:
    """Collects entries, and writes them in `save`. ``counts`` has their number by service."""

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
        """Quarantine the message at a queue offset or a physical offset. Raises nothing."""
        self.counts[service] += 1
        text = describe(why) if isinstance(why, BaseException) else why
        log.error(
            "%s: the message at %s queue %d offset %d (physical %d) is set aside in %s: %s",
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
        except TypeError as error:  # a number in it needs more than 64 bits
            data = orjson.dumps({"service": service, "why": f"{text}; {error}"}) + b"\n"
        if self._size + len(data) <= MOST_WAITING:
            self._waiting.append(data)
            self._size += len(data)

    def info(self) -> dict[str, str]:
        """The number of entries since the start, for GET_BROKER_RUNTIME_INFO."""
        return {"setAside": str(self.counts.total())}

    async def save(self) -> None:
        """Write the waiting entries. Raises OSError; they keep waiting then.

        A cancelled call leaves the write to the next call: the thread continues, and returning the
        lines to the list would write them twice.
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
            task.exception()  # `save` raises it; after a cancellation there may be no caller left

    def _write(self, data: bytes) -> None:
        make_folder(self.path.parent)
        if files.exists(self.path) and files.size(self.path) + len(data) > MOST_BYTES:
            files.replace(self.path, self.path.with_name(FILE_NAME + ".1"))
        files.append(self.path, data)
        files.sync_folder(self.path.parent)  # fsync each time, because quarantine is rare

    def _record(self, topic: str, queue_id: int, queue_offset: int, physical: int) -> bytes | None:
        try:
            if physical < 0 <= queue_offset:
                entry = self._store.entries.at(topic, queue_id, queue_offset)
                physical = -1 if entry is None else entry[0]
            return None if physical < 0 else self._store.record_at(physical)
        except Exception as error:  # the message is here because something is wrong with it
            log.error("cannot read the record of a quarantined message: %s", describe(error))
            return None
