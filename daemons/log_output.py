"""The log of a daemon: the format of its lines, and how they are written."""

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

# Variable with the name in the log lines of a daemon that is one of several, set by the process
# that starts them.
LOG_NAME = "MQ_LOG_NAME"

# Seconds between two log lines about one peer: one that misbehaves could fill the disk otherwise.
PEER_LOG_INTERVAL = 1.0

# Limit of bytes of unwritten lines. A daemon at level DEBUG writes some MB/s.
MAX_PENDING_BYTES = 16 * 1024 * 1024
# Seconds that the end of a process waits for its last lines.
FLUSH_SECONDS = 2.0


def configure_log(log_format: str = "", level: str = "") -> None:
    """Log to standard output, as text or as one JSON object per line.

    `log_format` is text or json, INFO the usual level; MQ_LOG_FORMAT and MQ_LOG_LEVEL are the
    defaults.

    Raises:
        ConfigError: the format or level does not exist.
    """
    log_format = log_format or os.environ.get("MQ_LOG_FORMAT", "text")
    level = level or os.environ.get("MQ_LOG_LEVEL", "INFO")
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
    except (AttributeError, OSError, ValueError):  # not a file, as in a test or a notebook
        return logging.StreamHandler(sys.stdout)
    return LogWriter(descriptor)


def flush_log() -> None:
    """Wait until the log is written, for at most FLUSH_SECONDS."""
    for handler in logging.getLogger().handlers:
        handler.flush()


class LogWriter(logging.Handler):
    """Writes records to a file descriptor in its own thread.

    A pipe without a reader blocks only this thread: records that do not fit into MAX_PENDING_BYTES
    are dropped, and the next line counts them.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._pending: deque[bytes] = deque()
        self._size = 0  # bytes in _pending, and those that the thread is writing
        self._dropped = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
        except Exception:  # like logging.StreamHandler: a record that cannot be formatted
            self.handleError(record)
            return
        with self._changed:
            if self._size + len(line) > MAX_PENDING_BYTES:
                self._dropped += 1
                return
            if self._dropped:
                notice = f"{self._dropped} log lines were dropped: the reader is too slow\n"
                self._dropped = 0
                self._pending.append(notice.encode())
                self._size += len(notice)
            self._pending.append(line)
            self._size += len(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all records are written, for at most FLUSH_SECONDS."""
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
        """Write all of the data. A failing descriptor, such as a pipe whose reader has ended, loses
        it: there is nowhere else to report that.
        """
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            # another process that shares the descriptor made it non-blocking
            except BlockingIOError:
                select.select((), (self._descriptor,), ())
            except OSError:
                return


class TextFormatter(logging.Formatter):
    """`2025-01-31 12:00:00,123 INFO mq.daemons.namesrv.routes text`; with the name of one of
    several brokers: `… INFO [broker-a] mq.daemons…`

    A record is one line, except for the traceback of an error, whose lines are indented.
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
    """One JSON object per line: time (seconds since 1970), level, logger, text, and error if any;
    for one of several brokers its name as daemon.
    """

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
        # JSON has none of the escaped characters outside of strings.
        return escaped(json.dumps(entry, ensure_ascii=False))


class PeerRateLimit(logging.Filter):
    """Passes one record per second for each peer, of those logged with `extra={"peer": …}`, and for
    each recurring failure, of those with `extra={"failure": …}`.

    The next record that passes says how many did not.
    """

    # Limit of remembered peers; above it the oldest are dropped, so that more is logged.
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
