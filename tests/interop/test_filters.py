"""SQL92 filters give the results of the Java broker's filter classes."""

import random
from pathlib import Path

import pytest

from mq.daemons.broker.filters.bloom import BloomFilter
from mq.daemons.broker.filters.errors import FilterSyntaxError
from mq.daemons.broker.filters.sql92 import read_filter
from tests.daemons.broker.filters.expressions import Writer
from tests.interop import peers

pytestmark = pytest.mark.java


def java(release: str, tmp_path: Path, lines: list[str]) -> list[str]:
    cases = tmp_path / "cases"
    cases.write_text("\n".join(lines))
    ran = peers.run_server_java(release, "Filters.java", str(cases))
    assert ran.returncode == 0, ran.stderr
    answers = ran.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


def ours(expression: str, properties: str) -> str:
    """Return the output of Filters.java; an expression that is not true is evaluated again,
    negated.
    """
    raw = properties.encode()
    try:
        condition = read_filter(expression)
    except FilterSyntaxError:
        return "refused"
    if condition.matches(raw):
        return "true"
    return "false" if read_filter(f"NOT ({expression})").matches(raw) else "null or failed"


@pytest.mark.parametrize("release", ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.long)])
def test_thousands_of_filters_give_the_results_of_java(release: str, tmp_path: Path) -> None:
    writer = Writer(random.Random(20240607), text_tests=release != "4.9.7")
    cases = [(writer.condition(3), writer.properties()) for _ in range(12_000)]
    lines = [f"{e.encode().hex()} {p.encode().hex()}" for e, p in cases]
    outcomes: dict[str, int] = {}
    differences = []
    for (expression, properties), theirs in zip(cases, java(release, tmp_path, lines), strict=True):
        outcomes[theirs] = outcomes.get(theirs, 0) + 1
        expected = "null or failed" if theirs in ("null", "failed") else theirs
        if ours(expression, properties) != expected:
            differences.append((expression, properties, theirs))
    assert not differences, differences[:20]
    # The sample has all outcomes, not only refusals.
    assert min(outcomes[word] for word in ("true", "false", "null", "failed", "refused")) > 200


def test_no_expression_that_java_refuses_is_accepted(tmp_path: Path) -> None:
    """The reverse does not hold: Java reads a filter and ignores the text after it."""
    writer = Writer(random.Random(7), text_tests=False)
    expressions = [writer.words() for _ in range(6_000)]
    properties = [writer.properties() for _ in expressions]
    lines = [
        f"{e.encode().hex()} {p.encode().hex()}"
        for e, p in zip(expressions, properties, strict=True)
    ]
    accepted = 0
    for e, p, theirs in zip(expressions, properties, java("4.9.7", tmp_path, lines), strict=True):
        mine = ours(e, p)
        if mine != "refused":
            accepted += 1
            assert mine == ("null or failed" if theirs in ("null", "failed") else theirs), (e, p)
    assert accepted > 100


COMMENTS = (
    *("b = 'x' -- c", "b = 'x' --", "b = 'x'--c\n AND a = 'y'", "b = 'x' -- c\r\n-- d"),
    *("-- c\rb = 'x'", "b = '--x'", "b-- c\n='x'", "b = 'x' -- é\u2028 AND b = 'y'"),
    *("a > --5", "a > --5\n 1", "a > --5\n", "a > - -5", "(b = 'x' -- c", "--\n", "--"),
    *("/* ' */b/**/=/***/'x'", "b = 'x' /*/ */", "b = 'x' /*/", "b = 'x' /* c", "b = '/*x*/'"),
    *("b IS/**/NOT/**/NULL", "b = 'x' /* /* */ AND a = 'y'", "b = 'x' # cb = 'x' /* */ */"),
)


@pytest.mark.parametrize("release", peers.SERVER_RELEASES)
def test_comments_are_read_as_by_java(release: str, tmp_path: Path) -> None:
    properties = "a\x0110\x02b\x01x\x02"
    lines = [f"{text.encode().hex()} {properties.encode().hex()}" for text in COMMENTS]
    theirs = java(release, tmp_path, lines)
    found = [ours(text, properties) for text in COMMENTS]
    assert dict(zip(COMMENTS, found, strict=True)) == dict(zip(COMMENTS, theirs, strict=True))
    assert {"true", "false", "refused"} == set(found)


def test_the_bits_of_a_group_are_those_of_java(tmp_path: Path) -> None:
    draw = random.Random(5)
    cases = [
        (draw.randint(1, 49), draw.randint(1, 200), f"group{'é' * (i % 7)}-{i}#topic{'x' * i}")
        for i in range(400)
    ] + [(20, 32, "g#t"), (20, 32, "")]
    lines = [f"bloom {f} {n} {text.encode().hex()}" for f, n, text in cases]
    for (rate, number, text), theirs in zip(cases, java("4.9.7", tmp_path, lines), strict=True):
        bloom = BloomFilter(rate, number)
        assert f"{bloom.bits} {list(bloom.positions(text))}" == theirs, (rate, number, text)
