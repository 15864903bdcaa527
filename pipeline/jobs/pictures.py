"""Charts: SVG for a page, made of shapes and text only.

They have no colours of their own but classes, to which the style of mq.pipeline.jobs.page gives
colours that are legible on light and dark backgrounds. Names that came from a cluster are escaped.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from xml.sax.saxutils import escape

# Colours of series, on light and on dark backgrounds.
LIGHT = ("#1b62a5", "#b5420c", "#2b7a2b", "#8a2be2", "#a3261f", "#6b4c3b", "#b0247e", "#4d5358")
DARK = ("#7ab8f5", "#f2a65a", "#7ddc7d", "#c9a0ff", "#ff8f88", "#d3b09c", "#f78fd0", "#c3c9ce")

Points = Sequence[tuple[float, float]]

_WIDTH = 760
_HEIGHT = 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 30, 16, 36
_ROW = 24  # height of a bar
_LEGEND_ROW = 20
_LABEL = 250  # width of the names of bars
_LABEL_LETTERS = 32
_VALUE = 110
_TICKS = 5
_PERCENTS = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TIME_STEPS = (
    *(1, 5, 15, 30, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 3 * _HOUR, 6 * _HOUR),
    *(12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY, 91 * _DAY, 365 * _DAY),
)


def short_number(value: float) -> str:
    """Format 1234567 as 1.23 M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


def short_time(milliseconds: float) -> str:
    """Format 1500 as 1.5 s."""
    if milliseconds >= 999.5:
        return f"{milliseconds / 1000:.4g} s"
    return f"{milliseconds:.3g} ms"


def bars(
    title: str,
    values: Sequence[tuple[str, float]],
    text: Callable[[float], str] = short_number,
) -> str:
    """Draw a bar for each value, one below the other; the greatest value has the longest bar.

    Values must not be negative, and appear next to their bars as formatted by `text`. Empty without
    values.
    """
    if not values:
        return ""
    most = max(value for _, value in values) or 1
    width = _WIDTH - _LABEL - _VALUE
    shapes = []
    for index, (name, value) in enumerate(values):
        y = _TOP + index * _ROW
        length = max(1.0, width * value / most) if value else 0.0
        shapes += [
            f'<text x="{_LABEL - 8}" y="{y + 15}" text-anchor="end">'
            f"<title>{escape(name)}</title>{escape(shortened(name))}</text>",
            f'<rect class="bar" x="{_LABEL}" y="{y + 3}" width="{length:.1f}"'
            f' height="{_ROW - 7}"/>',
            f'<text x="{_LABEL + length + 6:.1f}" y="{y + 15}">{text(value)}</text>',
        ]
    return _svg(title, _TOP + len(values) * _ROW + 8, shapes)


def over_time(title: str, series: Mapping[str, Points]) -> str:
    """Draw lines whose points are (seconds since 1970, value); values must not be negative.

    A series of one point is a dot. Empty without points.
    """
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    if low == high:
        low, high = low - _MINUTE, high + _MINUTE
    top = max(y for _, y in points) or 1
    x = _scale(low, high, _LEFT, _WIDTH - _RIGHT)
    y = _scale(0, top, _HEIGHT - _BOTTOM, _TOP)
    grid = [*_across(y, ticks(top)), *_upright(x, _time_ticks(low, high))]
    return _lines(title, series, x, y, grid)


def percentiles(title: str, series: Mapping[str, Points]) -> str:
    """Draw lines whose points are (percent, ms), on scales that give room to the slowest few
    percent.

    The scale ends at the last round percentile that has points. Empty without points.
    """
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    most = max(percent for percent, _ in points)
    marks = [percent for percent in _PERCENTS if percent <= most]
    least = min((value for _, value in points if value > 0), default=1)
    low = 10 ** math.floor(math.log10(least))
    high = max(10 ** math.ceil(math.log10(max(low, *(value for _, value in points)))), low * 10)
    y_log = _scale(math.log10(low), math.log10(high), _HEIGHT - _BOTTOM, _TOP)
    x_part = _scale(0, _nines(marks[-1] or 50.0), _LEFT, _WIDTH - _RIGHT)

    def x(percent: float) -> float:
        return x_part(_nines(min(percent, marks[-1])))

    def y(value: float) -> float:
        return y_log(math.log10(max(value, low)))

    decades = [10.0**n for n in range(round(math.log10(low)), round(math.log10(high)) + 1)]
    grid = [
        *_across(y, decades, short_time),
        *_upright(x, [(percent, f"{percent:g} %") for percent in marks]),
    ]
    return _lines(title, series, x, y, grid)


def standalone(picture: str, title: str) -> str:
    """Return a picture as a file of its own, on white, with its title at the top."""
    width, height = map(float, picture.split('viewBox="', 1)[1].split('"', 1)[0].split()[2:])
    style = "".join(
        f".fill{n}{{fill:{color}}}.line{n}{{fill:none;stroke:{color};stroke-width:2}}"
        for n, color in enumerate(LIGHT)
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height + 30:g}"',
            '  font-family="sans-serif" font-size="12">',
            f"<style>.grid{{stroke:#ddd}}.bar{{fill:{LIGHT[0]}}}{style}</style>",
            f'<rect width="{width:g}" height="{height + 30:g}" fill="white"/>',
            f'<text x="{_LEFT}" y="20" font-size="15">{escape(title)}</text>',
            picture.replace("<svg ", f'<svg y="30" width="{width:g}" height="{height:g}" ', 1),
            "</svg>",
            "",
        ]
    )


def ticks(top: float) -> list[float]:
    """Return about five round numbers from 0 to at most `top`."""
    step = 10.0 ** math.floor(math.log10(top / _TICKS))
    for factor in (1, 2, 5, 10):
        if top / (step * factor) <= _TICKS:
            step *= factor
            break
    return [n * step for n in range(int(top / step * (1 + 1e-9)) + 1)]


def shortened(name: str) -> str:
    """Shorten a name to the space next to its bar."""
    if len(name) <= _LABEL_LETTERS:
        return name
    half = _LABEL_LETTERS // 2
    return f"{name[:half]}…{name[1 - half :]}"


def _lines(
    title: str,
    series: Mapping[str, Points],
    x: Callable[[float], float],
    y: Callable[[float], float],
    grid: Iterable[str],
) -> str:
    shapes = list(grid)
    for index, (name, points) in enumerate(series.items()):
        color = index % len(LIGHT)
        placed = [(x(at), y(value)) for at, value in points]
        if len(placed) == 1:
            ((at, value),) = placed
            shapes.append(f'<circle class="fill{color}" cx="{at:.1f}" cy="{value:.1f}" r="3"/>')
        else:
            text = " ".join(f"{at:.1f},{value:.1f}" for at, value in placed)
            shapes.append(f'<polyline class="line{color}" points="{text}"/>')
        legend = _HEIGHT + index * _LEGEND_ROW
        shapes += [
            f'<rect class="fill{color}" x="{_LEFT}" y="{legend}" width="12" height="12"/>',
            f'<text x="{_LEFT + 20}" y="{legend + 11}">{escape(name)}</text>',
        ]
    return _svg(title, _HEIGHT + len(series) * _LEGEND_ROW + 4, shapes)


def _svg(title: str, height: float, shapes: Iterable[str]) -> str:
    return "\n".join(
        [
            f'<svg role="img" viewBox="0 0 {_WIDTH} {height}">',
            f"<title>{escape(title)}</title>",
            *shapes,
            "</svg>",
        ]
    )


def _across(
    y: Callable[[float], float],
    values: Iterable[float],
    text: Callable[[float], str] = short_number,
) -> list[str]:
    shapes = []
    for value in values:
        at = y(value)
        shapes += [
            f'<line class="grid" x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _RIGHT}" y2="{at:.1f}"/>',
            f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{text(value)}</text>',
        ]
    return shapes


def _upright(x: Callable[[float], float], marks: Iterable[tuple[float, str]]) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    shapes = []
    for value, text in marks:
        at = x(value)
        shapes += [
            f'<line class="grid" x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{bottom}"/>',
            f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{escape(text)}</text>',
        ]
    return shapes


def _time_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return about five whole minutes, hours, days …, in UTC."""
    step = next((s for s in _TIME_STEPS if (high - low) / s <= _TICKS + 1), _TIME_STEPS[-1])
    form = "%Y-%m-%d" if step >= _DAY else "%d %b %H:%M" if step >= _MINUTE else "%H:%M:%S"
    first = math.ceil(low / step)
    return [
        (n * step, datetime.fromtimestamp(n * step, UTC).strftime(form))
        for n in range(first, int(high // step) + 1)
    ]


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _nines(percent: float) -> float:
    """Return the number of nines of a percentile: 90 is 1, 99 is 2."""
    return math.log10(100 / (100 - percent))
