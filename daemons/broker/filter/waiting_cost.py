"""What the filters of waiting requests cost, told to the connection that they wait on.

Many requests of a client share one filter, which is in memory once: it is counted once for each
connection, for as long as a request there waits with it.
"""

from mq.daemons.broker.filter.properties import PropertyExpression
from mq.daemons.broker.filter.subscriptions import Expression
from mq.daemons.channel import Channel

# What is read of a character of SQL92, at most: a comparison takes some 1600 bytes, those of the
# native path among them, and seven characters, `a=1 OR `.
BYTES_OF_A_CHARACTER = 230

_KEPT = "filters of what waits"  # among what a connection makes us keep


def keep_filter(channel: Channel, expression: Expression) -> None:
    """A request begins to wait with this filter."""
    source = _source(expression)
    if source is None:
        return
    counts: dict[object, int] = channel.attributes.setdefault(_KEPT, {})
    counts[source] = counts.get(source, 0) + 1
    if counts[source] == 1:
        channel.keep(_KEPT, channel.kept.get(_KEPT, 0) + _size(expression))


def release_filter(channel: Channel, expression: Expression) -> None:
    """A request waits with it no more."""
    source = _source(expression)
    if source is None:
        return
    counts: dict[object, int] = channel.attributes[_KEPT]
    counts[source] -= 1
    if not counts[source]:
        del counts[source]
        channel.keep(_KEPT, channel.kept.get(_KEPT, 0) - _size(expression))


def _source(expression: Expression) -> object | None:
    """What is shared by those who have the same filter; None where it costs nothing of its own."""
    return expression.source if type(expression) is PropertyExpression else None


def _size(expression: Expression) -> int:
    assert type(expression) is PropertyExpression and expression.source is not None
    return len(expression.source.text) * BYTES_OF_A_CHARACTER
