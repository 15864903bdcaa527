"""Subscriptions of a group: expressions by topic, in the formats of heartbeats and pulls."""

from collections.abc import Mapping

from mq.client.machine import clock
from mq.client.namespace import with_namespace
from mq.client.pull.filter_classes import ClassFilter
from mq.protocol.bodies import SubscriptionData
from mq.protocol.names import check_topic, retry_topic
from mq.protocol.tags import TagExpression

TAG = "TAG"
SQL92 = "SQL92"
_EVERYTHING = SubscriptionData(sub_string="*", expression_type=TAG)


class Sql92(str):
    """A SQL92 expression, for use next to tag expressions.

    Consumer(namesrv, "billing", {"Orders": Sql92("amount > 100"), "Refunds": "*"})
    """

    __slots__ = ()


class Subscriptions:
    """The topics of a group, including its retry topic unless `retries` is False."""

    def __init__(
        self,
        group: str,
        expressions: Mapping[str, str],
        expression_type: str = TAG,
        *,
        namespace: str | None = None,
        retries: bool = True,
    ) -> None:
        """`expressions` by topic: "*", tags as "a || b", SQL92 with that `expression_type`, or a
        ClassFilter.

        Raises IllegalName for a topic, ValueError for an expression that cannot be parsed.
        """
        self.version = int(clock.time() * 1000)
        self.data: dict[str, SubscriptionData] = {}
        self.filters: dict[str, ClassFilter] = {}  # by topic
        self._tags: dict[str, TagExpression | None] = {}
        for name, expression in expressions.items():
            kind = SQL92 if isinstance(expression, Sql92) else expression_type
            topic = check_topic(with_namespace(namespace, name))
            if isinstance(expression, ClassFilter):
                self._add_class(topic, expression)
            else:
                self._add(topic, str(expression), kind)
        self.chosen = frozenset(self.data)  # the topics without the retry topic
        if retries:
            self._add(retry_topic(group), "*", TAG)

    def _add(self, topic: str, expression: str, expression_type: str) -> None:
        tags = TagExpression.parse(expression) if expression_type == TAG else None
        self._tags[topic] = tags
        self.data[topic] = SubscriptionData(
            topic=topic,
            sub_string=expression,
            tags_set=set(tags.tags) if tags else set(),
            code_set=set(tags.codes) if tags else set(),
            sub_version=self.version,
            expression_type=expression_type,
        )

    def _add_class(self, topic: str, chosen: ClassFilter) -> None:
        """Add a subscription by a class, encoded as in Java: first "*", then the name of the class.
        The source is not part of it.
        """
        self.filters[topic] = chosen
        self._tags[topic] = None
        self.data[topic] = SubscriptionData(
            topic=topic,
            sub_string=str(chosen),
            sub_version=self.version,
            expression_type=TAG,
            class_filter_mode=True,
        )

    def of(self, topic: str) -> SubscriptionData:
        """Return the subscription of a topic; everything for a topic that is only assigned."""
        data = self.data.get(topic)
        return _EVERYTHING if data is None else data

    def tags(self, topic: str) -> TagExpression | None:
        """Return the expression to check the tags of pulled messages with; None if the broker does
        all filtering.
        """
        return self._tags.get(topic)
