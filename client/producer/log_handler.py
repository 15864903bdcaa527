"""A `logging.Handler` that sends log records to a topic as messages (RocketMQ's logappender).

The logging thread only formats the record and puts it into a bounded queue. A thread with an event
loop of its own takes records from the queue and sends them in message batches. Records for which
the queue has no room, or that no broker accepts, are dropped and counted; a line on stderr reports
them from time to time, as `logging` does for errors of its own handlers. Records of that thread
itself, above all those of its client's connections, never enter the queue: an unavailable broker
would fill it with them.
"""

import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Sequence

from mq.client.machine import clock
from mq.client.options import ClientOptions
from mq.client.producer.log_sender import REPORT_SECONDS, LogSender
from mq.client.routing.address_server import is_url
from mq.client.transport.caller import parse_name_servers
from mq.protocol.message import Message
from mq.protocol.names import check_group, check_topic

CAPACITY = 10_000  # records in the queue
# total bytes in the queue, so that long records cannot exhaust the memory
MAX_BYTES = 16 * 1024 * 1024
CLOSE_SECONDS = 5.0
_BATCH = 200  # records per batch
_BATCH_BYTES = 256 * 1024  # bytes per batch; a longer record is sent alone
_LEAST_JOIN = 0.5  # the shortest wait for the thread at the end


class MessageLogHandler(logging.Handler):
    """Sends log records to a topic, each as one message with the formatted text as its body.

        handler = MessageLogHandler("127.0.0.1:9876", "Logs", tag="shop")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logging.getLogger().addHandler(handler)

    Messages have the properties `level` and `logger`. Logging never waits for a name server or
    broker. It works from any thread, in a process without an event loop, and in a forked child.
    `logging.shutdown`, which Python calls at exit, sends the queued records within at most
    `close_timeout` seconds.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        topic: str,
        *,
        tag: str | None = None,
        group: str = "mq_log",
        level: int | str = logging.NOTSET,
        capacity: int = CAPACITY,
        close_timeout: float = CLOSE_SECONDS,
        client: ClientOptions | None = None,
    ) -> None:
        """`group` is the producer group; `client` configures the connections.

        Raises ClientError for invalid addresses, IllegalName for topic or group.
        """
        super().__init__(level)
        check_topic(topic)
        check_group(group)
        if not is_url(namesrv):
            parse_name_servers(namesrv)
        self.topic = topic
        self.tag = tag
        self.dropped = 0  # records dropped since the start
        self._place = namesrv, group, client or ClientOptions()
        self._capacity = capacity
        self._close_timeout = close_timeout
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Create an empty queue, without a thread yet."""
        self._pid = os.getpid()
        self._waiting: deque[Message] = deque()
        self._bytes = 0  # total bytes in `_waiting`
        self._unsent = 0  # records queued or in flight
        self._settled = threading.Condition()  # guards the two above
        self._sender: LogSender | None = None
        self._unreported = 0
        self._reported = -REPORT_SECONDS

    def handle(self, record: logging.LogRecord) -> bool:
        """Handle a record without the handler's lock, which `logging.shutdown` holds while it waits
        for `flush`.
        """
        sender = self._sender
        if sender is not None and sender.thread is threading.current_thread():
            return False
        chosen: bool | logging.LogRecord = self.filter(record)
        if chosen:  # since Python 3.12 a filter may return another record
            self.emit(chosen if isinstance(chosen, logging.LogRecord) else record)
        return bool(chosen)

    def emit(self, record: logging.LogRecord) -> None:
        """Put a record into the queue, or drop it if the queue is full."""
        if self._closed:
            return
        if self._pid != os.getpid():
            self._reset_after_fork()
        try:
            message = self._message(record)
        except Exception:
            self.handleError(record)
            return
        size = len(message.body)
        with self._settled:
            if len(self._waiting) >= self._capacity or self._bytes + size > MAX_BYTES:
                self._count_dropped(1)
                return
            self._waiting.append(message)
            self._bytes += size
            self._unsent += 1
        try:
            sender = self._sender or self._started()
        except RuntimeError:  # Python is exiting, and threads cannot be started
            self.settle(1, dropped=True)
            self.handleError(record)
        else:
            sender.wake()

    def _reset_after_fork(self) -> None:
        """Reset a forked child's copy of the queue: those records belong to the parent."""
        self.acquire()
        try:
            if self._pid != os.getpid():
                self._begin()
        finally:
            self.release()

    def _started(self) -> LogSender:
        self.acquire()
        try:
            if self._sender is None:
                # set before the start: its thread logs at once
                self._sender = LogSender(self, *self._place)
                try:
                    self._sender.thread.start()
                except RuntimeError:
                    self._sender = None
                    raise
            return self._sender
        finally:
            self.release()

    def _message(self, record: logging.LogRecord) -> Message:
        properties = {"level": record.levelname, "logger": record.name}
        return Message(
            self.topic,
            self.format(record).encode("utf-8", "replace") or b"\n",  # a body must not be empty
            self.tag,
            properties={name: text for name, text in properties.items() if text.isprintable()},
        )

    def flush(self) -> None:
        """Wait until all queued records are sent or dropped, for at most `close_timeout`
        seconds.
        """
        self._flush(self._close_timeout)

    def _flush(self, seconds: float) -> None:
        sender = self._sender
        if sender is None or self._pid != os.getpid():
            return
        if sender.thread is threading.current_thread():
            return  # it would wait for itself
        sender.wake()
        with self._settled:
            self._settled.wait_for(lambda: not self._unsent, seconds)

    def close(self) -> None:
        """Send queued records within `close_timeout` seconds, and end. Safe to call again."""
        if not self._closed:
            deadline = clock.monotonic() + self._close_timeout
            self._flush(self._close_timeout)
            self._closed = True
            if self._sender is not None and self._pid == os.getpid():
                self._sender.end(max(_LEAST_JOIN, deadline - clock.monotonic()))
                self._drop_rest()
        super().close()

    def _drop_rest(self) -> None:
        with self._settled:
            self._waiting.clear()
            self._count_dropped(self._unsent)
            self._unsent = 0
        self.report("no broker took them in time", at_once=True)

    def _count_dropped(self, count: int) -> None:
        self.dropped += count
        self._unreported += count

    # for the sending thread -----------------------------------------------------------------------

    def take(self) -> list[Message]:
        """Take the next records to send together; they count as unsent until `settle`."""
        batch: list[Message] = []
        size = 0
        with self._settled:
            while self._waiting and len(batch) < _BATCH:
                size += len(self._waiting[0].body)
                if batch and size > _BATCH_BYTES:
                    break
                message = self._waiting.popleft()
                self._bytes -= len(message.body)
                batch.append(message)
        return batch

    def settle(self, count: int, *, dropped: bool = False) -> None:
        """Mark records as sent, or as dropped."""
        with self._settled:
            if self._closed:
                return  # `close` has counted them
            self._unsent -= count
            if dropped:
                self._count_dropped(count)
            if not self._unsent:
                self._settled.notify_all()

    def report(self, reason: str, *, at_once: bool = False) -> None:
        """Report on stderr how many records were dropped since the last report."""
        now = clock.monotonic()
        if not self._unreported or not (at_once or now - self._reported >= REPORT_SECONDS):
            return
        count, self._unreported, self._reported = self._unreported, 0, now
        if logging.raiseExceptions and sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # stderr may be closed
                print(
                    f"mq: {count} log records for topic {self.topic} were dropped: {reason}",
                    file=sys.stderr,
                )
