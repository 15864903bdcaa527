"""Overload: what a broker acknowledges, and how late, at three times its peak."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from bench import driver
from bench.brokers import Daemon
from bench.driver import Figures, Load

TIMES = 3
# Connections, and the window of each: a due frame without a free slot is dropped, as with producers
# that time out or limit themselves.
SHAPES = ((8, 2048), (64, 256), (256, 256))
WARM_SECONDS = 2


def runs(
    brokers: tuple[Daemon, ...], load: Load, seconds: int, say: Callable[[str], None]
) -> Iterator[tuple[str, list[Figures]]]:
    """Run each broker at three times its own peak, over few connections and many.

    Yields the name of each row, and the result of each broker. `load` is that of the peak.
    """
    peaks = [driver.run(broker, load, seconds, WARM_SECONDS).per_second for broker in brokers]
    say(f"peaks: {', '.join(f'{peak:,.0f}/s' for peak in peaks)}")
    for connections, window in SHAPES:
        found, parts = [], []
        for broker, peak in zip(brokers, peaks, strict=True):
            options = (*load.options, f"rate={int(TIMES * peak)}", "giveup=1")
            offered = replace(load, connections=connections, window=window, options=options)
            one = driver.run(broker, offered, seconds, WARM_SECONDS)
            parts.append(f"{one.per_second / peak:.0%}")
            say(
                f"{broker.name}, {connections} connections: {parts[-1]} of its peak acknowledged, "
                f"p50 {one.p50:.1f}, p99 {one.p99:.1f} ms, errors {one.errors or 'none'}"
            )
            found.append(one)
        yield f"offered 3 x peak, {connections} x {window}: {' / '.join(parts)} of it", found
