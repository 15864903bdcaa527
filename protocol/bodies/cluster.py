"""The data of name servers: brokers, clusters and settings."""

from mq.protocol.bodies.mapping import TopicConfigAndMappingSerializeWrapper
from mq.protocol.bodies.route import BrokerData
from mq.protocol.bodies.schema import Body, field
from mq.protocol.codes import ONLY_SNODE, SINCE_5


class SnodeData(Body, release=ONLY_SNODE):
    """A snode, and its address for clients."""

    snode_name: str = ""
    address: str = ""
    cluster_name: str = ""


class SnodeClusterInfo(Body, release=ONLY_SNODE):
    """Snodes by name, and their names by cluster."""

    snode_table: dict[str, SnodeData] = field(factory=dict)
    snode_cluster: dict[str, set[str]] = field(factory=dict)


class ClusterInfo(Body):
    """Broker sets by name, and their names by cluster; the same for snodes, if there are any."""

    broker_addr_table: dict[str, BrokerData] = field(factory=dict)
    cluster_addr_table: dict[str, set[str]] = field(factory=dict)
    snode_table: dict[str, SnodeData] | None = field(default=None, release=ONLY_SNODE)
    snode_cluster: dict[str, set[str]] | None = field(default=None, release=ONLY_SNODE)


class KVTable(Body):
    """The values of a namespace of a name server; for a broker its runtime info."""

    table: dict[str, str] = field(factory=dict)


class BrokerMemberGroup(Body, release=SINCE_5):
    """The living members of a broker set."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(factory=dict)


class GetBrokerMemberGroupResponseBody(Body, release=SINCE_5):
    """The answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup | None = None


class RegisterBrokerBody(Body):
    """The topics of a registering broker, and its filter servers."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = field(
        factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] = field(factory=list)
