"""The inner state of a consumer."""

from mq.protocol.bodies.enums import CMResult
from mq.protocol.bodies.schema import Body, MessageQueue, field
from mq.protocol.bodies.subscription import SubscriptionData
from mq.protocol.codes import SINCE_5


class ConsumeStatus(Body):
    """The consumption of a topic by a consumer: times in ms, rates per second, failures in the last
    hour.
    """

    pull_rt: float = field(default=0.0, wire="pullRT")
    pull_tps: float = field(default=0.0, wire="pullTPS")
    consume_rt: float = field(default=0.0, wire="consumeRT")
    consume_ok_tps: float = field(default=0.0, wire="consumeOKTPS")
    consume_failed_tps: float = field(default=0.0, wire="consumeFailedTPS")
    consume_failed_msgs: int = 0


class ProcessQueueInfo(Body):
    """A consumer's state of a queue; times in ms."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = field(default=0, wire="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopProcessQueueInfo(Body, release=SINCE_5):
    """A consumer's state of a queue that it pops from."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


class ConsumerRunningInfo(Body):
    """All that a consumer reports about itself."""

    properties: dict[str, str] = field(factory=dict)
    subscription_set: list[SubscriptionData] = field(factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(factory=dict)
    status_table: dict[str, ConsumeStatus] = field(factory=dict)
    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] | None = field(
        default=None, release=SINCE_5
    )
    user_consumer_info: dict[str, str] | None = field(default=None, release=SINCE_5)


class ConsumeMessageDirectlyResult(Body):
    """The result of a message that was consumed on demand."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0
