"""Running a daemon: the event loop, signals, the service manager, the log and the exit status."""

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
    """A precondition of a daemon is not met. The text says which, and how to fix it."""


class InUse(CannotStart):
    """Another process has a resource that the daemon needs, and may end."""


# sysexits.h
EX_OK = 0
EX_SOFTWARE = 70
EX_OSERR = 71
EX_TEMPFAIL = 75
EX_CONFIG = 78

# Limit in seconds of the event loop's wait for a computing thread, each time it returns from the
# system. Python's default of 5 ms would be added to the latency of every request while a large body
# is decoded.
SWITCH_SECONDS = 0.0005

# A process that starts daemons, such as one that runs several brokers, gives each the end of a pipe
# that is closed when that process ends.
LIFELINE = "MQ_LIFELINE_FD"


class Daemon(Protocol):
    """The object that `run` runs: started by entering, stopped by leaving."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def ready_text(self) -> str:
        """The line that reports that the daemon is ready, with its address."""
        ...

    def status_text(self) -> str:
        """The status in `systemctl status`: the ready text, and current problems."""
        ...

    def reload(self) -> None:
        """Handle SIGHUP: read files again that may have changed."""
        ...

    def state(self) -> Iterable[str]:
        """Lines about its current state, without secrets, for SIGUSR1."""
        ...


@runtime_checkable
class StopsStarting(Protocol):
    """A daemon whose start may wait for others forever."""

    def stop_starting(self) -> None:
        """Handle SIGTERM during the start: let entering end soon. Called once."""
        ...


@runtime_checkable
class Aborts(Protocol):
    """A daemon that must end more than its own process."""

    def abort(self) -> None:
        """Handle a second SIGTERM: end everything at once, without waiting."""
        ...


# Allocations before the garbage collector checks the young objects, and how often it continues with
# older ones (gc.set_threshold). With Python's own thresholds the objects of a large request become
# old before they are freed, and checking all live objects stops everything for 50 ms.
GC_THRESHOLDS = (20_000, 10, 50)


def run(make: Callable[[], Daemon]) -> int:
    """Run a daemon until SIGTERM or SIGINT; returns the exit status.

    `make` is called in the event loop.
    """
    configure_log()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(make))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of a daemon's event loop; None for asyncio's default."""
    try:
        import uvloop
    except ImportError:
        log.info("uvloop is not installed; using asyncio's own event loop, which is slower")
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(make: Callable[[], Daemon]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    one_of_several = _end_with_parent(loop, stop)
    ask = _stop_once if one_of_several else _request_stop
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, stop, number)
    _ignore_signals(loop)
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
            # Objects that are alive now stay alive: excluding them saves a pause in each
            # collection.
            gc.collect()
            gc.freeze()
            log.info("%s", daemon.ready_text())
            manager.ready(daemon.status_text)
            await stop.wait()
            _ignore_signals(loop)
            manager.stopping()
        log.info("stopped")
        return EX_OK
    except (ConfigError, CannotStart) as error:
        log.critical("%s", error)
        # An earlier process with the same name may still be stopping after its parent was killed.
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


def _request_stop(
    stop: asyncio.Event, number: signal.Signals, abort: Callable[[], None] | None = None
) -> None:
    if stop.is_set():  # a second signal: the operator does not want to wait for the graceful stop
        log.critical("%s again: stopping at once", number.name)
        if abort is not None:
            abort()
        flush_log()
        os._exit(EX_SOFTWARE)
    log.info("%s: stopping", number.name)
    stop.set()


def _stop_once(
    stop: asyncio.Event, number: signal.Signals, abort: Callable[[], None] | None = None
) -> None:
    """For one of several daemons: systemd signals each process of a unit, and then their parent
    does so, too.
    """
    if not stop.is_set():
        _request_stop(stop, number, abort)


def _end_with_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> bool:
    """Stop when the parent process ends, if it runs several daemons or this one helps it; False if
    there is no such parent.
    """
    lifeline = os.environ.pop(LIFELINE, "")
    if not lifeline:
        return False
    descriptor = int(lifeline)
    os.set_inheritable(descriptor, False)

    def ended() -> None:
        loop.remove_reader(descriptor)
        log.critical("the parent process has ended; stopping")
        stop.set()

    loop.add_reader(descriptor, ended)
    return True


def _ignore_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Ignore SIGHUP and SIGUSR1 while the daemon starts or stops."""
    for number in (signal.SIGHUP, signal.SIGUSR1):
        loop.add_signal_handler(number, log.info, "%s: not now", number.name)


def _dump(daemon: Daemon) -> None:
    from mq.daemons.state_dump import dump  # hardly ever needed

    dump(daemon.state())


def _reload(daemon: Daemon) -> None:
    log.info("SIGHUP: reloading files")
    daemon.reload()


class ServiceManager:
    """systemd's notification protocol (sd_notify): readiness, status, stopping, the watchdog."""

    STATUS_SECONDS = 1.0  # interval of the check for a changed status

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def ready(self, status: Callable[[], str]) -> None:
        """Notify readiness, and from now on the result of `status` when it changes."""
        if self._socket is None:
            return
        text = status()
        self._send(f"READY=1\nSTATUS={text}")
        self._schedule("status", self.STATUS_SECONDS, self._notify_status, status, text)
        if os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            microseconds = int(os.environ.get("WATCHDOG_USEC", "0"))
            if microseconds > 0:
                self._notify_watchdog(microseconds / 1e6 / 2)

    def stopping(self) -> None:
        # The watchdog is still notified: a stop that hangs is a failure, too.
        self._cancel("status")
        self._send("STOPPING=1")

    def close(self) -> None:
        for name in list(self._timers):
            self._cancel(name)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _notify_status(self, status: Callable[[], str], last: str) -> None:
        text = status()
        if text != last:
            self._send(f"STATUS={text}")
        self._schedule("status", self.STATUS_SECONDS, self._notify_status, status, text)

    def _notify_watchdog(self, interval: float) -> None:
        # In the event loop on purpose: the watchdog monitors whether it still runs.
        self._send("WATCHDOG=1")
        self._schedule("watchdog", interval, self._notify_watchdog, interval)

    def _schedule(self, name: str, seconds: float, call: Callable[..., None], *given: Any) -> None:
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
            log.warning("cannot notify the service manager: %s", error.strerror)
