"""Offsets of queues, by position and time, and committed offsets of groups."""

import asyncio
import os

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.store import (
    Boundary,
    MessageStore,
    earliest_store_time,
    nearest_offset,
    offset_by_boundary,
)
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)


class QueueOffsetHandlers:
    """Serves offsets of a queue."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @serves(RequestCode.GET_MAX_OFFSET)
    def max_offset(self, command: Command, channel: Channel) -> Command:
        """The offset that the next message will get."""
        header = command.read_header(GetMaxOffsetRequestHeader)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return command.reply(fields=GetMaxOffsetResponseHeader(offset=offset).encode())

    @serves(RequestCode.GET_MIN_OFFSET)
    def min_offset(self, command: Command, channel: Channel) -> Command:
        """The offset of the first message still stored."""
        header = command.read_header(GetMinOffsetRequestHeader)
        offset = self._store.min_offset(header.topic, header.queue_id)
        return command.reply(fields=GetMinOffsetResponseHeader(offset=offset).encode())

    @serves(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    def by_time(self, command: Command, channel: Channel) -> Command:
        """The offset of the message stored at a time.

        A request of a 5.x client names a boundary and is answered like 5.5; others are answered
        like 4.9.
        """
        header = command.read_header(SearchOffsetRequestHeader)
        where = self._store, header.topic, header.queue_id, header.timestamp
        if header.boundary_type is None:
            offset = nearest_offset(*where)
        else:
            offset = offset_by_boundary(*where, Boundary.named(header.boundary_type))
        return command.reply(fields=SearchOffsetResponseHeader(offset=offset).encode())

    @serves(RequestCode.GET_EARLIEST_MSG_STORETIME)
    def earliest_store_time(self, command: Command, channel: Channel) -> Command:
        """Store time of the first message that is still stored; -1 if there is none."""
        header = command.read_header(GetEarliestMsgStoretimeRequestHeader)
        timestamp = earliest_store_time(self._store, header.topic, header.queue_id)
        fields = GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp).encode()
        return command.reply(fields=fields)


class GroupOffsetHandlers:
    """Serves committed offsets of groups."""

    def __init__(
        self, settings: BrokerSettings, offsets: ConsumerOffsets, store: MessageStore
    ) -> None:
        self._settings = settings
        self._offsets = offsets
        self._store = store
        self._memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @serves(RequestCode.UPDATE_CONSUMER_OFFSET)
    def update(self, command: Command, channel: Channel) -> Command:
        """Commit an offset of a group."""
        header = command.read_header(UpdateConsumerOffsetRequestHeader)
        if names.is_internal_topic(header.topic) or names.is_system_group(header.consumer_group):
            # The broker itself reads from these offsets: messages before an offset that a client
            # wrote would be skipped.
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the offset of {header.consumer_group} in {header.topic} is the broker's own",
            )
        if self._offsets.query(header.consumer_group, header.topic, header.queue_id) < 0:
            try:  # the names become a key of the file; existing keys have been checked
                names.check_consumed_topic(header.topic)
                names.check_group(header.consumer_group)
            except names.IllegalName as error:
                raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
            if header.queue_id < 0:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"queueId {header.queue_id} is negative")
        offset: int | None = header.commit_offset
        if not is_slave(self._settings):  # the master may have a longer log
            offset = self._store.reached(header.topic, header.queue_id, header.commit_offset)
        if offset is not None:
            self._offsets.commit(
                header.consumer_group, header.topic, header.queue_id, offset, channel.remote
            )
        return command.reply()

    @serves(RequestCode.QUERY_CONSUMER_OFFSET)
    def query(self, command: Command, channel: Channel) -> Command:
        """The committed offset of a group. For a new group of a young queue it is 0."""
        header = command.read_header(QueryConsumerOffsetRequestHeader)
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False or not self._is_young(
                header.topic, header.queue_id
            ):
                raise Refused(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                )
            offset = 0
        return command.reply(fields=QueryConsumerOffsetResponseHeader(offset=offset).encode())

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Whether a queue still starts at 0 with a message that counts as in memory.

        A group that is new to such a queue gets all messages, whatever its starting offset
        (ConsumerManageProcessor.queryConsumerOffset, checkInDiskByConsumeOffset).
        """
        if self._store.min_offset(topic, queue_id) > 0:
            return False
        entry = self._store.entries.at(topic, queue_id, 0)
        if entry is None:
            return True
        ratio = self._settings.store.access_message_in_memory_max_ratio
        return self._store.max_physical_offset - entry[0] <= self._memory * ratio // 100

    @serves(RequestCode.GET_ALL_CONSUMER_OFFSET)
    async def all_offsets(self, command: Command, channel: Channel) -> Command:
        """All offsets of all groups, as a slave copies them."""
        return command.reply(body=await asyncio.to_thread(self._offsets.encoder(compact=True)))
