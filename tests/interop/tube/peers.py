"""The Java clients of TubeMQ: sends commands to `java/Tube.java` and reads its output."""

import base64
import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.interop.jvm import CACHE, HERE, JDK_FLAGS, SHORT_LIVED, compiled, jars, locked
from tests.interop.process import Process

T = TypeVar("T")

RELEASES = ("1.7.0", "0.8.0-incubating")

_LOG = """log4j.rootLogger=OFF
"""
_LOG2 = """rootLogger.level = off
"""


class JavaFailed(AssertionError):
    """The Java client threw an exception, which is the text."""


class TubeClient(Process):
    """A JVM with the client of `release`, with its files below `tmp`; `account` is name and
    password.
    """

    def __init__(self, release: str, masters: str, tmp: Path, *account: str) -> None:
        folder = jars(f"tubemq-client-{release}")
        classes = compiled(f"tubemq-{release}", folder, _source(release))
        home = tmp / f"tube-{release}-{random.randrange(1 << 32):08x}"
        home.mkdir(parents=True)
        (home / "log4j.properties").write_text(_LOG, encoding="utf-8")
        (home / "log4j2.properties").write_text(_LOG2, encoding="utf-8")
        options = [*JDK_FLAGS, "-Xmx512m", *SHORT_LIVED]
        path = f"{home}:{classes}:{folder}/*"
        super().__init__(["java", *options, "-cp", path, "Tube", masters, *account], home, "READY")
        self.release = release

    def __call__(self, *words: object, seconds: float = 180) -> list[list[str]]:
        """Run a command; returns the words of its output, line by line. Raises JavaFailed."""
        begin = len(self.lines)
        self.write_line("\t".join(map(str, words)))
        ended = self._until(lambda: self._ends(begin), seconds)
        if ended[0].startswith("FAILED"):
            raise JavaFailed(f"{words}: {ended[0]}")
        return [line.split("\t") for line in self.lines[begin:]]

    def send(
        self,
        topic: str,
        count: int,
        *,
        first: int = 0,
        size: int = 100,
        items: str = "-",
        name: str = "p",
    ) -> int:
        """Send numbered messages until each is accepted; returns the number of retries."""
        [sent] = [w for w in self("send", name, topic, first, count, size, items) if w[0] == "SENT"]
        assert (int(sent[1]), int(sent[2])) == (count, 0), sent
        return int(sent[3])

    def got(self, name: str) -> tuple[int, set[int]]:
        """The number of messages that a consumer got, and their numbers."""
        [words] = [words for words in self("got", name) if words[0] == "GOT"]
        bits = int.from_bytes(base64.b64decode(words[2]), "little")
        numbers = {n for n, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"}
        return int(words[1]), numbers

    def partitions(self, name: str) -> set[str]:
        """Return the current partitions of a consumer: `broker:topic:partition`."""
        return {words[1] for words in self("parts", name) if words[0] == "PART"}

    def _ends(self, begin: int) -> list[str]:
        return [x for x in self.lines[begin:] if x == "DONE" or x.startswith("FAILED ")]

    def _until(self, found: Callable[[], T], seconds: float) -> T:
        with self._news:
            if not self._news.wait_for(lambda: found() or self._ended, seconds) or not found():
                printed = "\n".join(self.lines[-60:])
                raise TimeoutError(f"{seconds:.0f} s without what was awaited:\n{printed}")
            return found()


def _source(release: str) -> Path:
    """The program with the packages of a release."""
    source = HERE / "java" / "Tube.java"
    if release == "1.7.0":
        return source
    text = source.read_text(encoding="utf-8").replace("apache.inlong.tubemq", "apache.tubemq")
    target = CACHE / f"tubemq-sources-{release}" / source.name
    with locked(CACHE / f"tubemq-sources-{release}.lock"):
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
    return target
