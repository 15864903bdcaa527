"""The real Java client: sends commands to `java/Client.java` and reads its output."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.interop import peers

T = TypeVar("T")


class JavaFailed(AssertionError):
    """The Java client threw an exception, which is the text."""


@dataclass(frozen=True)
class Sent:
    """A SendResult of the Java client."""

    status: str
    message_id: str
    offset_id: str
    broker: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True)
class Got:
    """A message that the Java client received, with the first 60 characters of its body."""

    who: str
    broker: str
    queue_id: int
    queue_offset: int
    message_id: str
    tags: str
    keys: str
    sys_flag: int
    store_size: int
    body: str


class JavaClient(peers.JavaProgram):
    """A JVM with the Java client of `release`; its requests are in `serialization` JSON or
    ROCKETMQ.
    """

    def __init__(self, release: str, namesrv: str, tmp: Path, serialization: str = "JSON") -> None:
        super().__init__(release, "Client.java", namesrv, serialization, tmp=tmp)
        self.release = release

    def __call__(self, *words: object) -> list[list[str]]:
        """Run a command of Client.java; returns the words of its output, line by line.

        The output of consumers in the meantime is included. Raises JavaFailed after an exception.
        """
        begin = len(self.lines)
        self.write_line("\t".join(map(str, words)))
        ended = self.until(lambda: self._ends(begin))
        if ended and ended[0].startswith("FAILED"):
            raise JavaFailed(f"{words}: {ended[0]}")
        return [line.split("\t") for line in self.lines[begin:]]

    def _ends(self, begin: int) -> list[str]:
        return [x for x in self.lines[begin:] if x == "DONE" or x.startswith("FAILED ")]

    def until(self, found: Callable[[], T], seconds: float = 60) -> T:
        """Return the result of `found` once it is true; `found` is called for each printed line."""
        with self._news:
            if not self._news.wait_for(lambda: found() or self._ended, seconds) or not found():
                printed = "\n".join(self.lines[-60:])
                raise TimeoutError(f"{seconds:.0f} s without what was awaited:\n{printed}")
            return found()

    def send(
        self, topic: str, way: str | int = "sync", tag: str = "tag", count: int = 1, size: int = 0
    ) -> list[Sent]:
        """Send `count` messages with bodies `tag`-0, `tag`-1 and so on, and keys key-`tag`-0 ….

        `way` is sync, async, oneway, batch, or the number of the queue to send to; `size` pads the
        body with dots.
        """
        lines = self("send", topic, way, tag, count, size)
        return [
            Sent(words[1], words[2], words[3], words[4], int(words[5]), int(words[6]))
            for words in lines
            if words[0] == "SENT"
        ]

    def consume(
        self, name: str, group: str, topic: str, expression: str = "*", mode: str = "clustering"
    ) -> None:
        """Start a push consumer; `mode` is clustering, broadcasting, orderly, circle or hash."""
        self("consume", name, group, topic, expression, mode)

    def commit(self, name: str, until: Callable[[], bool]) -> None:
        """Wait until a push consumer has committed sufficient offsets.

        A message is printed before it counts as consumed, and the client itself commits every five
        seconds. The condition must hold ten times in a row: a pull that started earlier carries an
        older offset and may arrive later.
        """
        deadline = time.monotonic() + 60
        in_a_row = 0
        while in_a_row < 10:
            assert time.monotonic() < deadline, f"{name} has not consumed in 60 s what it got"
            self("commit", name)
            in_a_row = in_a_row + 1 if until() else 0

    def stop_consumer(self, name: str) -> None:
        self("stop", name)

    def got(self, who: str, count: int = 0) -> list[Got]:
        """Return the messages that a consumer has received, once there are at least `count`."""

        def received() -> list[str]:
            return [line for line in self.lines if line.startswith(f"GOT\t{who}\t")]

        if count:
            self.until(lambda: len(received()) >= count)
        return [_message(line.split("\t")) for line in received()]

    def queues(self, name: str) -> set[int]:
        """The current queues of a push consumer at one broker."""
        return {int(words[2]) for words in self("queues", name) if words[0] == "QUEUE"}

    def wait_for_queues(self, shares: list[set[int]], *names: str, rebalance: bool = False) -> None:
        """Query consumers for their queues until they are assigned like this, in any order.

        A rebalance has no event to wait for. `rebalance` triggers one at each query.
        """
        deadline = time.monotonic() + 60
        wanted = sorted(map(sorted, shares))
        while (now := sorted(sorted(self.queues(name)) for name in names)) != wanted:
            assert time.monotonic() < deadline, f"{now}, not {wanted}"
            for name in names if rebalance else ():
                self("rebalance", name)
            time.sleep(0.05)

    def messages(self, *words: object) -> list[Got]:
        """Run a command (view, query, pull, lite) and return the messages that it printed."""
        who = str(words[1]) if words[0] in ("pull", "lite") else str(words[0])
        lines = self(*words)
        return [_message(line) for line in lines if line[:2] == ["GOT", who]]


def _message(words: list[str]) -> Got:
    _, who, broker, queue, offset, message_id, tags, keys, flag, size, *body = words
    numbers = (int(flag), int(size))
    return Got(
        who, broker, int(queue), int(offset), message_id, tags, keys, *numbers, "\t".join(body)
    )
