"""Runs the workers of `mq bench` and adds up what they have measured."""

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

_LONGEST = 3_600_000_000  # microseconds
_DIGITS = 3  # that are kept of a latency


_PATIENCE = 2.0  # seconds that workers have to tell what they have measured so far


class Worker:
    """One process."""

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
            process_group=0,  # Ctrl-C is for us: we ask it what it has measured
        )
        assert self._process.stdin is not None
        # Secrets go this way: arguments can be seen by everybody.
        self._process.stdin.write(self.plan.encode() + b"\n")
        await self._process.stdin.drain()

    async def run(self, more: Callable[[int], None]) -> LoadResult:
        """Wait for its result; `more` is told of messages as they are done."""
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
        """Have it end, and tell what it has measured."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def end(self) -> None:
        """Kill it, if it has not ended, and wait until it has."""
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        # Its pipes, too, would else be closed after the event loop.
        await process.communicate()


async def run_workers(plans: Iterable[Plan], more: Callable[[int], None]) -> dict[str, LoadResult]:
    """Do all of it side by side; what was measured, by role.

    Where a signal is to end it (`received`), what was measured until then. Raises CommandError.
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
            await asyncio.wait(runs, timeout=_PATIENCE)
    finally:
        for run in runs:
            run.cancel()
        if runs:
            await asyncio.wait(runs)
        for worker in workers:
            await worker.end()
    whole: dict[str, LoadResult] = {}
    for worker, run in zip(workers, runs, strict=True):
        if not run.cancelled():  # a worker that told nothing when asked
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
        """The latency that so many percent do not exceed."""
        return float(self.histogram.get_value_at_percentile(percent)) / 1000

    @property
    def mean(self) -> float:
        return float(self.histogram.get_mean_value()) / 1000

    @property
    def highest(self) -> float:
        return float(self.histogram.get_max_value()) / 1000
