"""Subscriptions, and the groups that have them."""

from mq.protocol.bodies.common import DataVersion
from mq.protocol.bodies.enums import GroupRetryPolicyType
from mq.protocol.bodies.schema import Body, MessageQueue, field
from mq.protocol.codes import ONLY_SNODE, SINCE_5

_DEFAULT_DELAYS = (
    1,
    5,
    10,
    30,
    60,
    120,
    180,
    240,
    300,
    360,
    420,
    480,
    540,
    600,
    1200,
    1800,
    3600,
    7200,
)


class SubscriptionData(Body):
    """A group's subscription to a topic; subVersion is the time of its creation in ms."""

    class_filter_mode: bool = False
    topic: str = ""
    sub_string: str = ""
    tags_set: set[str] = field(factory=set)
    code_set: set[int] = field(factory=set)
    sub_version: int = 0
    expression_type: str = "TAG"
    filter_class_source: str | None = None
    #: The current queues of the consumer: a snode pushes their messages.
    message_queue_set: set[MessageQueue] | None = field(default=None, release=ONLY_SNODE)
    #: The same in the first state of that branch: ids only, for all brokers.
    queue_id_set: set[int] | None = field(default=None, release=ONLY_SNODE)


class SimpleSubscriptionData(Body, release=SINCE_5):
    """A subscription in the configuration of a group."""

    topic: str = ""
    expression_type: str | None = None
    expression: str | None = None
    version: int = 0


class ExponentialRetryPolicy(Body, release=SINCE_5):
    """Delays that grow by a factor, in ms."""

    initial: int = 5000
    max: int = 7200000
    multiplier: int = 2


class CustomizedRetryPolicy(Body, release=SINCE_5):
    """Delays one by one, in ms."""

    next: list[int] = field(factory=lambda: [seconds * 1000 for seconds in _DEFAULT_DELAYS])


class GroupRetryPolicy(Body, release=SINCE_5):
    """The delays of messages that a group failed to consume."""

    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SubscriptionGroupConfig(Body):
    """A consumer group of a broker."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = field(default=None, release=SINCE_5)
    group_retry_policy: GroupRetryPolicy | None = field(default=None, release=SINCE_5)
    group_sys_flag: int | None = field(default=None, release=SINCE_5)
    consume_timeout_minute: int | None = field(default=None, release=SINCE_5)
    subscription_data_set: list[SimpleSubscriptionData] | None = field(
        default=None, release=SINCE_5
    )
    attributes: dict[str, str] | None = field(default=None, release=SINCE_5)


class SubscriptionGroupWrapper(Body):
    """All consumer groups of a broker."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(factory=dict)
    data_version: DataVersion = field(factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] | None = field(default=None, release=SINCE_5)


class SubscriptionGroupList(Body, release=SINCE_5):
    """Consumer groups to create or change."""

    group_config_list: list[SubscriptionGroupConfig] = field(factory=list)


class GroupForbidden(Body, release=SINCE_5):
    """Whether a group may read a topic."""

    topic: str = ""
    group: str = ""
    readable: bool | None = None


class GroupList(Body):
    """Names of groups."""

    group_list: set[str] = field(factory=set)


class QuerySubscriptionResponseBody(Body, release=SINCE_5):
    """The subscription of a group to a topic."""

    subscription_data: SubscriptionData | None = None
    group: str = ""
    topic: str = ""


class CheckClientRequestBody(Body):
    """A subscription for the broker to check."""

    client_id: str | None = None
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = field(default=None, release=SINCE_5)
