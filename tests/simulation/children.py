"""Work in short-lived processes: what a seed leaves in memory goes with the process that ran it.

They are forked from one that has everything imported. Nothing is collected in them: a process ends
before that would be worth its time. One that is killed, or says nothing for too long, costs what it
had in hand, which is told, and no more.
"""

import gc
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

Item = TypeVar("Item")
Out = TypeVar("Out")

_CONTEXT = multiprocessing.get_context("fork")


class Died(Exception):
    """A process has ended without an answer; the text says how."""


@dataclass
class _Child(Generic[Item]):
    process: multiprocessing.process.BaseProcess
    answers: Connection
    left: deque[Item]  # the first is in hand
    until: float  # when it has to have answered


def run_each(
    work: Callable[[Item], Out],
    items: Sequence[Item],
    *,
    processes: int,
    at_a_time: int,
    seconds: float,
) -> Generator[tuple[Item, Out | Died], None, None]:
    """Each item with what ``work`` returns for it, as they come.

    A process is given ``at_a_time`` of them, and is killed if one takes so many seconds. Items and
    answers are pickled.
    """
    gc.collect()
    gc.freeze()  # a child that looks at it does not have to copy it
    children: dict[Connection, _Child[Item]] = {}
    todo = deque(items)
    try:
        while todo or children:
            while todo and len(children) < max(1, processes):
                part = [todo.popleft() for _ in range(min(at_a_time, len(todo)))]
                child = _start(work, part, seconds)
                children[child.answers] = child
            first = min(child.until for child in children.values())
            for ready in wait(list(children), max(0.0, first - time.monotonic())):
                assert isinstance(ready, Connection)
                child = children[ready]
                try:
                    answer = ready.recv()
                except EOFError:
                    del children[ready]
                    yield from _ended(child, todo)
                else:
                    child.until = time.monotonic() + seconds
                    yield child.left.popleft(), answer
            now = time.monotonic()
            for child in [child for child in children.values() if child.until < now]:
                child.process.kill()  # its end is found like any other's
                child.until = now + seconds
    finally:
        for child in children.values():
            child.process.kill()
            child.process.join()
            child.answers.close()
        gc.unfreeze()


def run_one(work: Callable[[Item], Out], item: Item, seconds: float) -> Out:
    """What ``work`` returns in a process of its own. Raises Died."""
    for _, answer in run_each(work, [item], processes=1, at_a_time=1, seconds=seconds):
        if not isinstance(answer, Died):
            return answer
        raise answer
    raise AssertionError("an item has no answer")


def _start(work: Callable[[Item], Out], items: list[Item], seconds: float) -> _Child[Item]:
    answers, tells = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_run, args=(work, items, tells), daemon=True)
    process.start()
    tells.close()  # it alone has it: when it is gone, reading ends
    return _Child(process, answers, deque(items), time.monotonic() + seconds)


def _run(work: Callable[[Item], Out], items: list[Item], tells: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()
    for item in items:
        tells.send(work(item))


def _ended(child: _Child[Item], todo: deque[Item]) -> Iterator[tuple[Item, Died]]:
    child.answers.close()
    child.process.join()
    if not child.left:
        return
    status = child.process.exitcode
    killed = status is not None and status < 0
    how = signal.Signals(-status).name if status is not None and killed else f"status {status}"
    yield child.left.popleft(), Died(f"its process ended with {how}")
    todo.extendleft(reversed(child.left))  # those behind it have not begun
