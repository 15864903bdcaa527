"""Signals that come where no call that waits is cut by them: here in another thread, which is as
right before the call."""

import asyncio
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mq.cli.runtime import interruption
from mq.cli.runtime.call import Call
from mq.cli.runtime.env import Environment
from mq.cli.runtime.invocation import Invocation
from mq.cli.runtime.signal_wakeup import quieten, woken
from mq.cli.show.output import Format
from mq.cli.show.result import Result
from mq.cli.spark import running

# It says what it gets, and ends by itself in the end.
PROGRAM = """
import signal
signals = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("ready", flush=True)
got = signal.sigtimedwait(signals, 30)
print("got", got and signal.Signals(got.si_signo).name)
"""

pytestmark = pytest.mark.usefixtures("usual_ctrl_c")


def notice() -> None:
    """Deliver Ctrl-C to this thread, which handles none."""
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


@contextmanager
def in_a_thread(act: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


class Watched(io.StringIO):
    """A log whose reader waits for a word."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ready = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if "ready" in self.getvalue():
            self.is_ready.set()
        return written


@pytest.mark.parametrize("told_of_ends", [True, False])
def test_a_signal_that_cuts_no_wait_for_spark_is_passed_on(
    told_of_ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Watched()
    if not told_of_ends:

        def refuse(_: int) -> int:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        monkeypatch.setattr(os, "pidfd_open", refuse)  # as Linux 4.18 does

    def act() -> None:
        log.is_ready.wait(30)
        notice()

    with in_a_thread(act), pytest.raises(running.Interrupted):
        running.run([sys.executable, "-c", PROGRAM], os.environ, log)
    assert log.getvalue() == "ready\ngot SIGINT\n"


def test_a_signal_that_cuts_no_wait_of_a_loop_ends_it() -> None:
    begun, ended = threading.Event(), threading.Event()
    in_time: list[bool] = []

    async def command(call: Call) -> Result:
        begun.set()
        try:
            await asyncio.sleep(40)
        finally:
            ended.set()
        return Result()

    def act() -> None:
        begun.wait(30)
        notice()
        in_time.append(ended.wait(30))

    streams = Environment(
        stdin=io.StringIO(), stdout=io.StringIO(), stderr=io.StringIO(), variables={}
    )
    call = Call(streams, "tail", [], "", Format.PLAIN, 1.0, concurrent=True)
    with in_a_thread(act), interruption.signals(), pytest.raises(interruption.Interrupted):
        Invocation(command, call, {}).give(lambda result: True)
    assert in_time == [True]


def test_what_woke_is_as_it_was_behind_the_block() -> None:
    before = signal.set_wakeup_fd(-1)
    try:
        with woken() as reader:
            assert reader is not None
            quieten(reader)  # where nothing has come
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.set_wakeup_fd(before)


def test_another_thread_is_woken_by_nothing() -> None:
    seen: list[int | None] = []

    def act() -> None:
        with woken() as reader:
            seen.append(reader)

    with in_a_thread(act):
        pass
    assert seen == [None]
