"""Masters with a slave each: the cost of waiting for the slave, and whether it keeps up."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import brokers
from bench.brokers import Daemon
from bench.driver import Load

REAL = ("properties=2",)
SYNC_LOADS = [
    Load("SYNC_MASTER, 8 x 128", "send", 8, 128, REAL),
    Load("SYNC_MASTER, 64 x 1", "send", 64, 1, REAL),
    Load("SYNC_MASTER, 1 x 1", "send", 1, 1, REAL),
]
ASYNC_LOADS = [Load("ASYNC_MASTER with a slave, 8 x 128", "send", 8, 128, REAL)]
# A slave of Java's sends its first report five to six seconds after it has connected.
_FIRST_WORD_SECONDS = 9.0


@contextmanager
def both_pairs(role: str) -> Iterator[tuple[Daemon, Daemon]]:
    """Run the masters, Java's and ours, each with a slave."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd() / ".cache"))
    settings: dict[str, object] = {"brokerRole": role}
    try:
        with ExitStack() as running:
            masters = [
                running.enter_context(make(folder / "masters", settings))
                for make in (brokers.java_broker, brokers.our_broker)
            ]
            for make, master in zip(
                (brokers.java_broker, brokers.our_broker), masters, strict=True
            ):
                of_slave: dict[str, object] = {
                    "brokerRole": "SLAVE",
                    "brokerId": 1,
                    "haMasterAddress": f"127.0.0.1:{master.port + 1}",
                }
                running.enter_context(make(folder / "slaves", of_slave))
            time.sleep(_FIRST_WORD_SECONDS)
            yield masters[0], masters[1]
    finally:
        shutil.rmtree(folder)
