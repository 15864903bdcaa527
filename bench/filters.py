"""The number of messages per second that a filter class can evaluate, on one core.

    python -m bench.filters [--seconds 5] [--size 1024]

Repeats the work of a filter server on the messages of a pull: find the records, send them to the
sandbox, which decodes each and calls the class, and extract those that match. Both processes are
bound to the same core. The cost of a pull for its broker is not included.
"""

import argparse
import asyncio
import os
import time

from mq.daemons.filtersrv.config import SandboxConfig
from mq.daemons.filtersrv.handlers import Writer, places
from mq.daemons.filtersrv.sandbox.process import Sandbox
from mq.protocol.record_codec import encode_record
from mq.protocol.stored_message import StoredMessage

# One comparison each: of the body, of a property, and of the tag; half of the messages match.
CLASSES = {
    "body": "return message.body[0] == 48",
    "tag": "return message.tags == 'a'",
    "number": "return int(message.properties['amount']) > 100",
}
BATCHES = (32, 256)  # messages of a pull: Java's default, and a configured size


def records(count: int, size: int) -> bytes:
    """Return messages as in a pull; every other one matches."""
    return b"".join(
        encode_record(
            StoredMessage(
                "Orders",
                b"%d" % (number % 2) + b"x" * (size - 1),
                {"TAGS": "ab"[number % 2], "KEYS": f"k{number}", "amount": str(100 + number % 2)},
                queue_offset=number,
            )
        )
        for number in range(count)
    )


async def measure(name: str, batch: int, size: int, seconds: float) -> float:
    """Return messages per second."""
    source = f"class F:\n    def match(self, message):\n        {CLASSES[name]}\n".encode()
    data, writer = records(batch, size), Writer(8192, 5)
    sandbox = Sandbox(SandboxConfig().limits, name)
    try:
        await sandbox.start()
        await sandbox.load("g", "F", source)
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            found = places(data)
            bits = await sandbox.match(data, len(found))
            writer.changes_any(data, found)
            _, count = writer.chosen(data, found, bits)
            assert count == batch // 2
            done += batch
        return done / (time.perf_counter() - began)
    finally:
        await sandbox.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--size", type=int, default=1024)
    given = parser.parse_args()
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})  # the sandbox inherits it from this process
    for batch in BATCHES:
        for name in CLASSES:
            rate = asyncio.run(measure(name, batch, given.size, given.seconds))
            print(f"{rate:10,.0f} messages/s of {given.size} bytes, {batch} a pull, by {name}")


if __name__ == "__main__":
    main()
