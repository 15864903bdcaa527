"""The daemons of `mq` on this machine, according to /proc.

A process is referenced by a pidfd from the moment that it is found, so that a signal never reaches
another process with a reused id.
"""

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# Options of Python whose value is a separate word.
_WITH_VALUE = frozenset(("-X", "-W", "--check-hash-based-pycs"))


@dataclass(frozen=True)
class Process:
    """A daemon. `arguments` are those after its name; `handle` is its pidfd."""

    pid: int
    arguments: tuple[str, ...]
    handle: int


@dataclass(frozen=True)
class RunningDaemons:
    """The daemons of a kind: the user's own, and the number in containers or of other users."""

    own: list[Process]
    others: int


@contextmanager
def running(kind: str, pid: int | None = None) -> Iterator[RunningDaemons]:
    """Yield the running daemons of a kind, or the one with the id `pid`.

    Raises OSError if the system has no /proc or no pidfds.
    """
    own: list[Process] = []
    others = 0
    try:
        for number in sorted(int(path.name) for path in PROC.iterdir() if path.name.isdecimal()):
            if pid not in (None, number):
                continue
            try:
                handle = os.pidfd_open(number)
            except ProcessLookupError:
                continue  # it has just exited
            arguments = _daemon_arguments(kind, number)
            if arguments is not None and _is_own(number):
                own.append(Process(number, arguments, handle))
                continue
            os.close(handle)
            others += arguments is not None
        yield RunningDaemons(own, others)
    finally:
        for process in own:
            os.close(process.handle)


def ask_to_stop(processes: Iterable[Process]) -> list[Process]:
    """Send SIGTERM. Returns the processes that received it."""
    asked = []
    for process in processes:
        try:
            signal.pidfd_send_signal(process.handle, signal.SIGTERM)
        except ProcessLookupError:
            continue
        asked.append(process)
    return asked


def not_ended(processes: Iterable[Process], seconds: float) -> list[Process]:
    """Wait up to `seconds` for the processes to exit. Returns those that still run."""
    deadline = time.monotonic() + seconds
    left = {process.handle: process for process in processes}
    poll = select.poll()
    for handle in left:
        poll.register(handle, select.POLLIN)
    while left and (rest := deadline - time.monotonic()) > 0:
        for handle, _ in poll.poll(rest * 1000):
            poll.unregister(handle)
            del left[handle]
    return list(left.values())


def _daemon_arguments(kind: str, pid: int) -> tuple[str, ...] | None:
    """Return the arguments of a process after `mq <kind>`; None if it is not such a daemon."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return None
    rest = _after_mq(words)
    return tuple(rest[1:]) if rest[:1] == [kind] else None


def _after_mq(words: list[str]) -> list[str]:
    """Return the arguments of `mq`, run as a script, by Python, or as a module; else none."""
    if not words:
        return []
    if Path(words[0]).name == "mq":
        return words[1:]
    if not Path(words[0]).name.startswith("python"):
        return []
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] in ("-m", "-c"):
            return words[at + 2 :] if words[at : at + 2] == ["-m", "mq"] else []
        at += 2 if words[at] in _WITH_VALUE else 1
    return words[at + 1 :] if at < len(words) and Path(words[at]).name == "mq" else []


def _is_own(pid: int) -> bool:
    try:
        if (PROC / str(pid)).stat().st_uid != os.geteuid():
            return False
    except OSError:
        return False
    # A process of a container is managed there: it might be restarted, or missed.
    namespaces = []
    for process in (str(pid), "self"):
        try:
            namespaces.append(os.readlink(Path("/proc", process, "ns", "pid")))
        except OSError:  # a process with other privileges, or no namespaces
            return True
    return namespaces[0] == namespaces[1]
