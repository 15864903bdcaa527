"""The daemons of `mq` that run on this machine, as /proc has them.

A process is held by a descriptor from the moment that it is found (pidfd): a signal never reaches
another one that got its number meanwhile.
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
# Python's options that a word of their own follows.
_WITH_VALUE = frozenset(("-X", "-W", "--check-hash-based-pycs"))


@dataclass(frozen=True)
class Process:
    """A daemon. `arguments` are those behind its name; `handle` is its pidfd."""

    pid: int
    arguments: tuple[str, ...]
    handle: int


@dataclass(frozen=True)
class RunningDaemons:
    """The daemons of a kind: one's own, and how many others have, or containers."""

    own: list[Process]
    others: int


@contextmanager
def running(kind: str, pid: int | None = None) -> Iterator[RunningDaemons]:
    """The daemons of a kind that run, or the one of that number.

    Raises OSError where the system has no /proc, or no descriptors of processes.
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
                continue  # it has just ended
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
    """Send SIGTERM; returns those that were there to get it."""
    asked = []
    for process in processes:
        try:
            signal.pidfd_send_signal(process.handle, signal.SIGTERM)
        except ProcessLookupError:
            continue
        asked.append(process)
    return asked


def not_ended(processes: Iterable[Process], seconds: float) -> list[Process]:
    """Wait until these have ended; those that have not in time."""
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
    """What a process was called with behind `mq <kind>`; None if it is no such daemon."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return None
    rest = _behind_mq(words)
    return tuple(rest[1:]) if rest[:1] == [kind] else None


def _behind_mq(words: list[str]) -> list[str]:
    """The arguments of `mq`, run as a script of its own, by Python, or as a module; else none."""
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
    # A container's is the business of whoever runs that: it would be started again, or missed.
    namespaces = []
    for process in (str(pid), "self"):
        try:
            namespaces.append(os.readlink(Path("/proc", process, "ns", "pid")))
        except OSError:  # one of another privilege, or no namespaces
            return True
    return namespaces[0] == namespaces[1]
