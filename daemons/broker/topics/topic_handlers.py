"""Topics: create, change, delete, list, and statistics."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.roles import check_may_modify
from mq.daemons.broker.store import MessageStore, QueuesLeft, store_time
from mq.daemons.broker.topics.topic_table import MOST_QUEUES, Topics
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.attributes import parse_changes
from mq.protocol.bodies import (
    CreateTopicListRequestBody,
    MessageQueue,
    TopicConfig,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)

log = logging.getLogger(__name__)


@contextmanager
def saving(what: str = "the change cannot be saved") -> Iterator[None]:
    """Refuse a change that cannot be saved or has a wrong attribute; the remark names the cause."""
    try:
        yield
    except ValueError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
    except OSError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{what}: {error.strerror}") from None


def _check_numbers(read_queues: int, write_queues: int, perm: int) -> None:
    """Raises Refused for too many queues or an invalid permission."""
    for name, count in (("readQueueNums", read_queues), ("writeQueueNums", write_queues)):
        if not 0 <= count <= MOST_QUEUES:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{name}={count}: expected 0 to {MOST_QUEUES}")
    if not 0 <= perm <= 15:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"perm={perm}: expected 0 to 15")


class TopicHandlers:
    """Serves requests about the topics of this broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        offsets: ConsumerOffsets,
        store: MessageStore,
        announced: Callable[[], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._announced = announced

    @serves(RequestCode.UPDATE_AND_CREATE_TOPIC)
    async def update(self, command: Command, channel: Channel) -> Command:
        """Create or change a topic. The reply is sent after the name servers have been informed."""
        check_may_modify(self._settings)
        header = command.read_header(CreateTopicRequestHeader)
        self._check_name(header.topic)
        _check_numbers(header.read_queue_nums, header.write_queue_nums, header.perm)
        filter_type = TopicFilterType.__members__.get(header.topic_filter_type)
        if filter_type is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType={header.topic_filter_type}: expected SINGLE_TAG or MULTI_TAG",
            )
        try:
            changes = parse_changes(header.attributes or "")
        except ValueError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("%s creates or changes topic %s", channel.remote, header.topic)
        changed = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            attributes=changes,
        )
        with saving():
            await self._topics.update(changed)
        await self._announced()
        return command.reply()

    @serves(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
    async def update_list(self, command: Command, channel: Channel) -> Command:
        """Create or change several topics, all or none, for tools of 5.x."""
        check_may_modify(self._settings)
        topics = command.read_body(CreateTopicListRequestBody).topic_config_list
        for topic in topics:
            self._check_name(topic.topic_name or "")
            _check_numbers(topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        log.info("%s creates or changes %d topics", channel.remote, len(topics))
        with saving():
            await self._topics.update_all(topics)
        await self._announced()
        return command.reply()

    @serves(RequestCode.DELETE_TOPIC_IN_BROKER)
    async def delete(self, command: Command, channel: Channel) -> Command:
        """Delete a topic with its queues and its consumer offsets.

        Before the reply, no registration that still has the topic is on its way to a name server,
        and the offsets are removed from their file. Otherwise a kill would restore them, and the
        groups would skip messages of a new topic with that name.
        """
        check_may_modify(self._settings)
        header = command.read_header(DeleteTopicRequestHeader)
        self._check_name(header.topic)
        log.info("%s deletes topic %s", channel.remote, header.topic)

        left: list[QueuesLeft] = []

        def delete_content() -> None:
            try:
                self._store.delete_topic(header.topic)
            except QueuesLeft as error:  # other queues are deleted
                left.append(error)
            # Java keeps the offsets: a topic created later with that name would then be consumed
            # from the offset of the old topic instead of its beginning.
            self._offsets.remove_topic(header.topic)

        with saving():
            await self._topics.delete(header.topic, delete_content)
        await self._announced()
        with saving(f"topic {header.topic} is deleted, but its offsets may reappear after a "
                    "restart; delete it again, because they cannot be saved"):  # fmt: skip
            await self._offsets.save_removals()
        if left:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"topic {header.topic} is deleted, but not all of its queues can be removed from "
                f"the disk; delete it again: {left[0].strerror}",
            )
        return command.reply()

    @serves(RequestCode.GET_ALL_TOPIC_CONFIG)
    async def all_topics(self, command: Command, channel: Channel) -> Command:
        """Every topic with its configuration."""
        # A change replaces the table and never modifies it, so a thread may encode it.
        return command.reply(body=await asyncio.to_thread(self._topics.wrapper().encode))

    @serves(RequestCode.GET_TOPIC_CONFIG)
    def one_topic(self, command: Command, channel: Channel) -> Command:
        """The configuration of one topic, for tools of 5.x."""
        header = command.read_header(GetTopicConfigRequestHeader)
        return command.reply(body=self._known(header.topic).encode())

    @serves(RequestCode.GET_TOPIC_STATS_INFO)
    def stats(self, command: Command, channel: Channel) -> Command:
        """The first and last offset of each queue, and the store time of its last message."""
        header = command.read_header(GetTopicStatsInfoRequestHeader)
        config = self._known(header.topic)
        table = {}
        for queue_id in range(config.write_queue_nums):
            least = max(0, self._store.min_offset(header.topic, queue_id))
            most = max(0, self._store.max_offset(header.topic, queue_id))
            last = store_time(self._store, header.topic, queue_id, most - 1) if most > 0 else 0
            queue = MessageQueue(header.topic, self._settings.broker.broker_name, queue_id)
            table[queue] = TopicOffset(
                min_offset=least, max_offset=most, last_update_timestamp=last
            )
        return command.reply(body=TopicStatsTable(offset_table=table).encode())

    @serves(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def system_topics(self, command: Command, channel: Channel) -> Command:
        """The topics that users may not create or change."""
        return command.reply(body=TopicList(topic_list=set(self._topics.system_names)).encode())

    def _known(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    def _check_name(self, topic: str) -> None:
        try:
            names.check_topic(topic)
        except names.IllegalName as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if self._topics.is_system(topic):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
            )
