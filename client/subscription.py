"""What a group subscribes to: expressions by topic, in the forms that brokers and pulls want."""

import time
from collections.abc import Mapping

from mq.protocol.bodies import SubscriptionData
from mq.protocol.names import check_topic, retry_topic
from mq.protocol.tags import TagExpression

TAG = "TAG"
SQL92 = "SQL92"


class Subscriptions:
    """The topics of a group, its retry topic among them."""

    def __init__(
        self, group: str, expressions: Mapping[str, str], expression_type: str = TAG
    ) -> None:
        """`expressions` by topic: "*", tags as "a || b", or SQL92 with that `expression_type`.

        Raises IllegalName for a topic, ValueError for an expression that cannot be read.
        """
        self.version = int(time.time() * 1000)
        self.data: dict[str, SubscriptionData] = {}
        self._tags: dict[str, TagExpression | None] = {}
        for topic, expression in expressions.items():
            self._add(check_topic(topic), expression, expression_type)
        self.chosen = frozenset(expressions)  # the topics without the retry topic
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

    def tags(self, topic: str) -> TagExpression | None:
        """What to compare the tags of pulled messages with; None where a broker has done it all."""
        return self._tags[topic]
