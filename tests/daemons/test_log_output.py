"""The lines of the log: their format, the limit per peer, and a reader that stalls."""

import json
import logging
import os
import sys

import pytest

from mq.daemons import log_output
from mq.daemons.log_output import JsonFormatter, LogWriter, PeerRateLimit, TextFormatter


def record(text: str, **more: object) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": "%s", "args": (text,), "levelname": "INFO", **more})


@pytest.mark.parametrize("sign", ["\n", "\r", "\x1b", "\x85", "\u2028", "\u202e", "\u2066", "\x7f"])
def test_control_characters_are_escaped(sign: str) -> None:
    line = TextFormatter().format(record(f"a{sign}b"))
    assert sign not in line and "a\\" in line
    text = JsonFormatter().format(record(f"a{sign}b"))
    assert sign not in text
    assert json.loads(text)["text"] == f"a{sign}b"


def test_a_trace_is_indented_and_the_text_of_its_error_on_one_line() -> None:
    try:
        raise ValueError("a\nCRITICAL forged")
    except ValueError:
        text = TextFormatter().format(record("failed", exc_info=sys.exc_info()))
    first, *trace = text.split("\n")
    assert first.endswith(" failed")
    assert all(line.startswith("    ") for line in trace)


def test_lines_that_a_stalled_reader_does_not_read_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_output, "MAX_PENDING_BYTES", 200_000)
    monkeypatch.setattr(log_output, "FLUSH_SECONDS", 0.1)
    reading, writing = os.pipe()
    writer = LogWriter(writing)
    line = "x" * 999
    for _ in range(1000):
        writer.emit(record(line))
    writer.flush()  # gives up
    monkeypatch.setattr(log_output, "FLUSH_SECONDS", 30.0)
    received = b""
    while received.count(b"\n") < 200:
        received += os.read(reading, 65536)
    writer.flush()  # the rest fits into the pipe
    writer.emit(record("after"))
    writer.flush()
    received += os.read(reading, 1_000_000)
    *lines, notice, last, end = received.split(b"\n")
    assert {*lines} == {line.encode()}
    assert notice == b"%d log lines were dropped: the reader is too slow" % (1000 - len(lines))
    assert (last, end) == (b"after", b"")
    os.close(reading)


def test_a_peer_gets_one_line_a_second_and_the_next_line_counts_the_others() -> None:
    now = 100.0
    limit = PeerRateLimit(lambda: now)

    def passes(peer: str | None, text: str = "bad %s") -> str | None:
        extra = {} if peer is None else {"peer": peer}
        record = logging.makeLogRecord({"msg": text, "args": ("frame",), **extra})
        return record.getMessage() if limit.filter(record) else None

    assert passes("10.0.0.1:5") == "bad frame"
    assert [passes("10.0.0.1:5") for _ in range(3)] == [None] * 3
    assert passes("10.0.0.2:5") == "bad frame"
    assert passes(None) == passes(None) == "bad frame"
    now += 1.0
    assert passes("10.0.0.1:5") == "bad frame (3 more of 10.0.0.1:5 not logged)"


def test_the_rate_limit_forgets_the_oldest_of_very_many_peers() -> None:
    limit = PeerRateLimit(lambda: 100.0)
    for number in range(limit.LIMIT + 100):
        assert limit.filter(logging.makeLogRecord({"peer": str(number)}))
    assert len(limit._last) == limit.LIMIT
