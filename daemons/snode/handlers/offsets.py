"""Offsets that groups commit: kept a while, or passed on (see mq.daemons.snode.offsets)."""

from collections.abc import Awaitable
from dataclasses import dataclass

from mq.daemons.channel import Channel
from mq.daemons.request_codes import serves
from mq.daemons.snode.config import SnodeSettings
from mq.daemons.snode.enodes import Enodes, unavailable
from mq.daemons.snode.forwarding import Forwarding
from mq.daemons.snode.offsets import Key, OffsetCache
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)


@dataclass(frozen=True, slots=True)
class OffsetHandlers:
    """Tells how far groups are, and remembers it."""

    settings: SnodeSettings
    forwarding: Forwarding
    enodes: Enodes
    offsets: OffsetCache

    @serves(RequestCode.UPDATE_CONSUMER_OFFSET)
    def update(self, command: Command, channel: Channel) -> Command | Awaitable[None] | None:
        """A group has come this far in a queue."""
        header = command.read_header(UpdateConsumerOffsetRequestHeader)
        enode = self.forwarding.enode_of(command.fields, channel)
        key = Key(enode, header.topic, header.consumer_group)
        where = (key, header.queue_id, header.commit_offset, channel.remote)
        if self._goes_at_once(command):
            self.offsets.remember(*where)
            return self.forwarding.forward(command, channel, enode, command.fields)
        if enode not in self.enodes.masters:
            self.enodes.look_soon()
            raise unavailable(enode, "no name server knows a master of it")
        if self.offsets.commit(*where):
            return command.reply()
        return self.forwarding.forward(command, channel, enode, command.fields)

    @serves(RequestCode.QUERY_CONSUMER_OFFSET)
    def query(self, command: Command, channel: Channel) -> Command | Awaitable[None] | None:
        """How far a group has come: what was committed here and no enode has yet, else what its
        enode says, which may be that it does not know."""
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
        """Whether it is the enode's to answer: by setting, and where it has the sender's signature
        to look at. The snode has none in its place, so it could not send the offset later, and
        nobody here knows what the sender may."""
        if self.settings.snode.forward_offsets:
            return True
        return not self.forwarding.may_change(command.fields)
