"""Consumer groups: create, change, delete and list."""

import asyncio
import logging

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.roles import check_may_modify
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.topics.topic_handlers import saving
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)

log = logging.getLogger(__name__)


class GroupHandlers:
    """Serves the configuration of groups."""

    def __init__(
        self,
        settings: BrokerSettings,
        groups: Groups,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._offsets = offsets
        self._stats = stats

    @serves(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    async def update(self, command: Command, channel: Channel) -> Command:
        """Create or change a group."""
        check_may_modify(self._settings)
        group = command.read_body(SubscriptionGroupConfig)
        try:
            names.check_group(group.group_name or "")
        except names.IllegalName as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("%s creates or changes group %s", channel.remote, group.group_name)
        with saving():
            await self._groups.update(group)
        return command.reply()

    @serves(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
    async def update_list(self, command: Command, channel: Channel) -> Command:
        """Create or change several groups, all or none, for tools of 5.x."""
        check_may_modify(self._settings)
        groups = command.read_body(SubscriptionGroupList).group_config_list
        for group in groups:
            try:
                names.check_group(group.group_name or "")
            except names.IllegalName as error:
                raise Refused(
                    ResponseCode.INVALID_PARAMETER, f"group {group.group_name!r}: {error}"
                ) from None
        log.info("%s creates or changes %d groups", channel.remote, len(groups))
        with saving():
            await self._groups.update_all(groups)
        return command.reply()

    @serves(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    async def delete(self, command: Command, channel: Channel) -> Command:
        """Delete a group and, if requested, its offsets; these are removed from their file before
        the reply.
        """
        check_may_modify(self._settings)
        header = command.read_header(DeleteSubscriptionGroupRequestHeader)
        if names.is_system_group(header.group_name):
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the group {header.group_name} is the broker's own"
            )
        log.info("%s deletes group %s", channel.remote, header.group_name)

        def delete_progress() -> None:
            if header.remove_offset or header.clean_offset:
                self._offsets.remove_group(header.group_name)
            if self._settings.broker.auto_delete_unused_stats:
                self._stats.forget_group(header.group_name)

        with saving():
            await self._groups.delete(header.group_name, delete_progress)
        if header.remove_offset or header.clean_offset:
            with saving(f"group {header.group_name} is deleted, but its offsets may reappear after "
                        "a restart; delete it again, because they cannot be saved"):  # fmt: skip
                await self._offsets.save_removals()
        return command.reply()

    @serves(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    async def all_groups(self, command: Command, channel: Channel) -> Command:
        """All groups with their configuration."""
        return command.reply(body=await asyncio.to_thread(self._groups.snapshot().encode))

    @serves(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
    def one_group(self, command: Command, channel: Channel) -> Command:
        """The configuration of one group, which is created if it is missing and may be created.

        The proxy of 5.x registers no consumers with brokers: this request creates their groups.
        """
        header = command.read_header(GetSubscriptionGroupConfigRequestHeader)
        group = self._groups.find(header.group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group[{header.group}] not exist",
            )
        return command.reply(body=group.encode())
