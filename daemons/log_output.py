"""The log of a daemon: its lines, their format, and how they are written."""

import json
import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from mq.client.machine import clock
from mq.daemons.config import ConfigError
from mq.protocol.printable import escaped

# The name that the lines of a daemon carry which is one of several, from the process that starts
# them.
LOG_NAME = "MQ_LOG_NAME"

# A peer that misbehaves may fill the disk with log lines. One line a second says enough.
PEER_LOG_INTERVAL = 1.0

# Lines that wait to be written. A daemon at level DEBUG writes some MB/s.
MAX_PENDING_BYTES = 16 * 1024 * 1024
# How long the end of a process waits for its last lines.
FLUSH_SECONDS = 2.0


def configure_log(log_format: str, level: str) -> None:
    """Log to standard output, as text or as one JSON object a line.

    Raises:
        ConfigError: there is no such format or level.
    """
    if log_format not in ("text", "json"):
        raise ConfigError(f"log format {log_format}: expected text or json")
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(f"log level {level}: expected DEBUG, INFO, WARNING or ERROR")
    handler = _handler()
    name = os.environ.get(LOG_NAME, "")
    handler.setFormatter(JsonFormatter(name) if log_format == "json" else TextFormatter(name))
    handler.addFilter(PeerRateLimit())
    logging.basicConfig(level=number, handlers=[handler], force=True)


def _handler() -> logging.Handler:
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # no file, as in a test or a notebook
        return logging.StreamHandler(sys.stdout)
    return LogWriter(descriptor)


def flush_log() -> None:
    """Wait until the log is written, for FLUSH_SECONDS at most."""
    for handler in logging.getLogger().handlers:
        handler.flush()


class LogWriter(logging.Handler):
    """Writes records to a file descriptor in a thread of its own.

    A pipe without a reader blocks this thread only: records that do not fit into
    MAX_PENDING_BYTES are dropped, and counted in the line after them.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._pending: deque[bytes] = deque()
        self._size = 0  # bytes in _pending, and those that the thread writes
        self._dropped = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
        except Exception:  # as logging.StreamHandler: a record that cannot be formatted
            self.handleError(record)
            return
        with self._changed:
            if self._size + len(line) > MAX_PENDING_BYTES:
                self._dropped += 1
                return
            if self._dropped:
                notice = f"{self._dropped} lines of the log were dropped: its reader is too slow\n"
                self._dropped = 0
                self._pending.append(notice.encode())
                self._size += len(notice)
            self._pending.append(line)
            self._size += len(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all records are written, for FLUSH_SECONDS at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._size, FLUSH_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending)
                data = b"".join(self._pending)
                self._pending.clear()
            self._write(data)
            with self._changed:
                self._size -= len(data)
                self._changed.notify_all()

    def _write(self, data: bytes) -> None:
        """Write all of the data. A descriptor that cannot be written loses it, as with a reader
        that has ended: it cannot be reported anywhere else."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # the descriptor is shared with one that made it non-blocking
                select.select((), (self._descriptor,), ())
            except OSError:
                return


class TextFormatter(logging.Formatter):
    """`2025-01-31 12:00:00,123 INFO mq.daemons.namesrv.routes text`; of one of several brokers
    with its name: `… INFO [broker-a] mq.daemons…`

    A record is one line, but for the trace of an error, whose lines are indented.
    """

    def __init__(self, daemon: str = "") -> None:
        of = f"[{daemon.replace('%', '%%')}] " if daemon else ""
        super().__init__(f"%(asctime)s %(levelname)s {of}%(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"    {escaped(line)}" for line in lines)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (seconds since 1970), level, logger, text, and error if any;
    of one of several brokers its name as daemon."""

    def __init__(self, daemon: str = "") -> None:
        super().__init__()
        self._daemon = daemon

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            "text": record.getMessage(),
        }
        if self._daemon:
            entry["daemon"] = self._daemon
        peer = getattr(record, "peer", None)
        if peer is not None:
            entry["peer"] = peer
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        # Outside of strings JSON has no character that is escaped here.
        return escaped(json.dumps(entry, ensure_ascii=False))


class PeerRateLimit(logging.Filter):
    """Lets one record a second through for each peer, of those logged with `extra={"peer": …}`,
    and for each failure that repeats, of those with `extra={"failure": …}`.

    The next that passes says how many did not.
    """

    # Remembered at most; beyond that the oldest are forgotten, which only logs more.
    LIMIT = 10_000

    def __init__(self, clock: Callable[[], float] = clock.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[str, float] = {}
        self._dropped: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        peer = getattr(record, "peer", None) or getattr(record, "failure", None)
        if peer is None:
            return True
        now = self._clock()
        if now - self._last.get(peer, -PEER_LOG_INTERVAL) < PEER_LOG_INTERVAL:
            self._dropped[peer] = self._dropped.get(peer, 0) + 1
            return False
        if len(self._last) >= self.LIMIT:
            oldest = next(iter(self._last))
            del self._last[oldest]
            self._dropped.pop(oldest, None)
        self._last.pop(peer, None)
        self._last[peer] = now
        dropped = self._dropped.pop(peer, 0)
        if dropped:
            record.msg = f"{record.getMessage()} ({dropped} more of {peer} not logged)"
            record.args = None
        return True
