"""Entries of a consume queue."""

from mq.protocol.bodies.schema import Body, field
from mq.protocol.bodies.subscription import SubscriptionData
from mq.protocol.codes import SINCE_5


class ConsumeQueueData(Body):
    """An entry, and the result of a filter for it."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body):
    """Entries of a queue and its bounds."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = field(factory=list)
    max_queue_index: int = 0
    min_queue_index: int = 0


class CheckRocksdbCqWriteResult(Body, release=SINCE_5):
    """The comparison of queues in files and in RocksDB: 0 same, 1 different, 2 in progress, 3
    error.
    """

    check_result: str | None = None
    check_status: int = 0
