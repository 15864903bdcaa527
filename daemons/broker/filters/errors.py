"""Errors of filters: when an expression is parsed, and when it is applied to a message."""


class FilterSyntaxError(ValueError):
    """An expression is not a valid filter; the text says in one line where and why."""


class NotComparableError(Exception):
    """An operand has a value that its operator cannot compare: the message does not match.

    Java throws a RuntimeException there, which ends the whole evaluation: no other operand of an OR
    is evaluated (ExpressionMessageFilter.isMatchedByCommitLog).
    """
