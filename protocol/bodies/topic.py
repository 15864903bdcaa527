"""Topics and their contents."""

from mq.protocol.bodies.common import DataVersion
from mq.protocol.bodies.enums import TopicFilterType
from mq.protocol.bodies.schema import Body, MessageQueue, field
from mq.protocol.codes import SINCE_5


class TopicConfig(Body):
    """A topic of a broker."""

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = field(default=None, release=SINCE_5)


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker."""

    topic_config_table: dict[str, TopicConfig] = field(factory=dict)
    data_version: DataVersion = field(factory=DataVersion)


class CreateTopicListRequestBody(Body, release=SINCE_5):
    """Topics to create or change."""

    topic_config_list: list[TopicConfig] = field(factory=list)


class TopicList(Body):
    """Names of topics."""

    topic_list: set[str] = field(factory=set)
    broker_addr: str | None = None


class TopicOffset(Body):
    """The bounds of a queue and the time in ms of its last message."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(Body):
    """The bounds of each queue of a topic."""

    offset_table: dict[MessageQueue, TopicOffset] = field(factory=dict)
    topic_put_tps: float | None = field(default=None, release=SINCE_5)
