"""Accounts the memory of suspended requests' filters to their connection.

Many requests of a client share one filter, which is in memory once: it is counted once for each
connection, for as long as a request there is suspended with it.
"""

from mq.daemons.broker.filters.properties import Expression, PropertyExpression
from mq.daemons.channel import Channel

# Upper bound of parsed bytes per SQL92 character: a comparison takes about 1600 bytes, including
# the native path, and seven characters, `a=1 OR `.
BYTES_OF_A_CHARACTER = 230

_KEPT = "filters of what waits"  # key in `Channel.kept`


def keep_filter(channel: Channel, expression: Expression) -> None:
    """Count the filter of a request that is being suspended."""
    source = _source(expression)
    if source is None:
        return
    counts: dict[object, int] = channel.attributes.setdefault(_KEPT, {})
    counts[source] = counts.get(source, 0) + 1
    if counts[source] == 1:
        channel.keep(_KEPT, channel.kept.get(_KEPT, 0) + _size(expression))


def release_filter(channel: Channel, expression: Expression) -> None:
    """Release the filter of a request that is not suspended any more."""
    source = _source(expression)
    if source is None:
        return
    counts: dict[object, int] = channel.attributes[_KEPT]
    counts[source] -= 1
    if not counts[source]:
        del counts[source]
        channel.keep(_KEPT, channel.kept.get(_KEPT, 0) - _size(expression))


def _source(expression: Expression) -> object | None:
    """The object that requests with the same filter share; None if the filter needs no memory of
    its own.
    """
    return expression.source if type(expression) is PropertyExpression else None


def _size(expression: Expression) -> int:
    assert type(expression) is PropertyExpression and expression.source is not None
    return len(expression.source.text) * BYTES_OF_A_CHARACTER
