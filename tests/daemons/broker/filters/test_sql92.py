"""SQL92 filters; tests/interop/test_filters.py compares thousands with Java's classes."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.broker.filters import sql92
from mq.daemons.broker.filters.errors import FilterSyntaxError
from mq.daemons.broker.filters.sql92 import read_filter

STORED = (
    b"UNIQ_KEY\x017F00\x02a\x0110\x02b\x01x\x02empty\x01\x02t\x01true\x02d\x012.5\x02"
    b"long\x015000000000"
)


@pytest.mark.parametrize(
    "text",
    [
        "a > 5 AND b = 'x'",
        "a>=10 and a<=10",
        "5 < a",
        "a = '10'",
        "a BETWEEN 10 AND 10",
        "a NOT BETWEEN 11 AND 20",
        "b IN ('y', 'x')",
        "b NOT IN ('y')",
        "missing IS NULL",
        "empty IS NULL",
        "a IS NOT NULL",
        "t = TRUE",
        "a > -1",
        "a > +1",
        "d > 2.4",
        "d = 2.5",
        "d = 25E-1",
        "long > 4999999999",
        "long = 5000000000L",
        "missing = 1 OR b = 'x'",
        "NOT (b = 'y')",
        "NOT b",  # text is never true
        "a > 5 -- and not\n AND b /* or */ = 'x'",
        "a > 5 -- a last line",
        "-- a first line\ra > 5--\n--",
        "b CONTAINS 'x'",
        "UNIQ_KEY startswith '7F'",
        "UNIQ_KEY NOT ENDSWITH '7F'",
        "a > d",  # text on both sides: numbers
    ],
)
def test_a_message_matches(text: str) -> None:
    assert read_filter(text).matches(STORED)


@pytest.mark.parametrize(
    "text",
    [
        "a > 10",
        "missing = 1",
        "NOT (missing = 1)",  # NULL stays NULL
        "missing NOT IN ('x')",
        "missing NOT CONTAINS 'x'",
        "b CONTAINS ''",
        "b",
        "A = '10'",  # names keep their case
        "b > 5",  # not a number: the message cannot be compared …
        "b > 5 OR a = '10'",  # … whatever the rest of the expression
        "a > 3000000000 OR long > 5",  # no int can be read from 5000000000
        "d > 2",  # nor from 2.5
        "t = TRUE AND TRUE = t",  # Java cannot compare a boolean with text on its right
        "a = 10.0 AND a = 'x'",
    ],
)
def test_a_message_does_not_match(text: str) -> None:
    assert not read_filter(text).matches(STORED)


def test_of_two_equal_names_the_last_one_with_a_value_counts() -> None:
    wanted = read_filter("a = 'two'")
    assert wanted.matches(b"a\x01one\x02a\x01two\x02a\x01\x02")
    assert not wanted.matches(b"a\x01two\x02a\x01one")
    assert not wanted.matches(b"aa\x01two\x02b\x01a\x01two")
    assert not wanted.matches(b"")


def test_two_quotes_in_a_string_are_one() -> None:
    assert read_filter("a = 'it''s'").matches(b"a\x01it's")
    assert read_filter("a = 'ünï'").matches("a\x01ünï".encode())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1, column 1: the end is unexpected; expected one of '('"),
        ("a >", "line 1, column 4: the end is unexpected; expected one of '('"),
        ("a > 5 AND\n  b == 2", "line 2, column 6: '=' is unexpected"),
        ("a = 1 b = 2", "line 1, column 7: 'b' is unexpected; expected one of '<', '<='"),
        ("a # 1", "line 1, column 3: '#' is unexpected"),
        ("a = 'x", "line 1, column 5: the string that starts here does not end"),
        ("(a = 1", "line 1, column 7: the end is unexpected; expected one of ')'"),
        ("a = 007", "line 1, column 6: '0' is unexpected"),
        ("a < 'x'", "line 1, column 5: \"'x'\" has no order"),
        ("a > TRUE", "line 1, column 5: TRUE has no order"),
        ("a = NULL", "line 1, column 5: no value equals NULL: write IS NULL"),
        ("TRUE = 5", "line 1, column 8: TRUE cannot be compared with 5"),
        ("5 IN ('5')", "line 1, column 1: IN tests a property, not 5"),
        ("a IN (5)", "line 1, column 7: '5' is unexpected; expected one of a string"),
        ("a AND 5", "line 1, column 7: 5 is not a condition"),
        ("a BETWEEN 3 AND 1", "line 1, column 17: no value is between 3 and 1"),
        ("a > 9223372036854775808", "line 1, column 5: 9223372036854775808 is over"),
        ("a > " + "9" * 5000, "line 1, column 5: 999"),
        ("a = " + "-" * 1002 + "1", "the filter has more than 500 occurrences of --"),
        ("a > 0.0", "line 1, column 5: 0.0 is not between"),
        ("a > 1e999", "line 1, column 5: 1e999 is not between"),
        ("a = AND", "line 1, column 5: 'AND' is unexpected"),
        ("a LIKE 'x%'", "line 1, column 3: 'LIKE' is unexpected"),
        ("NOT " * 101 + "a", "line 1, column 405: nested more than 100 levels deep"),
        ("a" * 16385, "the filter has 16385 characters, and 16384 are allowed"),
    ],
)
def test_an_invalid_filter_is_refused_in_one_line_with_the_position(text: str, why: str) -> None:
    for _ in range(2):  # the second time from memory
        with pytest.raises(FilterSyntaxError) as raised:
            read_filter(text)
        assert str(raised.value).startswith(why)
        assert "\n" not in str(raised.value)


def test_the_longest_and_the_deepest_filter_are_applied() -> None:
    long = " OR ".join(f"a='{number}'" for number in range(1300))
    assert len(long) > sql92.MOST_CHARACTERS * 0.85
    assert read_filter(long).matches(b"a\x011299")
    deep = "NOT " * 98 + "(a = 'x')"
    assert read_filter(deep).matches(b"a\x01x")
    assert read_filter("(" * 8000 + "a='x'" + ")" * 8000).matches(b"a\x01x")


def test_between_of_between_takes_no_longer_with_each_level() -> None:
    text = "a = 1"
    for _ in range(48):  # 2 ** 48 evaluations if each level were evaluated twice
        text = f"-({text}) BETWEEN 1 AND 2"
    assert not read_filter(text).matches(b"a\x011")


@given(st.text(alphabet="ab'()=<>-+.,01eE \t\n/*_$#\x00\u0660LINOTANDR", max_size=40), st.binary())
def test_any_text_is_a_filter_or_refused_and_any_bytes_are_a_message(text: str, raw: bytes) -> None:
    try:
        wanted = read_filter(text)
    except FilterSyntaxError:
        return
    assert wanted.matches(raw) in (True, False)


def test_lark_is_not_imported_before_the_first_filter() -> None:
    code = (
        "import sys, mq.daemons.broker.app, mq.daemons.broker.filters.sql92 as sql92\n"
        "assert 'lark' not in sys.modules\n"
        "sql92.read_filter('a = 1')\n"
        "assert 'lark' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_few_long_expressions_are_remembered() -> None:
    for number in range(40):
        text = " OR ".join(f"a{number} > {limit}" for limit in range(100))
        assert len(text) > 1000
        assert sql92.read_filter(text) is sql92.read_filter(text)
    assert len(sql92._cache.long) == 32
