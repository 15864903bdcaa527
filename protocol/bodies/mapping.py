"""Static topics of 5.x: logical queues made of pieces on several brokers."""

from mq.protocol.bodies.common import DataVersion
from mq.protocol.bodies.schema import Body, field
from mq.protocol.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from mq.protocol.codes import SINCE_5


class LogicQueueMappingItem(Body, release=SINCE_5):
    """A piece of a logical queue."""

    gen: int = 0
    queue_id: int = 0
    bname: str | None = None
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


class TopicQueueMappingInfo(Body, release=SINCE_5):
    """The logical queues of a topic that a broker leads."""

    topic: str | None = None
    scope: str = "__global__"
    total_queues: int = 0
    bname: str | None = None
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = field(factory=dict)


class TopicQueueMappingDetail(TopicQueueMappingInfo, release=SINCE_5):
    """A mapping with all pieces of each queue by its id."""

    hosted_queues: dict[int, list[LogicQueueMappingItem]] = field(factory=dict)


class TopicQueueMappingOne(Body, release=SINCE_5):
    """The pieces of one logical queue."""

    topic: str | None = None
    bname: str | None = None
    global_id: int | None = None
    items: list[LogicQueueMappingItem] = field(factory=list)
    mapping_detail: TopicQueueMappingDetail | None = None


class TopicQueueMappingContext(Body, release=SINCE_5):
    """The interpretation of a request about a static topic."""

    topic: str | None = None
    global_id: int | None = None
    mapping_detail: TopicQueueMappingDetail | None = None
    mapping_item_list: list[LogicQueueMappingItem] = field(factory=list)
    leader_item: LogicQueueMappingItem | None = None
    current_item: LogicQueueMappingItem | None = None


class TopicQueueMappingSerializeWrapper(Body, release=SINCE_5):
    """All static topics of a broker."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = field(factory=dict)
    data_version: DataVersion = field(factory=DataVersion)


class TopicConfigAndQueueMapping(TopicConfig, release=SINCE_5):
    """A topic with its logical queues."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper, release=SINCE_5):
    """All topics of a broker with their logical queues, which only 5.x brokers write."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None = None
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] | None = None
    mapping_data_version: DataVersion | None = None


class TopicRemappingDetailWrapper(Body, release=SINCE_5):
    """A plan to move logical queues."""

    topic: str | None = None
    type: str | None = None
    epoch: int = 0
    broker_config_map: dict[str, TopicConfigAndQueueMapping] = field(factory=dict)
    broker_to_map_in: set[str] = field(factory=set)
    broker_to_map_out: set[str] = field(factory=set)
