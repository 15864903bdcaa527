"""Running a daemon: the loop, signals, the service manager, the log and the exit status."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from mq.daemons.config import ConfigError
from mq.daemons.log_output import configure_log, flush_log

log = logging.getLogger(__name__)


class CannotStart(Exception):
    """What a daemon needs is not as it must be. The text says what, and what to do about it."""


class InUse(CannotStart):
    """Another process has what a daemon needs, and may end."""


# sysexits.h
EX_OK = 0
EX_SOFTWARE = 70
EX_OSERR = 71
EX_TEMPFAIL = 75
EX_CONFIG = 78

# What the event loop waits at most for a thread that computes, each time it comes back from the
# system. Python's own 5 ms would be the latency of every request while a large body is decoded.
SWITCH_SECONDS = 0.0005

# A process that starts daemons, as one that runs several brokers, gives each the end of a pipe that
# is closed when that process ends.
LIFELINE = "MQ_LIFELINE_FD"


class Daemon(Protocol):
    """What `run` runs: started by entering, stopped by leaving."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def ready_text(self) -> str:
        """The line that says that the daemon serves, and where."""
        ...

    def status_text(self) -> str:
        """What `systemctl status` shows: that it serves, and what is not as it should be."""
        ...

    def reload(self) -> None:
        """What SIGHUP asks for: read files again that may have changed."""
        ...

    def state(self) -> Iterable[str]:
        """Lines about what it has and does now, without secrets: what SIGUSR1 asks for."""
        ...


@runtime_checkable
class StopsStarting(Protocol):
    """A daemon whose start may take for ever: it waits for others."""

    def stop_starting(self) -> None:
        """What SIGTERM asks for before it is entered: have entering end soon. Called once."""
        ...


@runtime_checkable
class Aborts(Protocol):
    """A daemon that has more to end than its own process."""

    def abort(self) -> None:
        """What a second SIGTERM asks for: end all of it at once, without waiting."""
        ...


# Objects made before the collector looks at the young, and how often it goes on to the older ones
# (gc.set_threshold). What is read of a large request counts as old with Python's own thresholds
# before it is done with, and looking through everything that lives stops everybody for 50 ms.
GC_THRESHOLDS = (20_000, 10, 50)


def run(make: Callable[[], Daemon], *, log_format: str = "", log_level: str = "") -> int:
    """Run a daemon until SIGTERM or SIGINT; returns the exit status.

    `make` is called inside the loop. `log_format` is text or json; both default to the environment
    (MQ_LOG_FORMAT, MQ_LOG_LEVEL).
    """
    configure_log(
        log_format or os.environ.get("MQ_LOG_FORMAT", "text"),
        log_level or os.environ.get("MQ_LOG_LEVEL", "INFO"),
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(make))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop of a daemon; None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        log.info("uvloop is not installed: serving with asyncio's own loop, which is slower")
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(make: Callable[[], Daemon]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    one_of_several = _end_with_parent(loop, stop)
    ask = _ask_again_to_stop if one_of_several else _ask_to_stop
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, stop, number)
    _not_now(loop)
    manager = ServiceManager()
    try:
        daemon = make()
        waiting = asyncio.ensure_future(stop.wait())
        if isinstance(daemon, Aborts):
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, ask, stop, number, daemon.abort)
        if isinstance(daemon, StopsStarting):
            waiting.add_done_callback(partial(_stop_starting, daemon))
        async with daemon:
            waiting.cancel()
            loop.add_signal_handler(signal.SIGHUP, _reload, daemon)
            loop.add_signal_handler(signal.SIGUSR1, _dump, daemon)
            # What is alive now stays: looking through it again and again costs a pause each time.
            gc.collect()
            gc.freeze()
            log.info("%s", daemon.ready_text())
            manager.ready(daemon.status_text)
            await stop.wait()
            _not_now(loop)
            manager.stopping()
        log.info("stopped")
        return EX_OK
    except (ConfigError, CannotStart) as error:
        log.critical("%s", error)
        # An earlier one of the same name may still be stopping, its parent killed.
        return EX_TEMPFAIL if one_of_several and isinstance(error, InUse) else EX_CONFIG
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        log.critical("%s%s", named, error.strerror or error)
        return EX_OSERR
    except Exception:
        log.critical("the daemon failed", exc_info=True)
        return EX_SOFTWARE
    finally:
        manager.close()


def _stop_starting(daemon: StopsStarting, waiting: "asyncio.Future[bool]") -> None:
    if not waiting.cancelled():
        daemon.stop_starting()


def _ask_to_stop(
    stop: asyncio.Event, number: signal.Signals, abort: Callable[[], None] | None = None
) -> None:
    if stop.is_set():  # asked twice: the operator does not want to wait for the graceful stop
        log.critical("%s again: stopping at once", number.name)
        if abort is not None:
            abort()
        flush_log()
        os._exit(EX_SOFTWARE)
    log.info("%s: stopping", number.name)
    stop.set()


def _ask_again_to_stop(
    stop: asyncio.Event, number: signal.Signals, abort: Callable[[], None] | None = None
) -> None:
    """Of one of several: systemd tells each process of a unit, and then their parent does, too."""
    if not stop.is_set():
        _ask_to_stop(stop, number, abort)


def _end_with_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> bool:
    """Stop when the process ends that has started this one, to be one of several or to help it;
    False where none has."""
    lifeline = os.environ.pop(LIFELINE, "")
    if not lifeline:
        return False
    descriptor = int(lifeline)
    os.set_inheritable(descriptor, False)

    def ended() -> None:
        loop.remove_reader(descriptor)
        log.critical("the process that has started this one has ended: stopping")
        stop.set()

    loop.add_reader(descriptor, ended)
    return True


def _not_now(loop: asyncio.AbstractEventLoop) -> None:
    """A daemon that starts or stops is not ended by a signal that asks for something else."""
    for number in (signal.SIGHUP, signal.SIGUSR1):
        loop.add_signal_handler(number, log.info, "%s: not now", number.name)


def _dump(daemon: Daemon) -> None:
    from mq.daemons.state_dump import dump  # hardly ever needed

    dump(daemon.state())


def _reload(daemon: Daemon) -> None:
    log.info("SIGHUP: reading again the files that may have changed")
    daemon.reload()


class ServiceManager:
    """systemd's notification protocol (sd_notify): readiness, status, stopping, the watchdog."""

    STATUS_SECONDS = 1.0  # between looks at whether the status is another

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def ready(self, status: Callable[[], str]) -> None:
        """Say that the daemon serves, and from now on what `status` says whenever that changes."""
        if self._socket is None:
            return
        text = status()
        self._send(f"READY=1\nSTATUS={text}")
        self._later("status", self.STATUS_SECONDS, self._tell, status, text)
        if os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            microseconds = int(os.environ.get("WATCHDOG_USEC", "0"))
            if microseconds > 0:
                self._pat(microseconds / 1e6 / 2)

    def stopping(self) -> None:
        # The watchdog is still patted: a stop that hangs is a hang too.
        self._cancel("status")
        self._send("STOPPING=1")

    def close(self) -> None:
        for name in list(self._timers):
            self._cancel(name)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, status: Callable[[], str], last: str) -> None:
        text = status()
        if text != last:
            self._send(f"STATUS={text}")
        self._later("status", self.STATUS_SECONDS, self._tell, status, text)

    def _pat(self, interval: float) -> None:
        # From the loop on purpose: what is watched is whether the loop still turns.
        self._send("WATCHDOG=1")
        self._later("watchdog", interval, self._pat, interval)

    def _later(self, name: str, seconds: float, call: Callable[..., None], *given: Any) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, call, *given)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:
            log.warning("the service manager cannot be notified: %s", error.strerror)
