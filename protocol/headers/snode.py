"""Snodes: stateless proxies, which only the snode branch of 2019 has."""

from mq.protocol.codes import ONLY_SNODE, SnodeCode
from mq.protocol.headers.schema import Header, Int, Long


class RegisterSnodeRequestHeader(Header, request=SnodeCode.REGISTER_SNODE, release=ONLY_SNODE):
    """Registers a snode, with its address for clients."""

    snode_name: str
    snode_addr: str
    cluster_name: str


class PushMessageHeader(Header, request=SnodeCode.PUSH_MESSAGE, release=ONLY_SNODE):
    """A message that an enode has just stored, for a push consumer; one-way."""

    queue_offset: Long
    message_id: str | None = None
    queue_id: Int
    topic: str
    consumer_group: str | None = None
    enode_name: str | None = None


class GetSnodeInfoRequestHeader(Header, request=SnodeCode.GET_SNODE_INFO, release=ONLY_SNODE):
    """Get the snodes of a cluster."""

    snode_cluster_name: str


class CreateRetryTopicRequestHeader(
    Header, request=SnodeCode.CREATE_RETRY_TOPIC, release=ONLY_SNODE
):
    """Create the retry topic of a group."""

    group_name: str
    enode_name: str | None = None
