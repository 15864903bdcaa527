"""Runs the workers of `mq bench` and adds up what they have measured."""

import asyncio
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.client.load.plan import Measured, Plan

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

_LONGEST = 3_600_000_000  # microseconds
_DIGITS = 3  # that are kept of a latency


class Worker:
    """One process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.so_far = 0
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mq.client.load.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 26,
        )
        assert self._process.stdin is not None
        # Secrets go this way: arguments can be seen by everybody.
        self._process.stdin.write(self.plan.encode() + b"\n")
        await self._process.stdin.drain()

    async def run(self, more: Callable[[int], None]) -> Measured:
        """Wait for its result; `more` is told of messages as they are done."""
        assert self._process.stdout is not None
        last = b""
        async for line in self._process.stdout:
            if line.strip().isdigit():
                more(int(line) - self.so_far)
                self.so_far = int(line)
            else:
                last = line
        await self._process.wait()
        if not last:
            raise CommandError(
                f"a worker ended with status {self._process.returncode}", status=Status.INTERNAL
            )
        return Measured.decode(last)

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


async def run_workers(plans: Iterable[Plan], more: Callable[[int], None]) -> dict[str, Measured]:
    """Do all of it side by side; what was measured, by role."""
    workers = [Worker(plan) for plan in plans]
    try:
        for worker in workers:
            await worker.start()
        results = await asyncio.gather(*(worker.run(more) for worker in workers))
    except BaseException:
        for worker in workers:
            worker.kill()
        raise
    whole: dict[str, Measured] = {}
    for worker, result in zip(workers, results, strict=True):
        whole.setdefault(worker.plan.role, Measured()).add(result)
    return whole


@dataclass(frozen=True)
class Latencies:
    """Latencies in milliseconds; percentiles by percent."""

    histogram: "HdrHistogram"

    @classmethod
    def of(cls, measured: Measured) -> "Latencies":
        from hdrh.histogram import HdrHistogram

        histogram = HdrHistogram(1, _LONGEST, _DIGITS)
        for latency, count in measured.latencies.items():
            histogram.record_value(min(max(latency, 1), _LONGEST), count)
        return cls(histogram)

    def at(self, percent: float) -> float:
        """The latency that so many percent do not exceed."""
        return float(self.histogram.get_value_at_percentile(percent)) / 1000

    @property
    def mean(self) -> float:
        return float(self.histogram.get_mean_value()) / 1000

    @property
    def highest(self) -> float:
        return float(self.histogram.get_max_value()) / 1000
