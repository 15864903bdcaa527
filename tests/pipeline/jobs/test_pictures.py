"""Pictures are well-formed SVG, whatever the names and figures."""

from xml.etree import ElementTree

import pytest

from mq.pipeline.jobs.pictures import (
    bars,
    over_time,
    percentiles,
    short_number,
    short_time,
    shortened,
    standalone,
    ticks,
)


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter("text")]


def test_the_greatest_value_has_the_longest_bar() -> None:
    root = ElementTree.fromstring(bars("Queues", [("a", 10), ("b", 20), ("none", 0)]))
    widths = [float(bar.attrib["width"]) for bar in root.iter("rect")]
    assert widths[0] * 2 == widths[1]
    assert widths[2] == 0


def test_names_are_escaped_and_long_ones_shortened() -> None:
    name = "</title><script>alert(1)</script>" + "x" * 40
    svg = bars("<Queues>", [(name, 1)])
    assert "<script" not in svg
    title = ElementTree.fromstring(svg).findall(".//text/title")[0]
    assert title.text == name
    assert len(shortened(name)) == 32
    lines = over_time("lag", {"<b>": [(0, 1), (60, 2)]})
    assert "<b>" in texts(lines)


def test_zeros_have_a_picture_and_no_data_has_none() -> None:
    ElementTree.fromstring(bars("Queues", [("a", 0)]))
    ElementTree.fromstring(over_time("lag", {"g": [(5, 0), (6, 0)]}))
    ElementTree.fromstring(percentiles("latency", {"g": [(50, 0), (99, 0)]}))
    assert bars("Queues", []) == over_time("lag", {"g": []}) == percentiles("x", {}) == ""


def test_lines_go_from_the_first_time_to_the_last() -> None:
    svg = over_time("lag", {"g": [(0, 0), (3600, 50), (7200, 100)], "one": [(3600, 10)]})
    root = ElementTree.fromstring(svg)
    (line,) = root.iter("polyline")
    xs, ys = zip(*(map(float, p.split(",")) for p in line.attrib["points"].split()), strict=True)
    assert list(xs) == sorted(xs) and list(ys) == sorted(ys, reverse=True)
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert len(list(root.iter("circle"))) == 1
    assert "01 Jan 01:00" in texts(svg)


def test_each_nine_of_a_percentile_has_the_same_width() -> None:
    svg = percentiles("latency", {"g": [(0, 1), (90, 10), (99, 100), (99.9, 1000)]})
    (line,) = ElementTree.fromstring(svg).iter("polyline")
    xs = [float(p.split(",")[0]) for p in line.attrib["points"].split()]
    assert xs[2] - xs[1] == pytest.approx(xs[3] - xs[2], abs=0.2)
    assert {"1 ms", "10 ms", "1 s", "99.9 %"} <= set(texts(svg))


def test_ticks_are_round_numbers() -> None:
    assert ticks(1234) == [0, 500, 1000]
    assert ticks(1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(7e9) == [0, 2e9, 4e9, 6e9]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.1234, "0.123"), (999, "999"), (1234, "1.23 k"), (999_999, "1 M"), (3e12, "3 T")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text


def test_times_are_short() -> None:
    assert [short_time(value) for value in (0.25, 12, 999, 1500, 61_234)] == [
        *("0.25 ms", "12 ms", "999 ms", "1.5 s", "61.23 s")
    ]


def test_a_picture_can_be_a_file_of_its_own() -> None:
    root = ElementTree.fromstring(standalone(bars("Queues", [("a", 1)]), "a < b"))
    name = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{name}svg"
    assert root.find(f"{name}text").text == "a < b"  # type: ignore[union-attr]
    assert root.find(f"{name}svg/{name}rect").attrib["class"] == "bar"  # type: ignore[union-attr]
