"""A page of a report is whole by itself and runs nothing."""

import re
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser

from mq.pipeline.jobs.page import Section, page, shown
from mq.pipeline.jobs.pictures import COLORS, bars

MADE = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)
_VOID = {"meta"}


class Reader(HTMLParser):
    """Checks that elements are closed in their order, and notes them."""

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


def test_a_page_holds_its_tables_and_pictures_and_nothing_from_elsewhere() -> None:
    rows = [("<script>alert(1)</script>", 1234567, 0.5), ("\"&'", None, 2000.0)]
    text = page(
        "Lag & more",
        [
            Section("Queues", "first\nsecond", bars("b", [("q", 1.0)]), ("name", "n", "f"), rows),
            Section("Empty", columns=("name",)),
        ],
        MADE,
        "All <is> well",
    )
    reader = Reader(text)
    assert reader.open == []
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(reader.tags)
    assert not {"src", "href", "onload", "onclick"} & set(reader.attributes)
    assert not re.search(r"url\(|@import|https?:", text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "All &lt;is&gt; well" in text
    assert '<td class="number">1,234,567</td>' in text
    assert '<td class="number">-</td>' in text
    assert "2026-01-31 08:00:00 UTC" in text
    assert text.count("<svg") == 1 and text.count("<table>") == 2


def test_every_series_has_a_colour_for_light_and_for_dark() -> None:
    text = page("t", [], MADE)
    for number in range(COLORS):
        assert len(re.findall(rf"--c{number}: #[0-9a-f]{{6}};", text)) == 2
        assert f".line{number} " in text and f".fill{number} " in text


def test_cells_are_shown_as_people_read_them() -> None:
    east = timezone(timedelta(hours=2))
    assert shown(datetime(2026, 1, 31, 8, 0, tzinfo=east)) == "2026-01-31 06:00:00 UTC"
    assert shown(datetime(2026, 1, 31, 8, 0)) == "2026-01-31 08:00:00 UTC"
    assert [shown(v) for v in (True, 12345, 0.12345, 123456.7, None, "x")] == [
        *("yes", "12,345", "0.123", "123,457", "-", "x")
    ]
