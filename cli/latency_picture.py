"""A picture of latencies: an SVG whose curve tells how long the slowest so many percent took."""

import math
from collections.abc import Mapping
from xml.sax.saxutils import escape

from mq.cli.load import Latencies

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 50, 50
_PERCENTS = (0, 90, 99, 99.9, 99.99, 99.999)
_STEPS = 200  # points of a curve
_COLORS = ("#1f77b4", "#d62728")


def draw(title: str, curves: Mapping[str, Latencies]) -> str:
    """The SVG; latencies upwards on a logarithmic scale, percentiles to the right."""
    values = [curve.at(percent) for curve in curves.values() for percent in _PERCENTS]
    low = 10 ** math.floor(math.log10(max(min(values), 0.001)))
    high = 10 ** math.ceil(math.log10(max(*values, low * 10)))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"',
        '  font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="24" font-size="15">{escape(title)}</text>',
    ]
    for percent in _PERCENTS:
        x = _x(percent)
        lines += [
            f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}" stroke="#ddd"/>',
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{percent:g} %'
            "</text>",
        ]
    value = low
    while value <= high * 1.001:
        y = _y(value, low, high)
        lines += [
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>',
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g} ms</text>',
        ]
        value *= 10
    for number, (name, curve) in enumerate(curves.items()):
        color = _COLORS[number % len(_COLORS)]
        points = " ".join(
            f"{_x(percent):.1f},{_y(curve.at(percent), low, high):.1f}" for percent in _percents()
        )
        lines += [
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>',
            f'<text x="{_LEFT + 10}" y="{_TOP + 18 + 18 * number}" fill="{color}">{escape(name)}: '
            f"median {curve.at(50):.2f} ms, 99 % {curve.at(99):.2f} ms, highest "
            f"{curve.highest:.2f} ms</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])


def _percents() -> list[float]:
    """Percentiles that lie as far from each other in the picture."""
    most = math.log10(100 / (100 - _PERCENTS[-1]))
    return [100 - 100 / 10 ** (most * step / _STEPS) for step in range(_STEPS + 1)]


def _x(percent: float) -> float:
    most = math.log10(100 / (100 - _PERCENTS[-1]))
    part = math.log10(100 / (100 - percent)) / most
    return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)


def _y(value: float, low: float, high: float) -> float:
    part = math.log10(max(value, low) / low) / math.log10(high / low)
    return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)
