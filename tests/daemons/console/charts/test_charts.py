"""Charts have a unit, show gaps as gaps, and escape all names."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.console.charts.chart import (
    Chart,
    Line,
    pieces,
    rows,
    shown,
    span_marks,
    step,
    thinned,
)
from mq.daemons.console.charts.history_charts import MAX_LINES, svg
from mq.daemons.console.history.points import Point

NOON = 1_790_000_000


def _points(*values: float, every: int = 60, start: int = NOON) -> tuple[Point, ...]:
    return tuple(Point(start + place * every, v, v, v) for place, v in enumerate(values))


def _chart(*lines: Line, title: str = "Lag", unit: str = "messages") -> Chart:
    return Chart(title, unit, NOON, NOON + 3600, lines)


def test_a_picture_has_a_title_a_description_and_its_unit() -> None:
    root = ElementTree.fromstring(svg(_chart(Line("orders", _points(1, 5, 3)))))
    texts = ["".join(node.itertext()) for node in root]
    assert texts[0] == "Lag"
    assert texts[1].endswith("in messages. orders: last 3, at most 5.")
    assert "messages" in texts
    assert root.get("role") == "img"
    ids = (root.get("aria-labelledby") or "").split()
    assert {node.get("id") for node in root} >= set(ids)


def test_there_is_no_inline_style_or_script_in_a_picture() -> None:
    picture = svg(_chart(Line("orders", _points(1, 5, 3))))
    assert not re.search(r"style|<script|\son\w+=|fill=|stroke=|href", picture)


@given(st.text(max_size=50))
def test_any_name_is_text(name: str) -> None:
    root = ElementTree.fromstring(svg(_chart(Line(name, _points(1, 2)), title=name, unit="B/s")))
    assert {node.tag.rpartition("}")[2] for node in root.iter()} <= {
        *("svg", "title", "desc", "text", "line", "path", "circle"),
    }


def test_a_time_without_points_is_a_gap_and_no_line() -> None:
    points = _points(1, 2, 3) + _points(4, 5, start=NOON + 1800)
    assert [len(piece) for piece in pieces(points)] == [3, 2]
    picture = ElementTree.fromstring(svg(_chart(Line("orders", points))))
    assert sum(node.tag.endswith("path") for node in picture) == 2


def test_thousands_of_points_become_500_and_none_of_the_extremes_is_lost() -> None:
    values = [1.0] * 8640
    values[4321], values[7000] = 99.0, -3.0
    points = _points(*values, every=10)
    found = thinned(points, NOON, NOON + 86_400)
    assert len(found) <= 500
    assert (min(p.low for p in found), max(p.high for p in found)) == (-3.0, 99.0)
    assert len(svg(Chart("Day", "messages", NOON, NOON + 86_400, (Line("x", points),)))) < 40_000


def test_the_table_has_each_time_once_and_unknown_is_none() -> None:
    chart = _chart(Line("a", _points(1, 2)), Line("b", _points(3, start=NOON + 60)))
    assert rows(chart) == [(NOON, (1, None)), (NOON + 60, (2, 3))]


def test_lines_beyond_the_limit_are_said_to_be_in_the_table() -> None:
    chart = _chart(*(Line(f"g{i}", _points(1, 2)) for i in range(MAX_LINES + 3)))
    assert "3 more lines are in the table only." in svg(chart)


@pytest.mark.parametrize(
    ("highest", "expected"),
    [(0, 1), (1, 0.2), (4, 1), (5, 1), (7, 2), (99, 20), (101, 50), (2_400_000, 500_000)],
)
def test_marks_of_an_axis_are_round(highest: float, expected: float) -> None:
    assert step(highest) == pytest.approx(expected)


def test_numbers_of_an_axis_are_short() -> None:
    values = [(0, "messages"), (1500, "messages"), (65536, "B"), (2e6, "messages/s"), (12.5, "%")]
    assert [shown(*one) for one in values] == ["0", "1.5 k", "64 Ki", "2 M", "12.5"]


def test_marks_of_time_are_round_and_few() -> None:
    for seconds in (600, 3600, 86_400, 30 * 86_400):
        marks = list(span_marks(NOON, NOON + seconds))
        assert 2 <= len(marks) <= 9
        assert all(NOON <= mark <= NOON + seconds for mark in marks)


def test_an_empty_chart_is_drawn_too() -> None:
    chart = _chart(Line("orders", ()))
    assert chart.empty
    assert "orders: no data." in svg(chart)


@pytest.mark.parametrize(
    "values",
    [
        (math.inf, 1.0),
        (-math.inf,),
        (math.nan, 1.0),
        (1.0, math.nan),
        (5e-324,),
        (1e308, 1e308),
        (2.0**63,),
        (0.0, 0.0),
        (7.0,),
    ],
)
def test_a_chart_of_any_numbers_is_drawn_and_has_no_place_that_is_none(
    values: tuple[float, ...],
) -> None:
    picture = svg(_chart(Line("a", _points(*values))))
    assert "nan" not in picture.split("</desc>")[1]
    assert "inf" not in picture.split("</desc>")[1]
