"""Consumption progress of consumer groups."""

import asyncio
import logging

from mq.client.machine import clock
from mq.daemons.broker.clients.registry import Consumers
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.offsets.offset_table import SEPARATOR, ConsumerOffsets
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.store import MessageStore, earliest_store_time, store_time
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.daemons.time_slices import OneAtATime, TimeSlices
from mq.protocol import names
from mq.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
    TopicConfig,
    TopicList,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.group import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from mq.protocol.headers.offset import CloneGroupOffsetRequestHeader, QueryCorrectionOffsetHeader
from mq.protocol.headers.query import QueryConsumeTimeSpanRequestHeader
from mq.protocol.headers.topic import QueryTopicConsumeByWhoRequestHeader

log = logging.getLogger(__name__)

LONG_MAX = 2**63 - 1


class ProgressHandlers:
    """Reports how far groups have consumed."""

    def __init__(
        self,
        settings: BrokerSettings,
        groups: Groups,
        topics: Topics,
        offsets: ConsumerOffsets,
        consumers: Consumers,
        store: MessageStore,
        stats: BrokerStats,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._store = store
        self._stats = stats
        self._all_stats = OneAtATime()  # one request per connection at a time

    @serves(RequestCode.GET_CONSUME_STATS)
    async def consume_stats(self, command: Command, channel: Channel) -> Command:
        """Compare the offsets of a group with those of the queues, in one topic or all."""
        header = command.read_header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        wanted = [t for t in (header.topic_list or "").split(";") if t]
        if header.topic and not header.topic.isspace():
            wanted = [header.topic]
        total = ConsumeStats()
        steps = TimeSlices()
        for topic in wanted or self._offsets.topics_of_group(group):
            config = self._consumed(group, topic)
            if config is not None:
                found = await self._progress(group, topic, config.read_queue_nums, steps)
                total.offset_table.update(found)
                total.consume_tps += self._stats.group_rate(topic, group)
        return command.reply(body=await asyncio.to_thread(total.encode))

    @serves(RequestCode.GET_BROKER_CONSUME_STATS)
    async def all_consume_stats(self, command: Command, channel: Channel) -> Command:
        """Like `consume_stats`, for every group; other requests are served between the steps."""
        async with self._all_stats.turn(channel):
            return command.reply(body=await self._all_consume_stats(command))

    async def _all_consume_stats(self, command: Command) -> bytes:
        header = command.read_header(GetConsumeStatsInBrokerHeader)
        broker = self._settings.broker
        answer = ConsumeStatsList(
            broker_addr=f"{broker.broker_ip1}:{self._settings.server.listen_port}"
        )
        steps = TimeSlices()
        topics_of: dict[str, list[str]] = {}
        for key in list(self._offsets.table):
            topic, _, group = key.partition(SEPARATOR)
            topics_of.setdefault(group, []).append(topic)
        for group in list(self._groups.table):
            found = []
            await steps.rest()
            for topic in topics_of.get(group, ()):
                config = self._consumed(group, topic)
                if config is None or (header.is_order and not config.order):
                    continue
                table = await self._progress(group, topic, config.write_queue_nums, steps)
                rate = self._stats.group_rate(topic, group)
                found.append(ConsumeStats(offset_table=table, consume_tps=rate))
                answer.total_diff += found[-1].lag
            answer.consume_stats_list.append({group: found})
        answer.total_diff = _turned_over(answer.total_diff)
        return await asyncio.to_thread(answer.encode)

    def _consumed(self, group: str, topic: str) -> TopicConfig | None:
        """The topic; None if it does not exist, or if the group is online and does not subscribe to
        it.
        """
        online = self._consumers.groups.get(group)
        if online is not None and online.subscriptions and topic not in online.subscriptions:
            return None
        return self._topics.get(topic)

    async def _progress(
        self, group: str, topic: str, queues: int, steps: TimeSlices
    ) -> dict[MessageQueue, OffsetWrapper]:
        table = {}
        for queue_id in range(queues):
            await steps.rest()
            consumed = max(0, self._offsets.query(group, topic, queue_id))
            last = store_time(self._store, topic, queue_id, consumed - 1) if consumed > 0 else 0
            queue = MessageQueue(topic, self._settings.broker.broker_name, queue_id)
            table[queue] = OffsetWrapper(
                broker_offset=max(0, self._store.max_offset(topic, queue_id)),
                consumer_offset=consumed,
                last_timestamp=max(0, last),
            )
        return table

    @serves(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    def groups_of_topic(self, command: Command, channel: Channel) -> Command:
        """Groups that consume a topic now or have consumed it before."""
        header = command.read_header(QueryTopicConsumeByWhoRequestHeader)
        found = set(self._consumers.groups_of_topic(header.topic))
        found.update(self._offsets.groups_of_topic(header.topic))
        return command.reply(body=GroupList(group_list=found).encode())

    @serves(RequestCode.QUERY_TOPICS_BY_CONSUMER)
    def topics_of_group(self, command: Command, channel: Channel) -> Command:
        """Topics that a group has consumed, for tools of 5.x."""
        header = command.read_header(QueryTopicsByConsumerRequestHeader)
        found = set(self._offsets.topics_of_group(header.group))
        return command.reply(body=TopicList(topic_list=found).encode())

    @serves(RequestCode.QUERY_CONSUME_TIME_SPAN)
    async def time_span(self, command: Command, channel: Channel) -> Command:
        """Store times of the first, the last and the last consumed message of each queue."""
        header = command.read_header(QueryConsumeTimeSpanRequestHeader)
        config = self._topics.get(header.topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = []
        steps = TimeSlices()
        for queue_id in range(config.write_queue_nums):
            spans.append(self._span(header.group, header.topic, queue_id))
            await steps.rest()
        return command.reply(body=QueryConsumeTimeSpanBody(consume_time_span_set=spans).encode())

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        earliest = earliest_store_time(store, topic, queue_id)
        most = store.max_offset(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id)
        span = QueueTimeSpan(
            message_queue=MessageQueue(topic, self._settings.broker.broker_name, queue_id),
            min_time_stamp=earliest,
            max_time_stamp=store_time(store, topic, queue_id, most - 1),
            consume_time_stamp=(
                store_time(store, topic, queue_id, consumed - 1) if consumed > 0 else earliest
            ),
        )
        if 0 <= consumed < most:
            waiting = store_time(store, topic, queue_id, consumed)
            span.delay_time = clock.milliseconds() - waiting
        return span

    @serves(RequestCode.QUERY_CORRECTION_OFFSET)
    def correction(self, command: Command, channel: Channel) -> Command:
        """The least offset of all groups by queue; Long.MAX_VALUE if a group has a lower offset
        than the compared group.
        """
        header = command.read_header(QueryCorrectionOffsetHeader)
        compared = self._offsets.queues(header.compare_group, header.topic)
        config = self._topics.get(header.topic)
        first = {
            queue_id: self._store.min_offset(header.topic, queue_id)
            for queue_id in range(config.read_queue_nums if config is not None else 0)
        }
        excluded = (header.filter_groups or "").split(",")
        least = self._offsets.least_of_all_groups(header.topic, first, excluded)
        for queue_id, offset in compared.items():
            if queue_id in least and least[queue_id] > offset:
                least[queue_id] = LONG_MAX
        return command.reply(body=QueryCorrectionOffsetBody(correction_offsets=least).encode())

    @serves(RequestCode.CLONE_GROUP_OFFSET)
    def clone(self, command: Command, channel: Channel) -> Command:
        """Copy the offsets of one group to another, in one topic or in all topics of the first
        group.
        """
        header = command.read_header(CloneGroupOffsetRequestHeader)
        try:
            names.check_group(header.dest_group)
        except names.IllegalName as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if names.is_system_group(header.dest_group):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the offsets of {header.dest_group} are the broker's own",
            )
        topics = [header.topic] if header.topic else self._offsets.topics_of_group(header.src_group)
        for topic in topics:
            if self._topics.get(topic) is None:
                continue
            if not header.offline and self._consumed(header.src_group, topic) is None:
                continue
            self._offsets.clone(header.src_group, header.dest_group, topic)
            log.info("%s: group %s starts where %s is in %s", channel.remote, header.dest_group,
                     header.src_group, topic)  # fmt: skip
        return command.reply()


def _turned_over(number: int) -> int:
    """Wrap a number like a Java long: groups commit any offset, so a sum of differences may exceed
    64 bits.
    """
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
