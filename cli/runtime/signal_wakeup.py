"""A signal wakes what waits.

Python handles a signal between two steps of its own. One that comes right before a call that waits,
or in another thread, is only noted: the call goes on waiting, whatever the handler would do.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def woken() -> Iterator[int | None]:
    """A descriptor that has something to read when a signal has come in the block. None outside the
    main thread, which no signal is for."""
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(before)
    finally:
        os.close(reader)
        os.close(writer)


def quieten(reader: int) -> None:
    """Read what has come, which has done its work: each signal is one byte."""
    try:
        os.read(reader, 65536)  # all that a pipe holds
    except BlockingIOError:
        pass
