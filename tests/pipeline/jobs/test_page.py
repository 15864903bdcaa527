"""The page of a report needs no other file and runs no script."""

import re
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser

from mq.client.operations.columns import number, text, time
from mq.pipeline.jobs.job_result import Shape
from mq.pipeline.jobs.page import Section, page, shown, when
from mq.pipeline.jobs.pictures import LIGHT, bars

SHAPE = Shape(
    "queues", "Queues", (text("name", "Name"), number("n", "N"), number("f", "F"), time("t", "T"))
)
MADE = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
_VOID = {"meta"}


class Reader(HTMLParser):
    """Checks that elements are closed in order, and records them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_contains_its_tables_and_pictures_and_loads_nothing() -> None:
    rows = [("<script>alert(1)</script>", 1234567, 0.5, 0), ("\"&'", None, 2000.0, None)]
    html = page(
        "Lag & more",
        [
            Section("Queues", "first\nsecond", bars("b", [("q", 1.0)]), SHAPE.of(rows)),
            Section("Empty", table=SHAPE.of([])),
        ],
        MADE,
        "All <is> well",
    )
    reader = Reader(html)
    assert reader.open == []
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(reader.tags)
    assert not {"src", "href", "onload", "onclick"} & set(reader.attributes)
    assert not re.search(r"url\(|@import|https?:", html)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "All &lt;is&gt; well" in html
    assert '<td class="number">1,234,567</td>' in html
    assert '<td class="number">-</td>' in html
    assert "2026-01-31 08:00:00 UTC" in html
    assert html.count("<svg") == 1 and html.count("<table>") == 2


def test_every_series_has_a_colour_for_light_and_for_dark() -> None:
    html = page("t", [], MADE)
    for color in range(len(LIGHT)):
        assert len(re.findall(rf"--c{color}: #[0-9a-f]{{6}};", html)) == 2
        assert f".line{color} " in html and f".fill{color} " in html


def test_cells_are_formatted_for_people() -> None:
    east = timezone(timedelta(hours=2))
    assert when(datetime(2026, 1, 31, 8, 0, tzinfo=east)) == "2026-01-31 06:00:00 UTC"
    assert shown(1_769_846_400_999, "time") == "2026-01-31 08:00:00 UTC"
    assert [shown(value, "number") for value in (12345, 0.12345, 123456.7, None)] == [
        *("12,345", "0.123", "123,457", "-")
    ]
    assert (shown(True, "flag"), shown("x", "text")) == ("yes", "x")
