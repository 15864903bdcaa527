"""SQL92 filters give what the filter classes of the Java broker give."""

import random
from pathlib import Path

import pytest

from mq.daemons.broker.filter.bloom import BloomFilter
from mq.daemons.broker.filter.errors import FilterSyntaxError
from mq.daemons.broker.filter.sql92 import read_filter
from tests.interop import peers

pytestmark = pytest.mark.java

NAMES = ["a", "b", "_c$1", "TAGS"]
VALUES = [
    *"0 -0 5 +5 05 -5 5.0 5. .5 5e0 5L 5d 5F 1_0 + - +-5 -0.0 0.0 1e400 -1e400 1e-400".split(),
    *"2147483647 2147483648 -2147483648 -2147483649 9007199254740993".split(),
    *"9223372036854775807 9223372036854775808 -9223372036854775808".split(),
    *"NaN nan Infinity -Infinity inf 0x1p3 0x1.8P1f 0x.8p0 0x10".split(),
    *"true TRUE True false null x X it's xyz yz xy ünï".split(),
    *["", " 5", "5 ", "a\x01b", "5\u0665", "\u0665", "\uff15", "\U0001d7d3"],
]
LITERALS = [
    *"0 5 5l 5L 2147483647 2147483648 9223372036854775807 9223372036854775808".split(),
    *"5.0 5. .5 5e0 1e400 0.0 1E-3 9007199254740993 9007199254740992.".split(),
    *"'x' '5' 'it''s' '' 'true' 'ünï' '5.0' TRUE false NULL".split(),
]
STRINGS = ["'x'", "'5'", "''", "'it''s'", "'xyz'", "'y'", "'ünï'", "'yz'"]
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "and", "OR", "AND"]


class Writer:
    """Writes expressions by chance, most of them filters; `text_tests` has it use those of 5.x."""

    def __init__(self, seed: int, text_tests: bool) -> None:
        self.random = random.Random(seed)
        self.text_tests = text_tests

    def operand(self, depth: int) -> str:
        draw = self.random.random()
        if depth > 0 and draw < 0.15:
            return f"({self.condition(depth - 1)})"
        if draw < 0.25:
            return self.random.choice("+-") + " " + self.operand(depth)
        if draw < 0.6:
            return self.random.choice(LITERALS)
        return self.random.choice(NAMES)

    def test(self, depth: int) -> str:
        left = self.operand(depth) if self.random.random() < 0.4 else self.random.choice(NAMES)
        draw = self.random.random()
        negated = self.random.choice(["", "NOT "])
        if draw < 0.5:
            return f"{left} {self.random.choice(OPERATORS[:6])} {self.operand(depth)}"
        if draw < 0.6:
            return f"{left} is {negated}null"
        if draw < 0.75:
            return f"{left} {negated}BETWEEN {self.operand(0)} AND {self.operand(0)}"
        if draw < 0.9 or not self.text_tests:
            members = self.random.choices(STRINGS, k=self.random.randint(1, 6))
            return f"{left} {negated}in ({','.join(members)})"
        word = self.random.choice(["CONTAINS", "startswith", "EndsWith"])
        return f"{left} {negated}{word} {self.random.choice(STRINGS)}"

    def condition(self, depth: int) -> str:
        draw = self.random.random()
        if depth > 0 and draw < 0.35:
            joint = self.random.choice(["AND", "OR"])
            return f"{self.condition(depth - 1)} {joint} {self.condition(depth - 1)}"
        if depth > 0 and draw < 0.5:
            return f"NOT ({self.condition(depth - 1)})"
        return self.operand(depth) if draw < 0.55 else self.test(depth)

    def properties(self) -> str:
        pairs = [
            f"{self.random.choice(NAMES)}\x01{self.random.choice(VALUES)}"
            for _ in range(self.random.randint(0, 5))
        ]
        return "\x02".join(pairs) + self.random.choice(["", "\x02"])

    def words(self) -> str:
        """Words without a rule."""
        choices = [*NAMES, *LITERALS, *OPERATORS, *STRINGS, "NOT", "IN", "IS", "BETWEEN", "(", ")"]
        return " ".join(self.random.choices(choices, k=self.random.randint(1, 9)))


def java(release: str, tmp_path: Path, lines: list[str]) -> list[str]:
    cases = tmp_path / "cases"
    cases.write_text("\n".join(lines))
    ran = peers.run_server_java(release, "Filters.java", str(cases))
    assert ran.returncode == 0, ran.stderr
    answers = ran.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


def ours(expression: str, properties: str) -> str:
    """What Filters.java would print; what is not true is asked again, negated."""
    raw = properties.encode()
    try:
        condition = read_filter(expression)
    except FilterSyntaxError:
        return "refused"
    if condition.matches(raw):
        return "true"
    return "false" if read_filter(f"NOT ({expression})").matches(raw) else "null or failed"


@pytest.mark.parametrize("release", peers.SERVER_RELEASES)
def test_thousands_of_filters_give_what_java_gives(release: str, tmp_path: Path) -> None:
    writer = Writer(20240607, text_tests=release != "4.9.7")
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
    # All outcomes are in the sample, not only refusals.
    assert min(outcomes[word] for word in ("true", "false", "null", "failed", "refused")) > 200


def test_nothing_is_a_filter_here_that_java_refuses(tmp_path: Path) -> None:
    """The other way round Java takes more: it reads a filter and ignores what follows it."""
    writer = Writer(7, text_tests=False)
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
