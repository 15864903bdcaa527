"""Log records of a test itself: daemons of other tests may run in threads of this process."""

import logging
import threading

import pytest


def own_records(
    caplog: pytest.LogCaptureFixture, logger: str = "mq", level: int = logging.NOTSET
) -> list[logging.LogRecord]:
    """The records of a logger and the loggers below it, from this thread, at least at a level."""
    return [
        record
        for record in caplog.records
        if record.thread == threading.get_ident()
        and f"{record.name}.".startswith(f"{logger}.")
        and record.levelno >= level
    ]
