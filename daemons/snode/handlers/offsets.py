"""Offsets that groups commit: kept for a while, or forwarded (see mq.daemons.snode.offsets)."""

from collections.abc import Awaitable
from dataclasses import dataclass

from mq.client.errors import BrokerError, MQError
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.daemons.snode.config import SnodeSettings
from mq.daemons.snode.enodes import Enodes, unavailable
from mq.daemons.snode.forwarding import Forwarding
from mq.daemons.snode.groups import SnodeGroups
from mq.daemons.snode.offsets import Key, OffsetCache
from mq.protocol.codes import RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from mq.protocol.headers.snode import CreateRetryTopicRequestHeader


@dataclass(frozen=True, slots=True)
class QueueHandlers:
    """Forwards requests to enodes."""

    forwarding: Forwarding
    enodes: Enodes
    groups: SnodeGroups

    @serves(
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
    )
    def forward(self, command: Command, channel: Channel) -> Awaitable[None] | None:
        """Forward a request for the bounds of a queue, an offset by time, or locks."""
        enode = self.forwarding.enode_of(command.fields, channel)
        return self.forwarding.forward(command, channel, enode, command.fields)

    @serves(SnodeCode.CREATE_RETRY_TOPIC)
    async def create_retry_topic(self, command: Command, channel: Channel) -> Command:
        """Create the retry topic of a group at an enode."""
        header = command.read_header(CreateRetryTopicRequestHeader)
        name = header.group_name
        enode = self.forwarding.enode_of(command.fields, channel)
        if self.groups.find(name) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist",
            )
        address = self.enodes.masters.get(enode) or await self.enodes.find(enode)
        if address is None:
            raise unavailable(enode, "no name server has a master of it")
        try:
            await self.groups.make_retry_topic(address, name, enode)
        except BrokerError as error:
            return command.reply(error.code, remark=error.remark)
        except MQError as error:
            raise unavailable(enode, error) from None
        return command.reply()


@dataclass(frozen=True, slots=True)
class OffsetHandlers:
    """Stores and returns committed offsets."""

    settings: SnodeSettings
    forwarding: Forwarding
    enodes: Enodes
    offsets: OffsetCache

    @serves(RequestCode.UPDATE_CONSUMER_OFFSET)
    def update(self, command: Command, channel: Channel) -> Command | Awaitable[None] | None:
        """Commit an offset of a group."""
        header = command.read_header(UpdateConsumerOffsetRequestHeader)
        enode = self.forwarding.enode_of(command.fields, channel)
        key = Key(enode, header.topic, header.consumer_group)
        where = (key, header.queue_id, header.commit_offset, channel.remote)
        if self._goes_at_once(command):
            self.offsets.remember(*where)
            return self.forwarding.forward(command, channel, enode, command.fields)
        if enode not in self.enodes.masters:
            self.enodes.refresh_soon()
            raise unavailable(enode, "no name server has a master of it")
        if self.offsets.commit(*where):
            return command.reply()
        return self.forwarding.forward(command, channel, enode, command.fields)

    @serves(RequestCode.QUERY_CONSUMER_OFFSET)
    def query(self, command: Command, channel: Channel) -> Command | Awaitable[None] | None:
        """Return the committed offset of a group: the one committed here and not sent yet, or else
        the enode's, which may be unknown.
        """
        header = command.read_header(QueryConsumerOffsetRequestHeader)
        enode = self.forwarding.enode_of(command.fields, channel)
        if not self._goes_at_once(command):
            key = Key(enode, header.topic, header.consumer_group)
            known = self.offsets.find_unsent(key, header.queue_id)
            if known is not None and known >= 0:
                fields = QueryConsumerOffsetResponseHeader(offset=known).encode()
                return command.reply(fields=fields)
        return self.forwarding.forward(command, channel, enode, command.fields)

    def _goes_at_once(self, command: Command) -> bool:
        """Whether the enode must answer: because of forwardOffsets, or to check the sender's
        signature. The snode does not sign for it then, so it could not send the offset later,
        and does not know the sender's permissions.
        """
        if self.settings.snode.forward_offsets:
            return True
        return not self.forwarding.may_change(command.fields)
