"""Parsing texts like java.util.Properties; the cases follow its documentation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.properties import (
    read_properties,
    read_sections,
    rewrite_properties,
    rewrite_section,
    write_properties,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Truth = Beauty\n", {"Truth": "Beauty"}),
        ("  Truth:Beauty", {"Truth": "Beauty"}),
        ("Truth                    :Beauty\r\n", {"Truth": "Beauty"}),
        ("cheeses\n", {"cheeses": ""}),
        ("key value words", {"key": "value words"}),
        ("key==value", {"key": "=value"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("# a=1\n! b=2\n\n  \t\nc=3", {"c": "3"}),
        ("# comment \\\na=1", {"a": "1"}),
        (
            "fruits   apple, banana, \\\n     pear, \\\n  kiwi",
            {"fruits": "apple, banana, pear, kiwi"},
        ),
        ("path=c:\\\\store\\\\x", {"path": "c:\\store\\x"}),
        ("a=ends with backslash\\\\\nb=2", {"a": "ends with backslash\\", "b": "2"}),
        ("a=last line is continued\\", {"a": "last line is continued"}),
        (r"a\ b\=c=d\te\u0041\z", {"a b=c": "d\teAz"}),
        ("a=trailing blanks stay  ", {"a": "trailing blanks stay  "}),
        ("", {}),
    ],
)
def test_a_text_gives_the_same_pairs_as_in_java(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


def test_a_broken_unicode_escape_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"line 2: \\u12 is not a Unicode escape"):
        read_properties("a=1\nb=\\u12")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_written_properties_read_back_equal(properties: dict[str, str]) -> None:
    assert read_properties(write_properties(properties)) == properties


def test_rewriting_changes_the_value_and_nothing_else() -> None:
    text = "# mine\nfileReservedTime = 48\n\nbrokerName=a\\\n   b\nx=1\n"
    rewritten = rewrite_properties(text, {"brokerName": "c", "deleteWhen": "05"})
    assert rewritten == "# mine\nfileReservedTime = 48\n\nbrokerName=c\nx=1\ndeleteWhen=05\n"


def test_rewriting_an_empty_text_adds_the_changes() -> None:
    assert rewrite_properties("", {"a": "1"}) == "a=1\n"


def test_two_escapes_may_make_one_character_and_half_of_one_is_refused() -> None:
    assert read_properties("a=\\ud83d\\ude00") == {"a": "\U0001f600"}
    with pytest.raises(ValueError, match=r"line 2: .* half of a character"):
        read_properties("b=1\na=\\ude00\\ud83d")


def test_sections_are_read_apart_and_a_line_that_is_wrong_has_its_number() -> None:
    text = "a=1\n# [no]\n[one]\na=2\nlist=x,\\\n  [y]\n  [two]  \n[three]\nb=3"
    assert read_sections(text) == {
        "": {"a": "1"},
        "one": {"a": "2", "list": "x,[y]"},
        "two": {},
        "three": {"b": "3"},
    }
    with pytest.raises(ValueError, match=r"line 4: \\u12 is not a Unicode escape"):
        read_sections("a=1\n[one]\n\na=\\u12")
    with pytest.raises(ValueError, match=r"section \[one\] occurs twice"):
        read_sections("[one]\n[one]")


@given(
    sections=st.lists(st.sampled_from("pqr"), unique=True),
    value=st.text(st.characters(codec="utf-8"), max_size=9),
    at=st.sampled_from("pqrs"),
)
def test_a_section_is_written_and_nothing_else_changes(
    sections: list[str], value: str, at: str
) -> None:
    text = "a=1\n" + "".join(f"[{name}]\na={name}\n# {name}\n\n" for name in sections)
    before = read_sections(text)
    after = read_sections(rewrite_section(text, at, {"a": value, "new": "x"}))
    assert after == {**before, at: {**before.get(at, {}), "a": value, "new": "x"}}


@pytest.mark.parametrize("text", ["x=1\\", "x=1\\\n", "x=1\\\n\n", "# comment\\\n"])
def test_a_setting_added_after_a_continued_line_is_not_part_of_its_value(text: str) -> None:
    before = read_properties(text)
    assert read_properties(rewrite_properties(text, {"k": "v"})) == {**before, "k": "v"}
    several = f"[a]\n{text.rstrip()}\n\n[b]\ny=2\n"
    assert read_sections(rewrite_section(several, "a", {"k": "v"})) == {
        **{"": {}, "a": {**before, "k": "v"}, "b": {"y": "2"}}
    }
