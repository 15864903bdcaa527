"""Routes: the brokers and queues of a topic."""

from mq.protocol.bodies.mapping import TopicQueueMappingInfo
from mq.protocol.bodies.schema import Body, field
from mq.protocol.codes import SINCE_5

# Queues of a topic: at one broker, and in a whole route. Java has no limits; a client that creates
# an object for each of some millions of queues blocks for seconds.
MAX_QUEUES = 65536
MAX_ROUTE_QUEUES = 2 * MAX_QUEUES


def parse_order_conf(text: str) -> list[tuple[str, int]]:
    """Parse broker names and queue counts of an order configuration, `broker:count;broker:count`.

    Parts of another form are ignored. Raises ValueError for a count above the limits.
    """
    parts = []
    for part in text.split(";"):
        name, _, count = part.partition(":")
        if name and count.isascii() and count.isdigit():
            if len(count) > 9 or int(count) > MAX_QUEUES:
                raise ValueError(
                    f"{part[:100]}: a topic has at most {MAX_QUEUES} queues at a broker"
                )
            parts.append((name, int(count)))
    if sum(count for _, count in parts) > MAX_ROUTE_QUEUES:
        raise ValueError(f"{text[:100]}: a topic has at most {MAX_ROUTE_QUEUES} queues")
    return parts


class QueueData(Body):
    """The queues of a topic on one broker set."""

    broker_name: str = ""
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


class BrokerData(Body):
    """A broker set: the addresses of its members by broker id, 0 for the master."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(factory=dict)
    zone_name: str | None = field(default=None, release=SINCE_5)
    enable_acting_master: bool | None = field(default=None, release=SINCE_5)


class TopicRouteData(Body):
    """The route of a topic, as a name server returns it."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(factory=list)
    broker_datas: list[BrokerData] = field(factory=list)
    filter_server_table: dict[str, list[str]] = field(factory=dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = field(
        default=None, release=SINCE_5
    )
