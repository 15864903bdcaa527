"""Work in short-lived processes: the memory of a seed is freed with its process.

They are forked from a process that has everything imported. They run without garbage collection,
because they end before it would pay. A process that is killed or hangs loses only its current item,
which is reported.
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
    left: deque[Item]  # the first is in progress
    until: float  # deadline of its answer


def run_each(
    work: Callable[[Item], Out],
    items: Sequence[Item],
    *,
    processes: int,
    at_a_time: int,
    seconds: float,
) -> Generator[tuple[Item, Out | Died], None, None]:
    """Each item with the result of ``work``, as they finish.

    A process gets ``at_a_time`` items, and is killed if one takes longer than ``seconds``. Items
    and answers are pickled.
    """
    gc.collect()
    gc.freeze()  # so that reference counts of old objects are not copied by children
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
                child.process.kill()  # its end is found like any other
                child.until = now + seconds
    finally:
        for child in children.values():
            child.process.kill()
            child.process.join()
            child.answers.close()
        gc.unfreeze()


def run_one(work: Callable[[Item], Out], item: Item, seconds: float) -> Out:
    """The result of ``work`` in a process of its own. Raises Died."""
    for _, answer in run_each(work, [item], processes=1, at_a_time=1, seconds=seconds):
        if not isinstance(answer, Died):
            return answer
        raise answer
    raise AssertionError("an item has no answer")


def _start(work: Callable[[Item], Out], items: list[Item], seconds: float) -> _Child[Item]:
    answers, tells = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_run, args=(work, items, tells), daemon=True)
    process.start()
    tells.close()  # only the child has it: reading ends when it dies
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
    todo.extendleft(reversed(child.left))  # later items have not started
