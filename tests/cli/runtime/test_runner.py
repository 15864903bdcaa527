"""Commands that run until Ctrl-C."""

import fcntl
import signal
import struct
import subprocess
import sys
import termios
import time

from tests.processes import is_readable

# Each round interrupts a command with fast output at another moment.
INTERRUPTED = """
import asyncio, io, os, random, signal, threading, time
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import endless
from mq.cli.runtime.env import Environment
from mq.cli.runtime.runner import concurrently, run_command
from mq.cli.show.output import Format
from mq.cli.show.result import Result

begun, ended = 0, 0
first = threading.Event()

@endless
@concurrently
async def ticking(call):
    global begun, ended
    begun += 1
    first.set()
    try:
        while True:
            yield Result(plain="tick")
            await asyncio.sleep(0)
    finally:
        await asyncio.sleep(0)
        ended += 1

def interrupt(seconds):
    first.wait()
    first.clear()
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGINT)

chance = random.Random(0)
for number in range(150):
    streams = dict(stdin=io.StringIO(), stdout=io.StringIO(), stderr=io.StringIO())
    environment = Environment(**streams, variables={})
    call = Call(environment, "ticking", [], "", Format.PLAIN, 1.0)
    thread = threading.Thread(target=interrupt, args=(chance.random() * 0.005,))
    thread.start()
    assert run_command(ticking, call, {}) == 0
    thread.join()
    assert begun == ended == number + 1, (begun, ended)
"""


def test_an_interrupt_at_any_moment_ends_an_endless_command_in_order() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")


BLOCKED = """
import asyncio, sys
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import endless
from mq.cli.runtime.env import Environment
from mq.cli.runtime.runner import concurrently, run_command
from mq.cli.show.output import Format
from mq.cli.show.result import Result

@endless
@concurrently
async def printing(call):
    try:
        while True:
            yield Result(plain="x" * 400 + "\\n")
            await asyncio.sleep(0)
    finally:
        await asyncio.sleep(0)
        print("ended", file=sys.stderr, flush=True)

environment = Environment(stdin=sys.stdin, stdout=sys.stdout, stderr=sys.stderr, variables={})
call = Call(environment, "printing", [], "", Format.PLAIN, 1.0)
run_command(printing, call, {})
"""


def test_an_interrupt_ends_a_command_whose_output_nobody_reads() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None and command.stderr is not None
        _wait_until_full(command.stdout.fileno())
        command.send_signal(signal.SIGINT)
        try:
            assert is_readable(command.stderr, 60), "it goes on"
            assert command.stderr.readline() == "ended\n"
        finally:
            command.kill()


def _wait_until_full(pipe: int) -> None:
    """Wait until what is in a pipe grows no more."""
    deadline = time.monotonic() + 30
    before, now = -1, 0
    while now == 0 or now != before:
        assert time.monotonic() < deadline
        time.sleep(0.2)
        before, now = now, struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
