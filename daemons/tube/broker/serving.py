"""Shared by the handlers of a broker's requests."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from mq.daemons.tube.broker.access import Access, RequestError
from mq.daemons.tube.broker.consumers import Consumer, Consumers
from mq.daemons.tube.broker.offsets import Offsets
from mq.daemons.tube.broker.status import ServiceStatus
from mq.daemons.tube.broker.store.topic_store import TopicStore
from mq.daemons.tube.broker.stores import Stores
from mq.daemons.tube.broker.topics import STATUS_OK, Topic, Topics
from mq.protocol.tube import names
from mq.protocol.tube.codes import Code
from mq.protocol.tube.errors import IllegalName
from mq.protocol.tube.flow_control import FlowControl


@dataclass
class Serving:
    """The parts of a broker for request handlers."""

    broker_id: int
    host: str
    topics: Topics
    stores: Stores
    offsets: Offsets
    consumers: Consumers
    access: Access
    reads: ServiceStatus
    writes: ServiceStatus
    transfer_size: int
    index_count: int
    lowers_offsets: bool
    rules: FlowControl = field(default_factory=FlowControl)  # of all groups
    rules_id: int = -2
    query_priority: int = -2
    is_started: bool = False

    def drop(self, consumer: Consumer) -> None:
        """Remove a consumer; its messages without a commit are read again."""
        self.consumers.remove(consumer)
        self.offsets.commit(consumer.group, (consumer.topic, consumer.partition), consumed=False)

    def need_topic(self, name: str) -> Topic:
        """Return a topic of the master's settings. Raises Denied."""
        topic = self.topics.get(name)
        if topic is None and name != (stripped := name.strip()):
            topic = self.topics.get(stripped)
        if topic is None:
            if name[:1] != "_":
                checked(names.check_topic, "topicName", name)
            raise RequestError(
                Code.FORBIDDEN, f"topicName {name[:64]} not existed, please check your configure"
            )
        return topic

    def need_partition(self, name: str, partition: int) -> tuple[Topic, TopicStore]:
        """Return a topic that is not being deleted, and a partition's store. Raises Denied."""
        topic = self.topics.get(name) or self.need_topic(name)
        if topic.status != STATUS_OK:
            raise RequestError(Code.FORBIDDEN, f"topicName {topic.name} has been closed")
        return topic, self.need_store(topic, partition)

    def need_store(self, topic: Topic, partition: int) -> TopicStore:
        """Return the store of a partition. Raises Denied."""
        store = self.stores.get(topic.name, partition) if topic.has(partition) else None
        if store is None:
            raise RequestError(
                Code.FORBIDDEN,
                f"partitionId {topic.name}-{partition} not existed, please check your configure",
            )
        return store


@lru_cache(maxsize=4096)  # the same few clients send most requests
def client_id(text: str) -> str:
    """Raises Denied unless it is the id of a client."""
    return checked(names.check_client_id, "clientId", text)


@lru_cache(maxsize=4096)
def group_name(text: str) -> str:
    """Raises Denied unless it is the name of a group."""
    return checked(names.check_group, "groupName", text)


def checked(check: Callable[[str], str], what: str, text: str) -> str:
    try:
        return check(text)
    except IllegalName as error:
        if not text.strip():
            raise RequestError(Code.BAD_REQUEST, f"Request miss necessary {what} data!") from None
        raise RequestError(Code.BAD_REQUEST, str(error)) from None
