"""Confinement of a process: it gives up everything that a filter does not need. In this order:

    limits        of memory, CPU time, files and processes (setrlimit)
    namespaces    of its own if the system allows them: no network, no mounts, no IPC of others
    root          an empty folder, if that is allowed
    user          nobody, if the filter server runs as root
    privileges    none can be regained (PR_SET_NO_NEW_PRIVS)
    system calls  all except those in `_ALLOWED` end the process (seccomp, by libseccomp)

The last one is the decisive barrier, and the only one that is required: the others are for the day
on which it has a hole. A filter needs no system calls to compute. It may read from descriptor 0 and
write to descriptor 1, which are its filter server; it has no other.
"""

import contextlib
import ctypes
import os
import resource
import signal
from typing import Any

# From Linux's sched.h and prctl.h.
_CLONE_NEWNS = 0x00020000
_CLONE_NEWCGROUP = 0x02000000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_APART = _CLONE_NEWNS | _CLONE_NEWCGROUP | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWNET
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_PROT_EXEC = 4
_NOBODY = 65534

# The needs of computing: memory (never executable, see below), the time, and an end.
_ALLOWED = (
    *("brk", "munmap", "mremap", "madvise", "futex", "rt_sigreturn", "rt_sigprocmask"),
    *("clock_gettime", "clock_getres", "gettimeofday", "time", "clock_nanosleep", "nanosleep"),
    *("getrandom", "getpid", "gettid", "sched_yield", "restart_syscall", "exit", "exit_group"),
)
# System calls of Python's imports and file lookups: refused but harmless, so a class that makes
# them gets an ordinary exception with its line.
_REFUSED = (
    *("open", "openat", "openat2", "creat", "stat", "lstat", "fstat", "newfstatat", "statx"),
    *("access", "faccessat", "faccessat2", "readlink", "readlinkat", "getcwd", "getdents64"),
    *("lseek", "ioctl", "fcntl", "close", "uname", "getuid", "geteuid", "getgid", "getegid"),
    *("sysinfo", "sched_getaffinity", "rt_sigaction", "unlink", "mkdir", "rmdir", "rename"),
)


class NotConfined(Exception):
    """This process cannot be confined; the text says why."""


def confine(memory: int, cpu_seconds: int, root: str, parent: int) -> None:
    """Confine this process permanently. `memory` is the limit of mapped bytes.

    Raises NotConfined if seccomp is missing, or a limit cannot be set.
    """
    seccomp = _library()
    try:
        _limit(memory, cpu_seconds)
        libc = ctypes.CDLL(None, use_errno=True)
        _leave_namespaces(libc)
        _leave_files(root)
        _leave_user()
        # After the change of users, which resets it.
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) or os.getppid() != parent:
            raise NotConfined("the filter server has ended")
        if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
            raise NotConfined("PR_SET_DUMPABLE is refused")
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise NotConfined("PR_SET_NO_NEW_PRIVS is refused")
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    except (OSError, ValueError) as error:
        raise NotConfined(f"cannot set its limits: {error}") from None
    _filter_calls(seccomp)


def _library() -> Any:
    try:
        import pyseccomp
    except ImportError:
        raise NotConfined("pyseccomp is not installed (pip install 'mq[filtersrv]')") from None
    except (OSError, RuntimeError) as error:
        raise NotConfined(f"libseccomp is not installed: {error}") from None
    return pyseccomp


def _limit(memory: int, cpu_seconds: int) -> None:
    for kind, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def _leave_namespaces(libc: ctypes.CDLL) -> None:
    """Leave the network and other namespaces, if allowed; a container often does not allow it."""
    if os.geteuid() == 0 and libc.unshare(_APART) == 0:
        return
    libc.unshare(_APART | _CLONE_NEWUSER)


def _leave_files(root: str) -> None:
    try:
        os.chroot(root)
        os.chdir("/")
    except OSError:
        os.chdir(root)


def _leave_user() -> None:
    if os.getuid() != 0:
        return
    with contextlib.suppress(OSError):  # a new user namespace does not have this user
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _filter_calls(seccomp: Any) -> None:
    """Refuse all system calls except `_ALLOWED` from now on."""
    import errno

    try:
        calls = seccomp.SyscallFilter(defaction=seccomp.KILL_PROCESS)
        for name in _ALLOWED:
            _add(calls, seccomp.ALLOW, name)
        no = seccomp.ERRNO(errno.EPERM)
        for name in _REFUSED:
            _add(calls, no, name)
        for name, number in (("read", 0), ("write", 1)):
            calls.add_rule(seccomp.ALLOW, name, seccomp.Arg(0, seccomp.EQ, number))
            calls.add_rule(no, name, seccomp.Arg(0, seccomp.NE, number))
        for name in ("mmap", "mprotect"):  # memory, but never executable
            calls.add_rule(seccomp.ALLOW, name, seccomp.Arg(2, seccomp.MASKED_EQ, _PROT_EXEC, 0))
        calls.load()
    except (OSError, ValueError, RuntimeError, NotImplementedError) as error:
        raise NotConfined(f"seccomp is refused: {error}") from None


def _add(calls: Any, action: int, name: str) -> None:
    try:
        calls.add_rule(action, name)
    except (OSError, ValueError, RuntimeError):
        # A call unknown to this libseccomp or machine still kills the process.
        return
