"""Sandboxes, and attacks of hostile classes in them."""

import asyncio
import os
import select
import signal
import struct
import time
from pathlib import Path

import pytest

from mq.daemons.filtersrv.sandbox import frames
from mq.daemons.filtersrv.sandbox.process import (
    FilterFailed,
    Limits,
    NoSandbox,
    Sandbox,
    SandboxEnded,
)
from mq.protocol.compression import CompressionType, compress
from mq.protocol.record_codec import encode_record
from mq.protocol.stored_message import StoredMessage
from tests.waiting import until

MEBIBYTE = 1024 * 1024
# Short where a class must exceed it, long in all tests that are not about time.
PATIENT = Limits(256 * MEBIBYTE, 30.0, 30.0, 0.0)
HASTY = PATIENT._replace(match_seconds=0.5)

RECORD = encode_record(StoredMessage("T", b"x" * 100, {"TAGS": "a"}))


def source(*lines: str) -> bytes:
    """A class whose match method has these lines."""
    body = "\n".join(f"        {line}" for line in lines)
    return f"class F:\n    def match(self, message):\n{body}\n".encode()


async def matched(text: bytes, limits: Limits = PATIENT, count: int = 3) -> bytes:
    """The decisions of a class about some messages. Raises like a sandbox."""
    sandbox = Sandbox(limits, "T@g")
    try:
        await sandbox.start()
        await sandbox.load("g", "F", text)
        return await sandbox.match(RECORD * count, count)
    finally:
        await sandbox.close()


def refused(text: bytes, limits: Limits = PATIENT) -> str:
    with pytest.raises((FilterFailed, SandboxEnded)) as caught:
        asyncio.run(matched(text, limits))
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_class_is_asked_about_each_message_of_a_batch() -> None:
    numbers = b"".join(encode_record(StoredMessage("T", b"%d" % n)) for n in range(10))

    async def main() -> bytes:
        sandbox = Sandbox(PATIENT, "T@g")
        await sandbox.start()
        await sandbox.load("g", "F", source("return int(message.body) % 3 == 0"))
        bits = await sandbox.match(numbers, 10)
        again = await sandbox.match(numbers, 10)
        await sandbox.close()
        assert bits == again
        return bits

    assert asyncio.run(main()) == bytes((0b01001001, 0b10))


def test_a_start_cancelled_before_the_connection_is_awaited() -> None:
    async def main() -> None:
        sandbox = Sandbox(PATIENT, "T@g")
        starting = asyncio.ensure_future(sandbox.start())
        while sandbox._process is None:  # noqa: ASYNC110 - the very turn in which it is there
            await asyncio.sleep(0)
        process = sandbox._process
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await sandbox.close()
        assert process.returncode is not None

    asyncio.run(main())


def test_a_class_with_a_context_gets_the_group() -> None:
    text = (
        b"class F:\n    def match(self, message, context):\n"
        b"        return context.consumer_group == 'g'\n"
    )
    assert asyncio.run(matched(text)) == b"\x07"


def test_printed_text_is_discarded_and_disturbs_nothing() -> None:
    assert asyncio.run(matched(source("print('x' * 100000)", "return True"))) == b"\x07"


def test_a_class_may_use_modules_that_compute() -> None:
    lines = (
        "import datetime, decimal, hashlib, json, math, re, struct, zlib",
        "json.loads('{}'); re.match('x+', 'xx'); hashlib.sha256(b'').hexdigest()",
        "datetime.datetime.strptime('2020', '%Y'); decimal.Decimal(1) / 3",
        "return message.tags == 'a' and message.topic == 'T' and len(message.body) == 100",
    )
    assert asyncio.run(matched(source(*lines))) == b"\x07"


@pytest.mark.parametrize(
    "text, told",
    [
        (b"class F:\n  def match(self, message):\n    return (\n", "line 3: '(' was never closed"),
        (b"class F:\n  def match(self, message):\n  return\n", "line 3: expected an indented"),
        (b"x = 1\n1/0\n", "line 2: ZeroDivisionError"),
        (b"class G: pass\n", "the source has no class F"),
        (b"class F: pass\n", "has no match(message)"),
        (b"class F:\n  def match(self): pass\n", "match takes (message) or (message, context)"),
        (b"class F:\n  def __init__(self): raise KeyError(5)\n  def match(self, m): pass\n",
         "line 2: KeyError: 5"),
        (source("return 1 / 0"), "line 3: ZeroDivisionError: division by zero (queue 0, offset 0)"),
        (source("raise SystemExit"), "line 3: SystemExit"),
        (b"\xff\xfe", "'utf-8' codec can't decode"),
        (b"class F:\n  def match(self, m):\n    raise type('E', (Exception,), "
         b"{'__str__': lambda self: 1/0})()\n", "line 3: E: an error that cannot be shown"),
    ],
)  # fmt: skip
def test_an_error_in_a_class_is_reported_with_its_line(text: bytes, told: str) -> None:
    said = refused(text)
    assert said.startswith("FilterFailed: ")
    assert told in said


ESCAPE = (
    # To everything that the interpreter has loaded, starting from a literal.
    "every = ().__class__.__mro__[1].__subclasses__()",
    "found = [c for c in every if c.__name__ == '_wrap_close' or c.__name__ == 'Quitter']",
    "space = found[0].__init__.__globals__",
    "system = space['sys'].modules['os'] if 'sys' in space else __import__('os')",
)


@pytest.mark.parametrize(
    "lines",
    [
        ("import os", "os.fork()"),
        ("import os", "os.execve('/bin/sh', ['sh'], {})"),
        ("import os", "os.posix_spawn('/bin/sh', ['sh'], {})"),
        ("import os", "os.system('true')"),
        ("import subprocess", "subprocess.run(['true'])"),
        (*ESCAPE, "system.fork()"),
        (*ESCAPE, "system.kill(system.getppid(), 9)"),
        ("import ctypes", "ctypes.CDLL(None).syscall(41, 2, 1, 0)"),  # socket
        ("import ctypes", "ctypes.CDLL(None).syscall(59, b'/bin/sh', 0, 0)"),  # execve
        ("import ctypes", "ctypes.CDLL(None).syscall(101, 0, 0, 0, 0)"),  # ptrace
        ("import ctypes", "ctypes.CDLL(None).syscall(425, 8, 0)"),  # io_uring_setup
        ("import ctypes", "ctypes.CDLL(None).syscall(0x40000029, 2, 1, 0)"),  # socket of x32
        ("import ctypes", "ctypes.CDLL(None).syscall(319, b'm', 0)"),  # memfd_create
        ("import ctypes", "ctypes.CDLL(None).prctl(22, 0, 0)"),  # PR_SET_SECCOMP
        ("import os", "os.dup2(1, 0)"),
        ("import os", "os.setuid(0)"),
        ("import os", "os.pipe()"),
        ("import resource", "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"),
        ("import threading", "threading.Thread(target=print).start()"),
        ("import signal, os", "os.kill(os.getpid(), signal.SIGSTOP)"),
    ],
    ids=lambda lines: lines[-1],
)
def test_a_class_that_makes_a_forbidden_system_call_is_ended(
    lines: tuple[str, ...],
) -> None:
    assert "forbidden system call (SIGSYS)" in refused(source(*lines))


@pytest.mark.parametrize(
    "lines, told",
    [
        (("return open('/etc/passwd').read()",), "PermissionError"),
        (("import io", "return io.FileIO('/proc/self/environ')"), "PermissionError"),
        (("import os", "return os.listdir('/')"), "PermissionError"),
        (("import os", "os.unlink('/etc/passwd')"), "PermissionError"),
        (("open('/tmp/x', 'w')",), "PermissionError"),
        (("import socket", "socket.socket()"), "No module named 'socket'"),
    ],
    ids=str,
)
def test_a_class_finds_no_files_and_no_modules(lines: tuple[str, ...], told: str) -> None:
    assert told in refused(source(*lines))


def test_a_class_has_no_environment_and_no_descriptor_but_its_filter_server() -> None:
    os.environ["MQ_TEST_SECRET"] = "secret"
    lines = (
        "import os",
        "found = 'MQ_TEST_SECRET' in os.environ or len(os.environ) > 1",
        "for number in range(2, 64):",
        "    for use in (lambda: os.write(number, b'x'), lambda: os.read(number, 1)):",
        "        try:",
        "            use()",
        "            found = True",
        "        except OSError:",
        "            pass",
        "return found",
    )
    try:
        assert asyncio.run(matched(source(*lines))) == b"\x00"
    finally:
        del os.environ["MQ_TEST_SECRET"]


@pytest.mark.parametrize("kind", CompressionType)
def test_a_body_that_grows_too_large_is_given_as_it_is_stored(kind: CompressionType) -> None:
    large = compress(bytes(48 * MEBIBYTE), kind)
    record = encode_record(StoredMessage("T", large, sys_flag=kind.sys_flag))

    async def main() -> bytes:
        sandbox = Sandbox(PATIENT._replace(memory=64 * MEBIBYTE), "T@g")
        try:
            await sandbox.start()
            await sandbox.load("g", "F", source("return message.body_error != ''"))
            return await sandbox.match(record, 1)
        finally:
            await sandbox.close()

    assert asyncio.run(main()) == b"\x01"


def test_a_class_that_grows_is_ended() -> None:
    for lines in (
        ("kept = []", "while True: kept.append(bytes(1000000))"),
        ("kept = bytes(10 ** 12)",),
        ("kept = 'x' * 10 ** 6", "while True: kept += kept"),
    ):
        assert "exceeded its memory limit (filterMemoryMaxBytes)" in refused(source(*lines))


def test_a_class_that_has_answered_is_not_ended_because_the_filter_server_was_late() -> None:
    def stand_still(sandbox: Sandbox) -> None:
        """Like a busy loop, until there is a reply and its time is over."""
        assert sandbox._transport is not None
        answers = sandbox._transport.get_extra_info("socket").fileno()
        answered = select.poll()  # accepts any descriptor: the test process has many
        answered.register(answers, select.POLLIN)
        answered.poll()
        time.sleep(0.2)

    async def main() -> None:
        sandbox = Sandbox(PATIENT._replace(match_seconds=0.1), "T@g")
        await sandbox.start()
        await sandbox.load("g", "F", source("return True"))
        asking = asyncio.ensure_future(sandbox.match(RECORD, 1))
        await asyncio.sleep(0)
        stand_still(sandbox)
        assert await asking == b"\x01"
        assert not sandbox.has_ended
        await sandbox.close()

    asyncio.run(main())


def test_a_class_that_never_ends_is_ended() -> None:
    for lines in (
        ("while True: pass",),
        ("import time", "time.sleep(1000)"),
        ("import re", "re.match('(a+)+$', 'a' * 100 + 'b')"),
        ("while True:", "    try:", "        while True: pass", "    except BaseException: pass"),
        ("return 10 ** 10 ** 9",),
    ):
        assert "it took more than 0.5 s to match 3 messages" in refused(source(*lines), HASTY)


def test_a_class_that_computes_without_a_request_is_ended() -> None:
    """It replies like the process that it runs in, and then continues."""
    goes_on = source(
        "import os, struct, sys",
        "number = sys._getframe(2).f_locals['number']",
        "os.write(1, struct.pack('>BII', 0, number, 1) + b'\\1')",
        "while True: pass",
    )

    async def main() -> None:
        idle, busy = Sandbox(PATIENT, "T@g"), Sandbox(PATIENT, "T@h")
        for sandbox, text in ((idle, source("return True")), (busy, goes_on)):
            await sandbox.start()
            await sandbox.load("g", "F", text)
            assert await sandbox.match(RECORD, 1) == b"\x01"
        between = 0.2
        while not busy.has_ended and between < 30:
            idle.check_idle()
            busy.check_idle()
            await asyncio.sleep(between)
            between *= 1.5  # on a busy machine it gets little CPU time in a moment
        assert "it computes without a request" in busy.why_ended
        assert not idle.has_ended
        await idle.close()
        await busy.close()

    asyncio.run(main())


def test_a_class_whose_construction_never_ends_is_ended() -> None:
    hasty = PATIENT._replace(load_seconds=0.5)
    assert "it took more than 0.5 s to load the class" in refused(b"while True: pass\n", hasty)


def test_endless_recursion_ends_the_class_alone() -> None:
    assert "RecursionError" in refused(source("f = lambda n: f(n + 1)", "f(0)"))
    nested = ("kept = []", "for _ in range(10 ** 5): kept = [kept]", "repr(kept)")
    assert "RecursionError" in refused(source(*nested))
    deep = ("import sys", "sys.setrecursionlimit(10 ** 9)", "nested = []",
            "for _ in range(10 ** 6): nested = [nested]", "return repr(nested)")  # fmt: skip
    assert "SandboxEnded" in refused(source(*deep))
    bomb = b"x = " + b"(" * 100_000 + b")" * 100_000
    assert refused(bomb).startswith(("FilterFailed: ", "SandboxEnded: "))


def answer(status: int, number: int, count: int, data: bytes = b"") -> str:
    return repr(frames.ANSWER.pack(status, number, count) + data)


@pytest.mark.parametrize(
    "lines",
    [
        ("while True: os.write(1, b'x' * 100000)",),
        # for four messages, while the request had three
        (f"os.write(1, {answer(0, 2, 4, bytes(1))})",),
        (f"os.write(1, {answer(0, 2, 2**32 - 1)})",),
        (f"os.write(1, {answer(0, 2, 3, bytes(2))})",),  # one byte too many
        (f"os.write(1, {answer(0, 1, 3, bytes(1))})",),  # to another request
        (f"os.write(1, {answer(1, 2, 2**32 - 1)})",),  # a text without an end
        (f"os.write(1, {answer(1, 2, frames.MOST_TEXT + 1)})",),
        (f"os.write(1, {answer(9, 2, 0)})",),  # not a status
        ("os.write(1, bytes(100))",),
    ],
    ids=str,
)
def test_an_inconsistent_reply_ends_the_class(lines: tuple[str, ...]) -> None:
    told = refused(source("import os", *lines, "return True"))
    assert "its answer does not match the request" in told


def test_an_unrequested_reply_ends_the_class() -> None:
    """The first reply is right; the second one, after it, arrives before its request."""
    forged = struct.pack(">BII", 0, 2, 3) + b"\x07"

    async def main() -> None:
        sandbox = Sandbox(PATIENT, "T@g")
        await sandbox.start()
        await sandbox.load("g", "F", source("import os", f"os.write(1, {forged!r})", "return 0"))
        with pytest.raises(SandboxEnded):
            for _ in range(1000):
                await sandbox.match(RECORD * 3, 3)
        await sandbox.close()

    asyncio.run(main())


def test_a_text_of_a_class_cannot_forge_log_lines() -> None:
    told = refused(source("raise ValueError('a\\nb \\x1b[2J ' + 'x' * 100000)"))
    assert "\n" not in told and "\x1b" not in told and len(told) < frames.MOST_TEXT + 100


def test_a_killed_sandbox_reports_it_and_sends_no_more_requests() -> None:
    async def main() -> None:
        sandbox = Sandbox(PATIENT, "T@g")
        await sandbox.start()
        await sandbox.load("g", "F", source("while True: pass"))
        waiting = asyncio.ensure_future(sandbox.match(RECORD, 1))
        await asyncio.sleep(0)
        os.kill(sandbox.pid, signal.SIGKILL)
        with pytest.raises(SandboxEnded, match="signal 9"):
            await waiting
        with pytest.raises(SandboxEnded, match="signal 9"):
            await sandbox.match(RECORD, 1)
        await sandbox.close()

    asyncio.run(main())


def test_a_sandbox_without_a_waiting_caller_is_ended() -> None:
    async def main() -> None:
        sandbox = Sandbox(PATIENT, "T@g")
        await sandbox.start()
        pid = sandbox.pid
        await sandbox.load("g", "F", source("while True: pass"))
        waiting = asyncio.ensure_future(sandbox.match(RECORD, 1))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await sandbox.close()
        assert not Path(f"/proc/{pid}").exists()

    asyncio.run(main())


def test_a_sandbox_ends_with_its_filter_server() -> None:
    """The process that started it is killed: nothing is left."""
    program = (
        "import asyncio, os, sys\n"
        "from mq.daemons.filtersrv.sandbox.process import Limits, Sandbox\n"
        "async def main():\n"
        "    sandbox = Sandbox(Limits(1 << 28, 30.0, 30.0, 0.0), 'x')\n"
        "    await sandbox.start()\n"
        "    await sandbox.load('g', 'F', b'class F:\\n  def match(self, m):\\n'\n"
        "                       b'    while True: pass\\n')\n"
        f"    asyncio.ensure_future(sandbox.match({RECORD!r}, 1))\n"
        "    await asyncio.sleep(0.1)\n"
        "    print(sandbox.pid, flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )

    async def main() -> None:
        import sys

        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        pid = int(await child.stdout.readline())
        child.kill()
        await child.wait()
        await until(lambda: _gone(pid))

    asyncio.run(main())


async def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_the_process_is_confined_before_it_is_given_a_class() -> None:
    async def main() -> tuple[dict[str, str], list[str]]:
        sandbox = Sandbox(PATIENT, "T@g")
        await sandbox.start()
        process = Path(f"/proc/{sandbox.pid}")
        lines = [line.partition(":") for line in (process / "status").read_text().splitlines()]
        limits = (process / "limits").read_text().splitlines()
        await sandbox.close()
        return {name: value.strip() for name, _, value in lines}, limits

    status, limits = asyncio.run(main())
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    assert status["Threads"] == "1"
    if os.geteuid() == 0:
        assert set(status["Uid"].split()) == {"65534"} and int(status["CapEff"], 16) == 0
    found = {line[:25].strip(): line[26:47].strip() for line in limits}
    assert found["Max address space"] == str(256 * MEBIBYTE)
    assert found["Max open files"] == found["Max file size"] == found["Max processes"] == "0"


def test_without_seccomp_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulated by a machine without the library for it."""
    (tmp_path / "pyseccomp.py").write_text("raise RuntimeError('Unable to find libseccomp')\n")
    from mq.daemons.filtersrv.sandbox import process

    real = process._command

    def command(limits: Limits, root: str) -> list[str]:
        words = real(limits, root)
        place = words.index("-c") + 1
        words[place] = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {words[place]}"
        return words

    monkeypatch.setattr(process, "_command", command)

    async def main() -> None:
        sandbox = Sandbox(PATIENT, "T@g")
        with pytest.raises(NoSandbox, match="libseccomp is not installed: Unable to find"):
            await sandbox.start()
        await sandbox.close()

    asyncio.run(main())
