"""The building blocks of filters: functions from the properties of a message to a value.

The properties are passed as stored, after a separator: `b"\\x02" + stored`. Only the properties
that a filter names are searched in them, and nothing else is decoded. A value is

    text      bytes, in UTF-8: a property or a literal
    numbers   int or float: literals only
    booleans  bool
    NULL      None

The type of an operand, unless NULL, is known when the filter is built (`Kind`), because properties
are text and only comparisons convert text to numbers. So each comparison is built for its two
kinds. Sources: the classes of org.apache.rocketmq.filter.expression in 4.9.8.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from mq.daemons.broker.filters.errors import NotComparableError
from mq.daemons.broker.filters.numbers import double_value, integer_value, long_value

Evaluate = Callable[[bytes], Any]

_SEPARATOR = b"\x02"


class Kind(Enum):
    """The type of an operand in Java, unless it is NULL."""

    TEXT = auto()  # String
    INTEGER = auto()  # Integer
    LONG = auto()  # Long
    DOUBLE = auto()  # Double
    BOOLEAN = auto()  # Boolean
    NOTHING = auto()  # always NULL


NUMBERS = {Kind.INTEGER, Kind.LONG, Kind.DOUBLE}
_VALUE_OF: dict[Kind, Callable[[bytes], Any]] = {
    Kind.INTEGER: integer_value,
    Kind.LONG: long_value,
    Kind.DOUBLE: double_value,
}

# operands ---------------------------------------------------------------------------------------


def property_value(name: str) -> Evaluate:
    """The text of a property; the last of equal names counts, and empty values are ignored."""
    key = _SEPARATOR + name.encode() + b"\x01"
    size = len(key)

    def evaluate(raw: bytes) -> bytes | None:
        at = raw.rfind(key)
        while at >= 0:
            end = raw.find(_SEPARATOR, at + size)
            value = raw[at + size : end] if end >= 0 else raw[at + size :]
            if value:
                return value
            at = raw.rfind(key, 0, at)
        return None

    return evaluate


def constant(value: object) -> Evaluate:
    return lambda _: value


def null_of(operand: Evaluate) -> Evaluate:
    """Always NULL, but the operand is evaluated, because that may raise an error."""

    def evaluate(raw: bytes) -> None:
        operand(raw)

    return evaluate


# logic ------------------------------------------------------------------------------------------


def conjunction(operands: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(raw: bytes) -> bool | None:
        result: bool | None = True
        for operand in operands:
            value = operand(raw)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return evaluate


def disjunction(operands: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(raw: bytes) -> bool | None:
        result: bool | None = False
        for operand in operands:
            value = operand(raw)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return evaluate


def negation(operand: Evaluate) -> Evaluate:
    def evaluate(raw: bytes) -> bool | None:
        value = operand(raw)
        return None if value is None else not value

    return evaluate


def truth_of_text(operand: Evaluate) -> Evaluate:
    """A property used as a condition: text is never true (createBooleanCast)."""
    return lambda raw: None if operand(raw) is None else False


# comparisons ------------------------------------------------------------------------------------


def is_null(operand: Evaluate) -> Evaluate:
    return lambda raw: operand(raw) is None


def equal(left: Evaluate, left_kind: Kind, right: Evaluate, right_kind: Kind) -> Evaluate:
    """Left = right. NULL on the left alone gives NULL, on the right alone FALSE, on both TRUE."""
    same = _equality(left_kind, right_kind)

    def evaluate(raw: bytes) -> bool | None:
        first = left(raw)
        second = right(raw)
        if first is None:
            return True if second is None else None
        return False if second is None else same(first, second)

    return evaluate


def equal_to_text(left: Evaluate, value: bytes) -> Evaluate:
    """Property = 'literal', the most frequent comparison."""

    def evaluate(raw: bytes) -> bool | None:
        found = left(raw)
        return None if found is None else found == value

    return evaluate


def _equality(left: Kind, right: Kind) -> Callable[[Any, Any], bool]:
    """ComparisonExpression.__compare(left, right) == 0 for values of these kinds."""
    if left is right:
        return _same_double if left is Kind.DOUBLE else lambda first, second: first == second
    if left is Kind.TEXT and right in NUMBERS:
        read = _VALUE_OF[right]
        return lambda first, second: _same(read(first), second)
    if right is Kind.TEXT and left in NUMBERS:
        read = _VALUE_OF[left]
        return lambda first, second: _same(first, read(second))
    if left is Kind.TEXT and right is Kind.BOOLEAN:
        return lambda first, second: (first.lower() == b"true") is second
    if left is Kind.BOOLEAN and right is Kind.TEXT:
        return _not_comparable  # a ClassCastException in Java
    if left in NUMBERS and right in NUMBERS:
        if Kind.DOUBLE in (left, right):
            return lambda first, second: _same_double(float(first), float(second))
        return lambda first, second: first == second
    return lambda first, second: False


def _same(first: float, second: float) -> bool:
    return _same_double(first, second) if isinstance(first, float) else first == second


def _same_double(first: float, second: float) -> bool:
    return _compare_doubles(first, second) == 0


def _not_comparable(first: object, second: object) -> bool:
    raise NotComparableError


def ordered(
    left: Evaluate,
    left_kind: Kind,
    right: Evaluate,
    right_kind: Kind,
    accepts: Callable[[int, int], bool],
) -> Evaluate:
    """Left < right and similar; `accepts` is a function of `operator`, called with order and 0."""
    order = _order(left_kind, right_kind)

    def evaluate(raw: bytes) -> bool | None:
        first = left(raw)
        if first is None:
            return None
        second = right(raw)
        return None if second is None else accepts(order(first, second), 0)

    return evaluate


def ordered_to_whole_number(
    left: Evaluate, kind: Kind, number: int, accepts: Callable[[int, int], bool]
) -> Evaluate:
    """Property < 5 and similar, the most frequent comparison after equality."""
    read = _VALUE_OF[kind]

    def evaluate(raw: bytes) -> bool | None:
        found = left(raw)
        return None if found is None else accepts(read(found), number)

    return evaluate


def _order(left: Kind, right: Kind) -> Callable[[Any, Any], int]:
    if left is right is Kind.TEXT:  # Java tries numbers, whatever the text is
        return lambda first, second: _compare_doubles(double_value(first), double_value(second))
    if left is Kind.TEXT and right in NUMBERS:
        read = _VALUE_OF[right]
        return lambda first, second: _compare(read(first), second)
    if right is Kind.TEXT and left in NUMBERS:
        read = _VALUE_OF[left]
        return lambda first, second: _compare(first, read(second))
    if Kind.DOUBLE in (left, right):
        return lambda first, second: _compare_doubles(float(first), float(second))
    return _compare


def _compare(first: float, second: float) -> int:
    if isinstance(first, float):
        return _compare_doubles(first, second)
    return (first > second) - (first < second)


def _compare_doubles(first: float, second: float) -> int:
    """Double.compareTo: NaN is above all numbers and equal to itself, -0.0 is below 0.0."""
    if first < second:
        return -1
    if first > second:
        return 1
    return _place(first) - _place(second)


def _place(value: float) -> int:
    if value != value:
        return 2
    return 0 if value == 0 and str(value)[0] == "-" else 1


def one_of(left: Evaluate, values: frozenset[bytes], wanted: bool) -> Evaluate:
    def evaluate(raw: bytes) -> bool | None:
        found = left(raw)
        return None if found is None else (found in values) is wanted

    return evaluate


def text_test(
    left: Evaluate, kind: Kind, test: Callable[[bytes, bytes], bool], part: bytes, wanted: bool
) -> Evaluate:
    """CONTAINS, STARTSWITH and ENDSWITH: FALSE, negated or not, for NULL and for values that are
    not text.
    """
    if not part:
        return constant(False)
    if kind is not Kind.TEXT:

        def no_text(raw: bytes) -> bool:
            left(raw)
            return False

        return no_text

    def evaluate(raw: bytes) -> bool:
        found = left(raw)
        return found is not None and test(found, part) is wanted

    return evaluate
