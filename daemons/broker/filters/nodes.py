"""Builds functions from the rules of sql92.lark, with the checks that Java makes while parsing.

lark calls a method of Builder for each rule as soon as it has parsed it, innermost first, so a
filter is built without recursion however deep it is nested. The depth limit keeps its evaluation
from recursing too deep.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lark import Token, Transformer, v_args

from mq.daemons.broker.filters import evaluation
from mq.daemons.broker.filters.errors import FilterSyntaxError
from mq.daemons.broker.filters.evaluation import NUMBERS, Evaluate, Kind
from mq.daemons.broker.filters.numbers import INTEGER_LIMIT, LONG_LIMIT

# Limit of nested parentheses and operators. Python calls a function per level, and its stack has
# room for 1000; Java's only limit is its stack, some thousands.
MOST_NESTED = 100
_MOST_DIGITS = 19  # digits of the largest long; int() refuses some thousands

_ORDERS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT_TESTS: dict[str, Callable[[bytes, bytes], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": bytes.startswith,
    "ENDSWITH": bytes.endswith,
}


# The expression for the native path: a word and its operands (mq.daemons.broker.filters.program).
Form = tuple[Any, ...]

# The words of literals.
_WORDS = {
    Kind.TEXT: "text",
    Kind.INTEGER: "integer",
    Kind.LONG: "long",
    Kind.DOUBLE: "double",
    Kind.BOOLEAN: "constant",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression.

    Attributes:
        kind: the type of its value.
        evaluate: the function that evaluates it.
        form: the same for the native path.
        depth: levels of functions in it.
        at: its first token that is useful in an error.
        literal: whether it is a literal and not, for example, minus a literal.
        value: of a number or literal.
        is_property: whether it is a property and nothing else.
        names: of the properties in it.
    """

    kind: Kind
    evaluate: Evaluate
    form: Form
    depth: int
    at: Token
    literal: bool = False
    value: bytes | float | bool | None = None
    is_property: bool = False
    names: frozenset[str] = frozenset()


@v_args(inline=True)
class Builder(Transformer[Token, Node]):
    """One method for each rule: gets the nodes of its parts and returns its own node."""

    def start(self, node: Node) -> Node:
        return _condition(node)

    # operands

    def string(self, token: Token) -> Node:
        return _literal(Kind.TEXT, _text(token), token)

    def integer(self, token: Token) -> Node:
        digits = token.rstrip("lL")
        number = int(digits) if len(digits) <= _MOST_DIGITS else LONG_LIMIT
        if number >= LONG_LIMIT:
            raise _error(token, f"{token} is over the greatest long, {LONG_LIMIT - 1}")
        return _literal(Kind.INTEGER if number < INTEGER_LIMIT else Kind.LONG, number, token)

    def float_number(self, token: Token) -> Node:
        number = float(token)
        if not 0.0 < number < float("inf"):  # ConstantExpression.createFloat refuses 0.0, too
            raise _error(token, f"{token} is not between the least and the greatest double")
        return _literal(Kind.DOUBLE, number, token)

    def true(self, token: Token) -> Node:
        return _literal(Kind.BOOLEAN, True, token)

    def false(self, token: Token) -> Node:
        return _literal(Kind.BOOLEAN, False, token)

    def null(self, token: Token) -> Node:
        return _literal(Kind.BOOLEAN, None, token)

    def property(self, token: Token) -> Node:
        value = evaluation.property_value(token)
        names = frozenset((str(token),))
        form = ("property", str(token))
        return Node(Kind.TEXT, value, form, 1, token, is_property=True, names=names)

    # unary

    def plus(self, node: Node) -> Node:
        return node

    def minus(self, node: Node) -> Node:
        if node.kind in NUMBERS:
            assert isinstance(node.value, int | float)
            value = -node.value
            form: Form = (_WORDS[node.kind], value)
            return Node(node.kind, evaluation.constant(value), form, 1, node.at, value=value)
        form = ("nothing", node.form)
        return _made(Kind.NOTHING, evaluation.null_of(node.evaluate), form, node)

    def negation(self, node: Node) -> Node:
        node = _condition(node)
        form = ("not", node.form)
        return _made(Kind.BOOLEAN, evaluation.negation(node.evaluate), form, node)

    # logic

    def both(self, *nodes: Node) -> Node:
        return self._logic("and", evaluation.conjunction, nodes)

    def either(self, *nodes: Node) -> Node:
        return self._logic("or", evaluation.disjunction, nodes)

    def _logic(
        self, word: str, join: Callable[[tuple[Evaluate, ...]], Evaluate], nodes: tuple[Node, ...]
    ) -> Node:
        conditions = tuple(map(_condition, nodes))
        evaluate = join(tuple(condition.evaluate for condition in conditions))
        form = (word, *(condition.form for condition in conditions))
        return _made(Kind.BOOLEAN, evaluate, form, *conditions)

    # equality

    def equal(self, left: Node, right: Node) -> Node:
        for node in (left, right):
            if node.literal and node.value is None:
                raise _error(node.at, "no value equals NULL: write IS NULL or IS NOT NULL")
        if left.literal and right.literal and left.kind is Kind.BOOLEAN is not right.kind:
            raise _error(right.at, f"{left.at} cannot be compared with {right.at}")
        if left.is_property and right.literal and right.kind is Kind.TEXT:
            assert isinstance(right.value, bytes)
            evaluate = evaluation.equal_to_text(left.evaluate, right.value)
        else:
            evaluate = evaluation.equal(left.evaluate, left.kind, right.evaluate, right.kind)
        return _made(Kind.BOOLEAN, evaluate, ("=", left.form, right.form), left, right)

    def not_equal(self, left: Node, right: Node) -> Node:
        return self.negation(self.equal(left, right))

    def is_null(self, node: Node, _: Token) -> Node:
        form = ("is null", node.form)
        return _made(Kind.BOOLEAN, evaluation.is_null(node.evaluate), form, node)

    def is_not_null(self, node: Node, null: Token) -> Node:
        return self.negation(self.is_null(node, null))

    # order

    def ordered(self, left: Node, symbol: Token, right: Node) -> Node:
        return _ordered(left, symbol, right)

    def between(self, node: Node, low: Node, high: Node) -> Node:
        _check_range(low, high)
        first, second = _ordered(node, ">=", low), _ordered(node, "<=", high)
        # evaluated once: a BETWEEN of a BETWEEN must not double the work
        if node.kind is Kind.NOTHING:
            return first
        return self.both(first, second)

    def not_between(self, node: Node, low: Node, high: Node) -> Node:
        first, second = _ordered(node, "<", low), _ordered(node, ">", high)
        return first if node.kind is Kind.NOTHING else self.either(first, second)

    # tests of text

    def one_of(self, node: Node, *strings: Token) -> Node:
        return _one_of(node, strings, wanted=True)

    def none_of(self, node: Node, *strings: Token) -> Node:
        return _one_of(node, strings, wanted=False)

    def text_test(self, node: Node, word: Token, string: Token) -> Node:
        return _text_test(node, word, string, wanted=True)

    def not_text_test(self, node: Node, word: Token, string: Token) -> Node:
        return _text_test(node, word, string, wanted=False)


def _error(token: Token, why: str) -> FilterSyntaxError:
    return FilterSyntaxError(f"line {token.line}, column {token.column}: {why}")


def _literal(kind: Kind, value: bytes | float | bool | None, token: Token) -> Node:
    form = (_WORDS[kind], value)
    return Node(kind, evaluation.constant(value), form, 1, token, literal=True, value=value)


def _text(token: Token) -> bytes:
    return token[1:-1].replace("''", "'").encode("utf-8", "surrogatepass")


def _made(kind: Kind, evaluate: Evaluate, form: Form, *parts: Node) -> Node:
    depth = 1 + max(part.depth for part in parts)
    if depth > MOST_NESTED:
        raise _error(parts[0].at, f"nested more than {MOST_NESTED} levels deep")
    names = parts[0].names.union(*(part.names for part in parts[1:]))
    return Node(kind, evaluate, form, depth, parts[0].at, names=names)


def _condition(node: Node) -> Node:
    """The node as a condition (SelectorParser.asBooleanExpression)."""
    if node.kind is Kind.BOOLEAN:
        return node
    if node.is_property:
        form = ("text is true", node.form)
        return _made(Kind.BOOLEAN, evaluation.truth_of_text(node.evaluate), form, node)
    raise _error(node.at, f"{_shown(node.at)} is not a condition: compare it with a value")


def _ordered(left: Node, symbol: str, right: Node) -> Node:
    for node in (left, right):  # ComparisonExpression.checkLessThanOperand
        if node.kind is Kind.BOOLEAN or (node.literal and node.kind is Kind.TEXT):
            raise _error(
                node.at, f"{_shown(node.at)} has no order: only numbers and properties have one"
            )
    accepts = _ORDERS[symbol]
    if left.is_property and right.kind in (Kind.INTEGER, Kind.LONG):
        assert isinstance(right.value, int)
        evaluate = evaluation.ordered_to_whole_number(
            left.evaluate, right.kind, right.value, accepts
        )
    else:
        evaluate = evaluation.ordered(left.evaluate, left.kind, right.evaluate, right.kind, accepts)
    form = (str(symbol), left.form, right.form)
    return _made(Kind.BOOLEAN, evaluate, form, left, right)


def _check_range(low: Node, high: Node) -> None:
    """Refuse a BETWEEN of two literals that no value can match (createBetween)."""
    if not (low.literal and high.literal and low.kind in NUMBERS and high.kind in NUMBERS):
        return
    assert isinstance(low.value, int | float) and isinstance(high.value, int | float)
    if high.value < low.value:
        raise _error(high.at, f"no value is between {low.at} and {high.at}: swap them")


def _one_of(node: Node, strings: tuple[Token, ...], wanted: bool) -> Node:
    if not node.is_property:
        raise _error(node.at, f"IN tests a property, not {_shown(node.at)}")
    values = frozenset(map(_text, strings))
    form = ("in", node.form, sorted(values), wanted)
    return _made(Kind.BOOLEAN, evaluation.one_of(node.evaluate, values, wanted), form, node)


def _text_test(node: Node, word: Token, string: Token, wanted: bool) -> Node:
    test = _TEXT_TESTS[word.upper()]
    part = _text(string)
    evaluate = evaluation.text_test(node.evaluate, node.kind, test, part, wanted)
    form = (word.lower(), node.form, part, wanted) if part else ("constant", False)
    return _made(Kind.BOOLEAN, evaluate, form, node)


def _shown(token: Token) -> str:
    text = repr(str(token)) if len(token) <= 40 else repr(token[:40] + "…")
    return text if token.type == "STRING" else str(token)[:40]
