"""Checks of every read of messages: the broker, the topic and the group.

The callers choose the order of the checks, which follows Java's processors.
"""

from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.clients.registry import GroupTable
from mq.daemons.broker.topics.topic_table import Topics, no_such_topic
from mq.daemons.dispatch import Refused
from mq.protocol import names
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from mq.protocol.codes import ResponseCode
from mq.protocol.flags import Permission


def check_broker(config: BrokerConfig, read: str) -> None:
    """Raises Refused unless the broker may be read from. `read` names the operation."""
    if not config.broker_permission & Permission.READ:
        raise Refused(
            ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] {read} is forbidden"
        )


def readable_topic(topics: Topics, name: str, read: str) -> TopicConfig:
    """Return the topic. Raises Refused if it does not exist, or clients may not read from it."""
    found = topics.get(name)
    internal = names.is_internal_topic(name)
    if found is None and not internal:
        raise no_such_topic(name)
    if found is None or internal or not found.perm & Permission.READ:
        raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{name}] {read} is forbidden")
    return found


def consuming_group(groups: GroupTable, name: str) -> SubscriptionGroupConfig:
    """Return the group; creates it if it is missing and that is allowed. Raises Refused unless it
    may consume.
    """
    found = groups.find(name)
    if found is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist"
        )
    if not found.consume_enable:
        raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
    return found
