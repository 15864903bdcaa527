"""Client requests at a snode: heartbeats, unregistrations, members of groups.

Like those of a broker (mq.daemons.broker.clients.client_handlers), with three differences: groups
and their retry topics are created at the enodes, a client with several connections is one member,
and consumers that get pushed messages have sessions.
"""

from collections.abc import Awaitable, Iterable, Iterator

from mq.daemons.broker.clients.client_handlers import ClientHandlers, ClientRules
from mq.daemons.broker.clients.registry import ConsumerGroup, Consumers, Producers
from mq.daemons.broker.filters.reader import FilterReader
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused, Reply
from mq.daemons.request_codes import serves
from mq.daemons.snode.groups import SnodeGroups
from mq.daemons.snode.push.sessions import PushSessions, queues_to_push
from mq.protocol.bodies import (
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    SubscriptionData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.group import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)


class _NoFilters:
    """No filters: the enodes parse the expressions, which they get with each pull."""

    def __init__(self) -> None:
        self.reader = FilterReader()

    def unread(self, groups: Iterable[tuple[str, list[SubscriptionData]]]) -> list[str]:
        return []

    def register(
        self, group: str, subscriptions: list[SubscriptionData], *, read: bool = True
    ) -> None: ...

    def unregister(self, group: str) -> None: ...


class SnodeClientHandlers(ClientHandlers):
    """Serves the requests by which clients report their groups and subscriptions."""

    def __init__(
        self,
        rules: ClientRules,
        consumers: Consumers,
        producers: Producers,
        groups: SnodeGroups,
        sessions: PushSessions,
    ) -> None:
        # A snode is not a client of a snode: no client switches to the snode dialect here, which is
        # always understood.
        super().__init__(
            rules, consumers, producers, _NoFilters(), groups, groups, lambda *_: False
        )
        self._sessions = sessions
        self._retry = groups

    @serves(RequestCode.HEART_BEAT)
    def heartbeat(self, command: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        """Register a client with its groups, or renew the registration."""
        return super().heartbeat(command, channel)

    def _register(
        self, heartbeat: HeartbeatData, command: Command, channel: Channel
    ) -> Iterator[None]:
        yield from super()._register(heartbeat, command, channel)
        for data in heartbeat.consumer_data_set:
            self._sessions.replace(
                channel, heartbeat.client_id, data.group_name, queues_to_push(data)
            )
            yield

    @serves(RequestCode.UNREGISTER_CLIENT)
    def unregister(self, command: Command, channel: Channel) -> Command:
        """Remove a client from its groups."""
        group = command.read_header(UnregisterClientRequestHeader).consumer_group
        if group is not None:
            self._sessions.remove(channel, group)
        return super().unregister(command, channel)

    @serves(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def list_consumers(self, command: Command, channel: Channel) -> Command:
        """List the members of a group, each once."""
        header = command.read_header(GetConsumerListByGroupRequestHeader)
        group = self._consumers.groups.get(header.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}"
            )
        ids = list(dict.fromkeys(group.client_ids()))
        return command.reply(body=GetConsumerListByGroupResponseBody(consumer_id_list=ids).encode())

    def _notify(self, changed: ConsumerGroup) -> None:
        if not changed.clients:
            self._retry.left(changed.name)
        super()._notify(changed)
