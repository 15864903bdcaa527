"""Send targets: the queue of a send, checked once and remembered until topics change."""

from collections.abc import Mapping
from types import MappingProxyType

from mq.client.machine import random_ids
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.roles import check_takes_messages
from mq.daemons.broker.store import ConsumeQueue, MessageStore
from mq.daemons.broker.topics.topic_table import Topics, no_such_topic
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.protocol import names
from mq.protocol.bodies import TopicConfig
from mq.protocol.codes import ResponseCode
from mq.protocol.flags import Permission, TopicSysFlag

# Limit of remembered queues. A peer can choose queue ids only within a topic's number of queues, in
# one spelling, so this bounds the memory of brokers with very many topics, not a hostile peer.
MOST_REMEMBERED = 100_000


class SendTargets:
    """Queues by the topic and queue id of a request, both as written in its header."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        groups: Groups,
        store: MessageStore,
        over_limit: Mapping[str, Refused] = MappingProxyType({}),
    ) -> None:
        """``over_limit`` maps topics that currently refuse sends to the refusal."""
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._store = store
        self._over_limit = over_limit
        self.remembered: dict[tuple[str, str], ConsumeQueue] = {}
        topics.on_change.append(lambda _: self.forget())

    def forget(self) -> None:
        """Clear the table, so that every queue is checked again: a topic or the configuration has
        changed.
        """
        self.remembered.clear()

    def find(
        self,
        topic: str,
        queue_text: str,
        default_topic: str,
        default_queues: int,
        unit_mode: bool,
        channel: Channel,
    ) -> ConsumeQueue:
        """Return the queue for a message; creates a missing topic if that is allowed.

        Raises Refused with the codes and texts of AbstractSendMessageProcessor.msgCheck.
        """
        self._check_broker(topic)
        if topic in self._over_limit:
            refused = self._over_limit[topic]
            raise refused.with_traceback(None)
        try:
            names.check_topic(topic)
        except names.IllegalName as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if not names.may_be_sent_to(topic):
            raise Refused(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        config = self._topic(topic, default_topic, default_queues, unit_mode, channel)
        queue_id = int(queue_text)
        if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, topic {topic} has "
                f"{config.write_queue_nums} queues to write. Producer: {channel.remote}",
            )
        if queue_id < 0:  # any queue, chosen for each message: not remembered
            return self._store.queue(topic, random_ids.randrange(max(config.write_queue_nums, 1)))
        queue = self._store.queue(topic, queue_id)
        if queue_text == str(queue_id):  # other spellings, such as " 1" or "01", are not remembered
            if len(self.remembered) >= MOST_REMEMBERED:
                self.remembered.clear()
            self.remembered[topic, queue_text] = queue
        return queue

    def _check_broker(self, topic: str) -> None:
        check_takes_messages(self._settings)
        known = self._topics.get(topic)
        if not self._settings.broker.broker_permission & Permission.WRITE and known and known.order:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._settings.broker.broker_ip1}] sending message is forbidden",
            )

    def _topic(
        self,
        topic: str,
        default_topic: str,
        default_queues: int,
        unit_mode: bool,
        channel: Channel,
    ) -> TopicConfig:
        retry = topic.startswith(names.RETRY_PREFIX)
        sys_flag = (TopicSysFlag.UNIT_SUB if retry else TopicSysFlag.UNIT) if unit_mode else 0
        config = self._topics.create_for_send(
            topic, default_topic, default_queues, sys_flag, channel.remote
        )
        if config is None and retry:
            config = self._topics.create_internal(topic, 1, sys_flag=sys_flag)
        if config is None:
            raise no_such_topic(topic)
        return config
