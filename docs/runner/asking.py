"""Asks a `Forker` for a program, and ends as it does: python -I -S asking.py SOCKET PROGRAM WORD …

A page's command is this process until then, so what is to end the command ends this one. It imports
next to nothing, and is there in a hundredth of a second.
"""

import _signal  # type: ignore[import-not-found]  # all but the names of `signal`, which take long
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
    """Have a program started in this folder, with these three files for its standard streams.

    What is returned tells numbers (`told`): its process id, and when it has ended its status, as
    waitpid() has it. A program ends when that is closed.
    """
    asked = marshal.dumps((list(words), dict(environment), os.getcwd()))
    passed = b"".join(number.to_bytes(4, sys.byteorder) for number in files)
    line = socket(AF_UNIX, SOCK_SEQPACKET)
    line.connect(path)
    line.sendmsg([asked], [(SOL_SOCKET, SCM_RIGHTS, passed)])
    return line


def told(line: socket) -> int:
    """The next number. Raises EOFError where none comes any more."""
    answer = line.recv(_ANSWER_BYTES)
    if not answer:
        raise EOFError("whoever starts the programs of pages has ended")
    return int(answer)


def main() -> None:
    line = ask(sys.argv[1], sys.argv[2:], os.environ, (0, 1, 2))
    process = told(line)
    for number in _PASSED_ON:
        _signal.signal(number, lambda number, _: os.kill(process, number))
    status = os.waitstatus_to_exitcode(told(line))
    os._exit(128 - status if status < 0 else status)


if __name__ == "__main__":
    main()
