"""Log records as messages: a `logging.Handler` that sends them to a topic (RocketMQ's logappender).

Whoever logs only formats the record and puts it into a bounded queue. A thread with an event loop
of its own takes them out and sends them, several in one message batch. What the queue has no room
for, and what no broker takes, is dropped and counted; stderr is told so once in a while, as
`logging` tells its own handlers' errors there. What that thread logs itself, its client's
connections above all, never gets into the queue: a broker that is away would fill it with that.
"""

import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Sequence

from mq.client.address_server import is_url
from mq.client.caller import parse_name_servers
from mq.client.log_sender import TELL_SECONDS, LogSender
from mq.client.machine import clock
from mq.client.options import ClientOptions
from mq.protocol.message import Message
from mq.protocol.names import check_group, check_topic

CAPACITY = 10_000  # records that wait
MAX_BYTES = 16 * 1024 * 1024  # of records that wait, so that long ones do not fill the memory
CLOSE_SECONDS = 5.0
_BATCH = 200  # records of one batch
_BATCH_BYTES = 256 * 1024  # of one batch; a longer record travels alone
_LEAST_JOIN = 0.5  # how long the end waits for the thread in any case


class MessageLogHandler(logging.Handler):
    """Sends log records to a topic, each as one message with its text as the body.

        handler = MessageLogHandler("127.0.0.1:9876", "Logs", tag="shop")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logging.getLogger().addHandler(handler)

    Messages have the properties `level` and `logger`. It never waits: not for a name server, not
    for a broker. It works from any thread, in a process without an event loop, and in a child that
    was forked. `logging.shutdown`, which Python calls at its end, sends what waits, for at most
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
        """`group` is the producer group; `client` says how to connect.

        Raises ClientError for invalid addresses, IllegalName for topic or group.
        """
        super().__init__(level)
        check_topic(topic)
        check_group(group)
        if not is_url(namesrv):
            parse_name_servers(namesrv)
        self.topic = topic
        self.tag = tag
        self.dropped = 0  # records, since the beginning
        self._place = namesrv, group, client or ClientOptions()
        self._capacity = capacity
        self._close_timeout = close_timeout
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """An empty queue that no thread works on yet."""
        self._pid = os.getpid()
        self._waiting: deque[Message] = deque()
        self._bytes = 0  # of what waits
        self._unsent = 0  # records that wait or are on their way
        self._settled = threading.Condition()  # of the two above
        self._sender: LogSender | None = None
        self._untold = 0
        self._told = -TELL_SECONDS

    def handle(self, record: logging.LogRecord) -> bool:
        """Without the handler's lock: `logging.shutdown` holds it while it waits for `flush`."""
        sender = self._sender
        if sender is not None and sender.thread is threading.current_thread():
            return False
        chosen: bool | logging.LogRecord = self.filter(record)
        if chosen:  # since Python 3.12 a filter may put another record in the place of this one
            self.emit(chosen if isinstance(chosen, logging.LogRecord) else record)
        return bool(chosen)

    def emit(self, record: logging.LogRecord) -> None:
        """Put a record into the queue, or drop it if that is full."""
        if self._closed:
            return
        if self._pid != os.getpid():
            self._begin_anew()
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
        except RuntimeError:  # Python ends, and no thread can be started any more
            self.settle(1, dropped=True)
            self.handleError(record)
        else:
            sender.wake()

    def _begin_anew(self) -> None:
        """A forked child has a copy of the parent's queue: those records are the parent's."""
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
                self._sender = LogSender(self, *self._place)  # first: its thread logs at once
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
            self.format(record).encode("utf-8", "replace") or b"\n",  # no body may be empty
            self.tag,
            properties={name: text for name, text in properties.items() if text.isprintable()},
        )

    def flush(self) -> None:
        """Wait until what waits is sent, or dropped, but not longer than `close_timeout`."""
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
        """Send what waits, for at most `close_timeout` seconds, and end. Safe to call again."""
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
        self.tell("no broker took them in time", at_once=True)

    def _count_dropped(self, count: int) -> None:
        self.dropped += count
        self._untold += count

    # for the thread that sends -----------------------------------------------------------------

    def take(self) -> list[Message]:
        """The next records to send together; they count as unsent until they are `settle`d."""
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
        """Records are sent, or given up."""
        with self._settled:
            if self._closed:
                return  # `close` has counted them
            self._unsent -= count
            if dropped:
                self._count_dropped(count)
            if not self._unsent:
                self._settled.notify_all()

    def tell(self, reason: str, *, at_once: bool = False) -> None:
        """Say on stderr how many records were dropped since it was said last."""
        now = clock.monotonic()
        if not self._untold or not (at_once or now - self._told >= TELL_SECONDS):
            return
        count, self._untold, self._told = self._untold, 0, now
        if logging.raiseExceptions and sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # a stderr that is closed
                print(
                    f"mq: {count} log records for topic {self.topic} were dropped: {reason}",
                    file=sys.stderr,
                )
