"""Shared by tests of exports, imports and copies of messages."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.cli.support import Mq
from tests.waiting import wait_until


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def exported(mq: Mq, topic: str, *options: str) -> list[dict[str, Any]]:
    finished = mq("message", "export", "-", "-t", topic, *options)
    assert finished.status == 0, finished.err
    return lines(finished.out)


def bodies(mq: Mq, topic: str, *options: str) -> list[str]:
    return [line["body"] for line in exported(mq, topic, *options)]


def numbered(topic: str, count: int, **options: Any) -> list[Message]:
    return [Message(topic, b"%d" % number, **options) for number in range(count)]


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mq", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def some_read(pair: Standalone) -> Callable[[], bool]:
    """Return a condition: a reader of two queues has finished a batch.

    It pulls two of 32 messages from each queue before that, and not a third one.
    """
    before = pair.broker.stats.counters.transferred
    return lambda: pair.broker.stats.counters.transferred > before + 4 * 32


def interrupted(begun: Callable[[], bool], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command and press Ctrl-C when it has begun."""
    process = started(*arguments)
    wait_until(begun)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def how_it_goes_on(cut: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the arguments of `mq` in the hint of an interrupted command."""
    _, hint = cut.stderr.splitlines()
    assert hint.startswith("hint: continue with: mq ")
    return shlex.split(hint.removeprefix("hint: continue with: mq "))
