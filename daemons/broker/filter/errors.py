"""What goes wrong with a filter: when it is read, and when it is applied to a message."""


class FilterSyntaxError(ValueError):
    """An expression is not a filter; the text says in one line where and why."""


class NotComparableError(Exception):
    """An operand has a value that its operator cannot compare: the message does not match.

    Java throws a RuntimeException there, which ends the evaluation as a whole: no other operand of
    an OR is asked any more (ExpressionMessageFilter.isMatchedByCommitLog).
    """
