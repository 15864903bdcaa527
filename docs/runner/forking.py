"""The process that forks, for a `Forker`: python -m docs.runner.forking SOCKET

It runs until its standard input ends, and kills all programs that it has started at that time.
"""

import atexit
import gc
import marshal
import os
import runpy
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from socket import AF_UNIX, SOCK_SEQPACKET, recv_fds, socket
from typing import NamedTuple, NoReturn

_SHOP = Path(__file__).with_name("shop.py")
_ASKED_BYTES = 1 << 20
# The modules of the programs of pages; the entry module of `mq` changes signal handlers, so it is
# not imported before the fork.
_IMPORTED = ("mq.cli", "mq.client", "mq.protocol", "mq.daemons.broker", "mq.daemons.namesrv")
_LEFT = "mq.cli.entry"


class Asked(NamedTuple):
    words: list[str]
    environment: dict[str, str]
    folder: str


class Forking:
    """Forks for each request. A socket (`asking.py`) receives the data of its program, and is
    closed after the program.
    """

    def __init__(self, path: str) -> None:
        self._listening = socket(AF_UNIX, SOCK_SEQPACKET)
        self._listening.bind(path)
        self._listening.listen(100)
        self._lines: dict[int, socket] = {}  # of running programs, by their process ids
        self._selector = selectors.DefaultSelector()
        self._read, self._write = os.pipe()
        for number in (self._read, self._write):
            os.set_blocking(number, False)

    def run(self) -> Asked | None:
        """Returns in each fork, with the program to run; and None at the end."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._selector.register(0, selectors.EVENT_READ)
        self._selector.register(self._read, selectors.EVENT_READ, self._report)
        self._selector.register(self._listening, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    self._end()
                    return None
                if key.fileobj is self._listening:
                    if (asked := self._fork()) is not None:
                        return asked
                else:
                    key.data()

    def _fork(self) -> Asked | None:
        line, _ = self._listening.accept()
        asked, files, _, _ = recv_fds(line, _ASKED_BYTES, 3)
        process = os.fork()
        if process == 0:
            self._become(files)
            line.close()
            return Asked(*marshal.loads(asked))
        for number in files:
            os.close(number)
        self._lines[process] = line
        self._selector.register(line, selectors.EVENT_READ, self._gone(process))
        line.send(b"%d" % process)
        return None

    def _become(self, files: list[int]) -> None:
        """Release everything of the parent, and take over the given streams."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for line in (self._listening, *self._lines.values()):
            line.close()
        for place, number in enumerate(files):
            os.dup2(number, place)
        for number in (*files, self._read, self._write):
            os.close(number)

    def _gone(self, process: int) -> Callable[[], None]:
        """Return a callback for the time when no caller waits for a program any more."""

        def end() -> None:
            self._selector.unregister(self._lines[process])
            os.kill(process, signal.SIGKILL)

        return end

    def _report(self) -> None:
        """Report all programs that have ended."""
        os.read(self._read, 4096)
        while self._lines:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            line = self._lines.pop(process)
            with suppress(KeyError):
                self._selector.unregister(line)
            with suppress(OSError), line:
                line.send(b"%d" % status)

    def _end(self) -> None:
        for process in self._lines:
            os.kill(process, signal.SIGKILL)


def become(asked: Asked) -> NoReturn:
    """Run the program, and end the process when it ends."""
    os.chdir(asked.folder)
    os.environ.clear()
    os.environ.update(asked.environment)
    time.tzset()
    program, *words = asked.words
    status: object = 0
    try:
        if program == "mq":
            sys.argv = ["mq", *words]
            import_module(_LEFT).app()
        else:
            sys.argv = [str(_SHOP), *words]
            runpy.run_path(str(_SHOP), run_name="__main__")
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    # Skip the rest of Python's finalization, which only frees memory.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status if isinstance(status, int) else 1)


def main() -> None:
    gc.disable()
    for name in _IMPORTED:
        package = import_module(name)
        for module in walk_packages(package.__path__, f"{name}."):
            if module.name != _LEFT:
                import_module(module.name)
    gc.freeze()
    gc.enable()
    forking = Forking(sys.argv[1])
    print("ready", flush=True)
    if (asked := forking.run()) is not None:
        become(asked)


if __name__ == "__main__":
    main()
