"""The expression of a pull, from the request itself or from the heartbeats of its group."""

from collections.abc import Mapping

from mq.daemons.broker.clients.registry import Consumers
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filters.properties import (
    Expression,
    PropertyExpression,
    filter_of_retries,
    is_retry_topic,
)
from mq.daemons.broker.filters.sql92 import Sql92Filter
from mq.daemons.broker.filters.table import (
    SQL92,
    ConsumerFilters,
    FilterData,
    check_supported,
    is_tag_type,
    parse_failed,
    read_or_refuse,
)
from mq.daemons.broker.store import MessageStore
from mq.daemons.dispatch import Refused
from mq.protocol.codes import ResponseCode
from mq.protocol.flags import PullSysFlag
from mq.protocol.tags import TagExpression

_SUBSCRIPTION = PullSysFlag.SUBSCRIPTION
# The codes of an expression of blanks: its consumer keeps every message, but Java's broker finds
# none for it (ExpressionMessageFilter.isMatchedByConsumeQueue). Tags codes have 32 bits, so this
# one never occurs.
_NO_CODES = frozenset((1 << 62,))
# Limit of characters of the remembered expressions, which take about twenty times as many bytes; at
# the limit all are dropped and parsed again.
_MOST_REMEMBERED = 1024 * 1024
# Longer expressions are parsed each time, because peers can make up any number of them.
_LONGEST_REMEMBERED = 1000  # characters
# Limit of an expression over tags: about ten thousand tags.
MOST_CHARACTERS = 64 * 1024


class Subscriptions:
    """Finds the expression of each pull."""

    def __init__(
        self,
        settings: BrokerSettings,
        consumers: Consumers,
        filters: ConsumerFilters,
        store: MessageStore,
    ) -> None:
        self._settings = settings
        self._consumers = consumers
        self._filters = filters
        self._store = store
        self._expressions: dict[str, TagExpression] = {}
        self._remembered = 0  # characters
        self._all = TagExpression.parse("*")

    def expression(
        self, fields: Mapping[str, str], sys_flag: int, group: str, topic: str
    ) -> Expression:
        """The expression of a pull.

        Raises:
            Refused: the subscription is unknown, outdated or invalid.
            NotReady: the expression must be parsed first.
        """
        if sys_flag & _SUBSCRIPTION:
            text, kind = fields.get("subscription"), fields.get("expressionType")
            if not is_tag_type(kind):
                check_supported(self._settings.broker, kind)
                return self._by(read_or_refuse(self._filters.reader, text))
        else:
            subscription = self._consumers.subscription(group, topic)
            if subscription is None:
                raise Refused(
                    ResponseCode.SUBSCRIPTION_NOT_EXIST,
                    f"the consumer's subscription not exist: group {group} has sent no heartbeat "
                    f"that names topic {topic}",
                )
            version = int(fields["subVersion"])
            if subscription.sub_version < version:
                raise Refused(
                    ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
                )
            if subscription.class_filter_mode:  # a filter server filters, not the broker
                return self._all
            text, kind = subscription.sub_string, subscription.expression_type
            if not is_tag_type(kind):
                return self._registered(group, topic, kind, version)
        by_tags = self._by_tags(text)
        if self._settings.broker.filter_support_retry and is_retry_topic(topic):
            matches = filter_of_retries(self._filters, group)
            return PropertyExpression(self._store, matches, tags=by_tags)
        return by_tags

    def _by_tags(self, text: str | None) -> TagExpression:
        if not text or text == "*":
            return self._all
        expression = self._expressions.get(text)
        if expression is None:
            try:
                if len(text) > MOST_CHARACTERS:
                    raise ValueError(
                        f"the tag expression has {len(text)} characters, and {MOST_CHARACTERS} are "
                        "allowed"
                    )
                expression = TagExpression.parse(text)
            except ValueError as error:
                code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
                raise Refused(code, parse_failed(error)) from None
            if not expression.tags:
                expression.codes = _NO_CODES
            if len(text) <= _LONGEST_REMEMBERED:
                self._remembered += len(text)
                if self._remembered > _MOST_REMEMBERED:
                    self._expressions.clear()
                    self._remembered = len(text)
                self._expressions[text] = expression
        return expression

    def _registered(self, group: str, topic: str, kind: str, version: int) -> PropertyExpression:
        """The filter from the heartbeats of the group (PullMessageProcessor)."""
        data = self._filters.get(topic, group)
        if data is not None and data.expression_type == SQL92:
            self._filters.reader.need([data.expression] if data.is_unread else [])
        if data is None or (wanted := data.filter) is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if data.client_version < version:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        check_supported(self._settings.broker, kind)
        return self._by(wanted, data)

    def _by(self, wanted: Sql92Filter, data: FilterData | None = None) -> PropertyExpression:
        return PropertyExpression(
            self._store,
            wanted.matches,
            memory=wanted.memory,
            data=data,
            source=wanted,
        )
