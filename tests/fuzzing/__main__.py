"""Fuzz with coverage: `python -m tests.fuzzing TARGET… [--inputs N] [--keep]`; `make fuzz` for all.

Each target runs in atheris, which `make fuzz` installs, in a process of its own. It begins with the
kept inputs. One that fails ends it; it is printed and added to those that are kept, so that the
suite has it from then on. With --keep, some of the inputs that reached new code are kept, too. At
the end a line of JSON has the figures.
"""

import argparse
import json
import logging
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzzing import corpus

HANG_SECONDS = 0.1
WARM_UP = 100  # inputs in whose time modules are still being loaded
# An input that is longer is kept only if it fails; of the others the shortest are.
MOST_KEPT_BYTES = 1024
MOST_KEPT = 150


class Watch:
    """Counts inputs, and checks the time of each and the memory of all."""

    def __init__(self, name: str, inputs: int) -> None:
        self.name = name
        self.wanted = inputs
        self.inputs = 0
        self.slowest = 0.0
        self.slow_input = b""
        self.began = time.monotonic()
        self.early_memory = 0

    def took(self, data: bytes, seconds: float) -> None:
        self.inputs += 1
        if seconds > self.slowest and self.inputs > WARM_UP:
            self.slowest, self.slow_input = seconds, data
        if self.inputs == max(self.wanted // 10, 1000):
            self.early_memory = _memory()
        if self.inputs == self.wanted:
            self.report()

    def report(self) -> None:
        figures = {
            "target": self.name,
            "inputs": self.inputs,
            "seconds": round(time.monotonic() - self.began, 1),
            "slowestMs": round(self.slowest * 1000, 1),
            "memoryMb": _memory() >> 20,
            "grownMb": (_memory() - self.early_memory) >> 20,
        }
        if self.slowest > HANG_SECONDS:
            figures["slowInput"] = self.slow_input.hex()
        print(json.dumps(figures), flush=True)


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fuzz(name: str, inputs: int, folder: Path) -> None:
    """Fuzz in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["mq"], enable_loader_override=False):
        from tests.fuzzing.catalog import load  # and with it, instrumented, what it imports

        target = load(name)
    logging.disable(logging.CRITICAL)
    watch = Watch(name, inputs)
    run, clock = target.run, time.thread_time

    def one(data: bytes) -> None:
        began = clock()
        run(data)
        watch.took(data, clock() - began)

    options = [
        f"-runs={inputs}",
        f"-max_len={target.longest}",
        f"-artifact_prefix={folder.parent}/",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], str(folder), *options], one)
    atheris.Fuzz()


def supervise(name: str, inputs: int, keep: bool) -> bool:
    """Fuzz in a process of its own; whether nothing failed."""
    with tempfile.TemporaryDirectory(prefix="mq-fuzzing-") as parent:
        folder = Path(parent, "found")
        folder.mkdir()
        kept = corpus.load(name)
        for number, data in enumerate(kept):
            (folder / str(number)).write_bytes(data)
        again = [sys.executable, "-m", "tests.fuzzing", name, "--inputs", str(inputs)]
        status = subprocess.run([*again, "--into", str(folder)], check=False).returncode
        failing = [path.read_bytes() for path in Path(parent).glob("*-*") if path.is_file()]
        for data in failing:
            print(f"{name}: fails: {data.hex()}", flush=True)
        if keep:
            found = sorted((path.read_bytes() for path in folder.iterdir()), key=len)
            short = [data for data in found if len(data) <= MOST_KEPT_BYTES]
            kept += short[: max(0, MOST_KEPT - len(kept))]
        if keep or failing:
            corpus.save(name, kept + failing)
        return status == 0 and not failing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing")
    parser.add_argument("targets", nargs="*", help="all of them without any")
    parser.add_argument("--inputs", type=int, default=100_000, help="of each target")
    parser.add_argument("--keep", action="store_true", help="keep what reaches new code")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.into is not None:
        fuzz(options.targets[0], options.inputs, options.into)
        return 0
    from tests.fuzzing.catalog import NAMES

    names = options.targets or NAMES
    good = [supervise(name, options.inputs, options.keep) for name in names]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
