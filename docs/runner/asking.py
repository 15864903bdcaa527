"""Asks a `Forker` for a program, and ends as it does: python -I -S asking.py SOCKET PROGRAM WORD …

Until then a page's command is this process, so a signal to the command goes to this process. It
imports almost nothing, and starts within a hundredth of a second.
"""

import _signal  # type: ignore[import-not-found]  # without the names of `signal`, which take long
import marshal
import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket
from collections.abc import Mapping, Sequence

_PASSED_ON = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
_ANSWER_BYTES = 100


def ask(
    path: str, words: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
) -> socket:
    """Have a program started in this folder, with these three files as its standard streams.

    The returned socket yields numbers (`received`): its process id, and later its status, as from
    waitpid(). The program is killed when the socket is closed.
    """
    asked = marshal.dumps((list(words), dict(environment), os.getcwd()))
    passed = b"".join(number.to_bytes(4, sys.byteorder) for number in files)
    line = socket(AF_UNIX, SOCK_SEQPACKET)
    line.connect(path)
    line.sendmsg([asked], [(SOL_SOCKET, SCM_RIGHTS, passed)])
    return line


def received(line: socket) -> int:
    """Return the next number. Raises EOFError after the last one."""
    answer = line.recv(_ANSWER_BYTES)
    if not answer:
        raise EOFError("the process that starts the programs of pages has ended")
    return int(answer)


def main() -> None:
    line = ask(sys.argv[1], sys.argv[2:], os.environ, (0, 1, 2))
    process = received(line)
    for number in _PASSED_ON:
        _signal.signal(number, lambda number, _: os.kill(process, number))
    status = os.waitstatus_to_exitcode(received(line))
    os._exit(128 - status if status < 0 else status)


if __name__ == "__main__":
    main()
