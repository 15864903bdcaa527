"""Latencies at rates that a broker can sustain; no coordinated omission: frames follow a clock."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from bench import driver
from bench.brokers import Daemon
from bench.driver import Figures, Load

PARTS_OF_PEAK = (0.1, 0.5, 0.8)
# Frames that wait for a stalled broker must not also wait for a free slot in the driver.
WINDOW = 2048
WARM_SECONDS = 2


def runs(
    pair: tuple[Daemon, Daemon], load: Load, seconds: int, say: Callable[[str], None]
) -> Iterator[tuple[str, Figures, Figures]]:
    """Run both brokers at fractions of the slower one's peak, then each at fractions of its own.

    Yields the name of each row, and the result of each broker. `load` is that of the peak.
    """
    peaks = [driver.run(broker, load, seconds, WARM_SECONDS).per_second for broker in pair]
    say(f"peaks: {', '.join(f'{peak:,.0f}/s' for peak in peaks)}")
    lower = min(peaks)
    for name, rates in (
        (f"of {lower:,.0f}/s", [lower, lower]),
        ("of its own peak", peaks),
    ):
        for part in PARTS_OF_PEAK:
            found = []
            for broker, peak in zip(pair, rates, strict=True):
                one = driver.run(broker, _at(load, int(peak * part)), seconds, WARM_SECONDS)
                say(
                    f"{broker.name} at {peak * part:,.0f}/s: {one.per_second:,.0f}/s, "
                    f"p50 {one.p50:.2f}, p99 {one.p99:.2f}, p99.9 {one.p999:.2f} ms"
                )
                found.append(one)
            theirs, ours = found
            yield f"at {part:.0%} {name}", theirs, ours


def _at(load: Load, rate: int) -> Load:
    return replace(load, window=WINDOW, options=(*load.options, f"rate={rate}"))
