"""Random filters, and properties of messages for them."""

from random import Random

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
    """Writes random expressions, most of them valid filters; `text_tests` includes those of 5.x."""

    def __init__(self, chance: Random, text_tests: bool = True) -> None:
        self.random = chance
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
        """Random words."""
        choices = [*NAMES, *LITERALS, *OPERATORS, *STRINGS, "NOT", "IN", "IS", "BETWEEN", "(", ")"]
        return " ".join(self.random.choices(choices, k=self.random.randint(1, 9)))
