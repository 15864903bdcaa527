"""Commands that go on until Ctrl-C."""

import subprocess
import sys

# Each round interrupts a command that gives results as fast as it can, at another moment.
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
