"""Latencies of enodes by request code: quantiles of the last replies."""

from collections import Counter, deque
from collections.abc import Iterator

QUANTILES = (0.5, 0.9, 0.99)
# Number of replies per code from which quantiles are computed.
_LAST = 2048


class Latencies:
    """`counts` has the number of replies by request code."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self._last: dict[int, deque[float]] = {}

    def took(self, code: int, seconds: float, requests: int = 1) -> None:
        """Count a reply of an enode; for several requests `seconds` is the time of the oldest."""
        self.counts[code] += requests
        last = self._last.get(code)
        if last is None:
            last = self._last[code] = deque(maxlen=_LAST)
        last.append(seconds)

    def quantiles(self) -> Iterator[tuple[int, float, float]]:
        """Code, quantile and seconds."""
        for code, last in self._last.items():
            ordered = sorted(last)
            for quantile in QUANTILES:
                yield code, quantile, ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]
