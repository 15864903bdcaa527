"""What a test itself has had logged: daemons of other tests may run in threads of this process."""

import logging
import threading

import pytest


def own_records(
    caplog: pytest.LogCaptureFixture, logger: str = "mq", level: int = logging.NOTSET
) -> list[logging.LogRecord]:
    """Those of a logger and the ones below it, of this thread, of a level and above."""
    return [
        record
        for record in caplog.records
        if record.thread == threading.get_ident()
        and f"{record.name}.".startswith(f"{logger}.")
        and record.levelno >= level
    ]
