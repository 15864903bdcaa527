"""A diagram of latencies by percentile, as SVG."""

from collections.abc import Mapping

from mq.cli.load import Latencies
from mq.pipeline.jobs.pictures import percentiles, short_time, standalone

_STEPS = 200  # points of a curve
_NINES = 5  # a curve ends at 99.999 %


def draw(title: str, curves: Mapping[str, Latencies]) -> str:
    """Return the SVG; latencies are logarithmic upwards, percentiles to the right."""
    # Evenly spaced in the diagram: each nine has as many points.
    percents = [100 - 100 / 10 ** (_NINES * step / _STEPS) for step in range(_STEPS + 1)]
    series = {
        _legend(name, curve): [(percent, curve.at(percent)) for percent in percents]
        for name, curve in curves.items()
    }
    return standalone(percentiles(title, series), title)


def _legend(name: str, curve: Latencies) -> str:
    return (
        f"{name}: median {short_time(curve.at(50))}, 99 % {short_time(curve.at(99))}, "
        f"highest {short_time(curve.highest)}"
    )
