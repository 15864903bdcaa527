"""The output of templates."""

from datetime import UTC, timedelta, timezone
from typing import Any

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.console import preferences, rendering, template_filters
from mq.daemons.console.rendering import csv_chunks, defused, download
from mq.daemons.console.route import Download, Sheet


def rendered(source: str, **values: Any) -> str:
    return rendering.environment("en").from_string(source).render(values)


@given(st.text())
def test_any_text_is_text_in_a_page(text: str) -> None:
    for source in ("<p>{{ x }}</p>", "<p>{{ x|shown }}</p>", '<p title="{{ x }}">.</p>'):
        soup = BeautifulSoup(rendered(source, x=text), "html.parser")
        assert [one.name for one in soup.find_all(True) if one.name != "span"] == ["p"]
        assert set(soup.p.attrs) <= {"title"}  # type: ignore[union-attr]


@given(st.text(alphabet="\u202e\u2066\u200b\x00\x1b\x7f\x85\xad\ufeff\u061cab", min_size=1))
def test_what_hides_in_text_is_shown_as_a_mark(text: str) -> None:
    for source in ("{{ x }}", "{{ x|shown }}"):
        seen = BeautifulSoup(rendered(source, x=text), "html.parser").get_text()
        assert not set(seen) & set("\u202e\u2066\u200b\x00\x1b\x7f\x85\xad\ufeff\u061c")
    assert "⟨202E⟩" in template_filters.plain("\u202e")


def test_a_value_in_a_form_comes_back_as_it_was() -> None:
    text = "a\u202eb\u200b\u2066<&\"'\r\n\ufeff"
    macro = '{% macro field(x) %}<input value="{{ x|verbatim }}">{% endmacro %}{{ field(x) }}'
    soup = BeautifulSoup(rendered(macro, x=text), "html.parser")
    assert soup.input is not None and soup.input["value"] == text


def test_a_sentence_with_a_hostile_name_is_marked_and_stays_escaped() -> None:
    for one in ("{{ _('of %(name)s', name=x) }}", "{{ _('of %(name)s', name=x)|shown }}"):
        seen = BeautifulSoup(rendered(one, x="<b>\u202e"), "html.parser")
        assert seen.find("b") is None
        assert seen.get_text() == "of <b>⟨202E⟩"


def test_unknown_is_no_number() -> None:
    filters = ("", "|number", "|rate", "|bytes", "|percent", "|span", "|moment", "|ago", "|shown")
    for one in filters:
        assert rendered(f"{{{{ x{one} }}}}", x=None, now=0, zone=UTC) == "?"
        assert rendered(f"{{{{ x{one} }}}}", x=0, now=0, zone=UTC) != "?"


@pytest.mark.parametrize(
    ("source", "value", "shown"),
    [
        ("|number", 2**63 - 1, "9\u202f223\u202f372\u202f036\u202f854\u202f775\u202f807"),
        ("|rate", 0.25, "0.25/s"),
        ("|rate", 12345.6, "12\u202f346/s"),
        ("|bytes", 1536, "1.5\u00a0KB"),
        ("|span", 11_100_000, "3\u00a0h\u00a05\u00a0min"),
        ("|span", -5, "-5\u00a0ms"),
        ("|percent", 0.915, "91.5\u00a0%"),
        ("|moment_text", 1_700_000_000_123, "2023-11-15 00:13:20.123"),
        ("|moment_text", 2**62, str(2**62)),
        ("|ago", 1_000, "1\u00a0s ago"),
    ],
)
def test_values_are_shown_with_their_units(source: str, value: Any, shown: str) -> None:
    zone = timezone(timedelta(hours=2))
    html = rendered(f"{{{{ x{source} }}}}", x=value, now=2_000, zone=zone)
    assert BeautifulSoup(html, "html.parser").get_text() == shown


@pytest.mark.parametrize("zone", ["../../etc/passwd", "/etc/passwd", "x" * 100, "", "Nowhere/City"])
def test_a_zone_that_is_none_is_utc(zone: str) -> None:
    assert preferences.of_cookies({"mq-zone": zone}).tz is UTC


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", "\t1", "\r1"])
def test_no_cell_of_a_table_is_a_formula(cell: str) -> None:
    assert defused(cell) == f"'{cell}"
    assert defused(-1) == "-1" and defused(None) == "" and defused(True) == "true"
    sheet = Sheet(("=Name",), [(cell,)])
    assert b"".join(csv_chunks(sheet)).splitlines()[0] == b"'=Name"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("a;=1+1", "a;'=1+1"),
        ("\t=1", "'\t'=1"),
        ("a\t=1", "a\t'=1"),
        ("a|@x", "a|'@x"),
        ("a\n+1", "a\n'+1"),
        ("a;;-1", "a;;'-1"),
        ("\uff1d1", "'\uff1d1"),
        ("a=1;b=2", "a=1;b=2"),
        ("a, -1", "a, -1"),
    ],
)
def test_no_part_of_a_cell_that_is_split_again_is_a_formula(cell: str, text: str) -> None:
    assert defused(cell) == text


@pytest.mark.parametrize("name", ['x"; filename=evil.html', "../../x", "a\r\nb: c", "..", "名"])
def test_a_download_has_a_plain_name(name: str) -> None:
    header = download(Download(name, b"<html>")).headers
    assert header["content-type"] == "application/octet-stream"
    found = header["content-disposition"].removeprefix('attachment; filename="').removesuffix('"')
    assert found and set(found) <= set("xabcdefilnmhtv._-") | set("download")
    assert not found.startswith(".")
