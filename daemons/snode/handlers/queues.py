"""Requests about queues that only their enodes can answer: bounds, locks, retry topics."""

from collections.abc import Awaitable
from dataclasses import dataclass

from mq.client.errors import BrokerError, MQError
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.daemons.snode.enodes import Enodes, unavailable
from mq.daemons.snode.forwarding import Forwarding
from mq.daemons.snode.groups import SnodeGroups
from mq.protocol.codes import RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
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
