"""A loop whose clock advances as soon as there is nothing left to do, over real sockets.

Bytes between two sockets of this machine arrive when they have been written, so a loop without
ready work only waits for a timer: the clock jumps to it. If the system reports bytes in flight, the
loop waits for them, and for work of other threads until it arrives.
"""

import asyncio
import contextlib
import fcntl
import os
import selectors
import socket
import struct
import termios
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# The end of a connection may be in flight for a moment on a busy machine, and the system does not
# report it, because the sender is closed. The time is short, because each jump waits for it.
GRACE_SECONDS = 0.005
# Bytes that are in flight for longer than this are not read by their receiver.
MOST_UNDER_WAY = 2.0

_SYN_SENT = 2  # of a connection that is being made (the kernel's tcp_states.h)


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.loop: JumpingLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout is None or timeout <= 0:
            return ready or (super().select(timeout) if timeout is None else ready)
        if self.loop.threads:
            return super().select(timeout)
        last = time.monotonic() + MOST_UNDER_WAY
        while True:
            under_way = self._has_bytes_under_way() and time.monotonic() < last
            ready = super().select(min(timeout, GRACE_SECONDS))
            if ready:
                return ready
            if not under_way:
                self.loop.jumped += timeout
                return ready

    def _has_bytes_under_way(self) -> bool:
        """Whether one of the sockets has sent bytes that the peer's system has not confirmed."""
        found = [key.fd for key in self.get_map().values()]
        for fd in found:
            _confirm(fd)
        return any(_is_under_way(fd) for fd in found)


def _confirm(fd: int) -> None:
    """Have the system confirm what has come, for which it takes up to 40 ms of its own accord."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as sock:  # not of TCP
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _is_under_way(fd: int) -> bool:
    try:
        (unconfirmed,) = struct.unpack("i", fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)))
        with socket.socket(fileno=os.dup(fd)) as sock:
            state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return unconfirmed > 0 or state == _SYN_SENT
    except OSError:  # it listens, or is none of TCP
        return False


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time stands still as long as there is something to do."""

    def __init__(self) -> None:
        self.jumped = 0.0
        self.threads = 0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.jumped

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> Any:
        self.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: object) -> None:
        self.threads -= 1


def run_fast(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario whose waiting takes no time."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(scenario)
