"""Sends trace entries in the background (AsyncTraceDispatcher)."""

import asyncio
import logging
from collections import deque
from itertools import count
from typing import Any, Protocol

from mq.client.errors import MQError
from mq.client.trace.entries import TraceEntry, encode
from mq.client.transport.session import Session
from mq.client.transport.tasks import Closing
from mq.protocol.message import Message
from mq.protocol.names import TRACE_TOPIC
from mq.protocol.properties import has_separator

log = logging.getLogger(__name__)

QUEUE_SIZE = 1024  # queued entries; further ones are dropped
FLUSH_SECONDS = 0.5  # how long an entry waits to be sent together with others
_BATCH = 100  # entries per message; this many wake the sender at once
_MAX_BODY = 118_000  # bytes per message
# Per message, ids and keys together: properties have at most 32,767 bytes.
_MAX_KEYS = 24_000
SEND_SECONDS = 5.0  # for one message, with all attempts
_CLOSE_SECONDS = 5.0
_GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
_numbers = count(1)


def trace_group(group: str, kind: str) -> str:
    """Return the group of the producer that sends the traces of `group`; `kind` is PRODUCE or
    CONSUME.
    """
    return f"{_GROUP_PREFIX}-{group}-{kind}-{next(_numbers)}"[:255]


class TraceProducer(Protocol):
    """Sends traces: a `Producer` that is not traced itself."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def send(self, message: Message) -> Any: ...


class TraceDispatcher:
    """Collects entries and sends them to the trace topic, several in one message.

    `append` never waits. When 1024 entries are queued, further ones are dropped and counted in
    `dropped`, as are the entries of a message that no broker accepts.
    """

    def __init__(self, session: Session, producer: TraceProducer, topic: bool | str = True) -> None:
        """Send to the trace topic, or to the topic given as a string. The dispatcher opens and
        closes `producer`.

        See `trace_group` for the producer's group.
        """
        self.topic = topic if isinstance(topic, str) else TRACE_TOPIC
        self.dropped = 0
        self._session = session
        self._producer = producer
        self._waiting: deque[TraceEntry] = deque()
        self._full = asyncio.Event()
        self._ends = False
        self._closing = Closing()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start sending; waits first for a close that is running. Safe to call again."""
        await self._closing.settle()
        if self._task is None:
            await self._producer.open()
            self._ends = False
            self._task = self._session.keep_task(self._run())

    async def close(self) -> None:
        """Send queued entries within 5 seconds, even if the caller is cancelled. Safe to call
        again.
        """
        await self._closing.run(self._close)

    async def _close(self) -> None:
        if self._task is None:
            return
        task, self._task = self._task, None
        self._ends = True
        self._full.set()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.wait([task])  # it may be sending
                await self.flush()
        except TimeoutError:
            self._lose(len(self._waiting), "not sent in time")
        finally:
            task.cancel()
        await self._producer.close()

    def append(self, entry: TraceEntry) -> bool:
        """Queue an entry; False if it is dropped because the queue is full."""
        if len(self._waiting) >= QUEUE_SIZE:
            self.dropped += 1
            return False
        self._waiting.append(entry)
        if len(self._waiting) >= _BATCH:
            self._full.set()
        return True

    async def flush(self) -> None:
        """Send all queued entries now."""
        while self._waiting:
            message, entries = self._next_message()
            try:
                await self._producer.send(message)
            except (MQError, ValueError) as error:
                self._lose(entries, str(error))
            except asyncio.CancelledError:
                self._lose(entries, "not sent in time")
                raise

    def _lose(self, entries: int, why: str) -> None:
        if entries:
            self.dropped += entries
            log.warning("lost %d trace entries: %s", entries, why)

    async def _run(self) -> None:
        while not self._ends:
            try:
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._full.wait()
            except TimeoutError:
                pass
            self._full.clear()
            await self.flush()

    def _next_message(self) -> tuple[Message, int]:
        keys: dict[str, None] = {}  # used as an ordered set
        texts: list[str] = []
        size = key_size = 0
        while self._waiting and len(texts) < _BATCH and size < _MAX_BODY and key_size < _MAX_KEYS:
            entry = self._waiting.popleft()
            text = encode(entry)
            texts.append(text)
            size += len(text)
            for key in (*entry.message_id.split(","), *entry.keys.split()):
                if has_separator(key):  # a message of another client may have any id
                    continue
                key_size += len(key) + 1 if key not in keys else 0
                keys[key] = None
        return Message(self.topic, "".join(texts).encode(), keys=keys), len(texts)
