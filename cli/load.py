"""Runs the workers of `mq bench` and adds up their results."""

import asyncio
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.interruption import received
from mq.cli.runtime.status import Status
from mq.client.load.plan import LoadResult, Plan

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

_LONGEST = 3_600_000_000  # microseconds; longer latencies count as this
_DIGITS = 3  # significant digits of a latency


_STOP_TIMEOUT = 2.0  # seconds in which stopped workers must report their results


class Worker:
    """A worker process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.so_far = 0
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mq.client.load.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 26,
            process_group=0,  # Ctrl-C must not reach it: it is asked for its results
        )
        assert self._process.stdin is not None
        # Not in arguments: plans contain secrets, and every user can read arguments.
        self._process.stdin.write(self.plan.encode() + b"\n")
        await self._process.stdin.drain()

    async def run(self, more: Callable[[int], None]) -> LoadResult:
        """Wait for the result; `more` is called with the number of new messages."""
        assert self._process is not None and self._process.stdout is not None
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
        return LoadResult.decode(last)

    def stop(self) -> None:
        """Ask the process to report its results and exit."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def end(self) -> None:
        """Kill the process if it runs, and wait for its end."""
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        # Otherwise its pipes are closed only after the event loop.
        await process.communicate()


async def run_workers(plans: Iterable[Plan], more: Callable[[int], None]) -> dict[str, LoadResult]:
    """Run the workers in parallel. Returns the results by role.

    If a signal ends it (`received`), returns the results so far. Raises CommandError.
    """
    workers = [Worker(plan) for plan in plans]
    runs: list[asyncio.Task[LoadResult]] = []
    try:
        for worker in workers:
            await worker.start()
        runs = [asyncio.ensure_future(worker.run(more)) for worker in workers]
        try:
            await asyncio.wait(runs, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError:
            if received() is None:
                raise
            for worker in workers:
                worker.stop()
            await asyncio.wait(runs, timeout=_STOP_TIMEOUT)
    finally:
        for run in runs:
            run.cancel()
        if runs:
            await asyncio.wait(runs)
        for worker in workers:
            await worker.end()
    whole: dict[str, LoadResult] = {}
    for worker, run in zip(workers, runs, strict=True):
        if not run.cancelled():  # a worker that did not report
            whole.setdefault(worker.plan.role, LoadResult()).add(run.result())
    return whole


@dataclass(frozen=True)
class Latencies:
    """Latencies in milliseconds; percentiles by percent."""

    histogram: "HdrHistogram"

    @classmethod
    def of(cls, measured: LoadResult) -> "Latencies":
        from hdrh.histogram import HdrHistogram

        histogram = HdrHistogram(1, _LONGEST, _DIGITS)
        for latency, count in measured.latencies.items():
            histogram.record_value(min(max(latency, 1), _LONGEST), count)
        return cls(histogram)

    def at(self, percent: float) -> float:
        """Return the latency at a percentile."""
        return float(self.histogram.get_value_at_percentile(percent)) / 1000

    @property
    def mean(self) -> float:
        return float(self.histogram.get_mean_value()) / 1000

    @property
    def highest(self) -> float:
        return float(self.histogram.get_max_value()) / 1000
