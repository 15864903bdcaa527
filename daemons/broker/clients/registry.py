"""Client registry: producers and consumers by group, each with its connection.

A client is registered from its heartbeat until it unregisters, its connection closes, or it sends
no heartbeat for the expiry time. When the members or subscriptions of a consumer group change,
`on_change` is called with the group, so that its members are notified and rebalance. Java does not
notify them when a member expires (ConsumerManager.scanNotActiveChannel); this registry does.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

from mq.client.machine import clock
from mq.daemons.channel import Channel
from mq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.group import NotifyConsumerIdsChangedRequestHeader

log = logging.getLogger(__name__)

# Limit of groups per connection whose changes are logged individually.
MOST_LOGGED = 20


class GroupTable(Protocol):
    """The subscription groups: `Groups`, or the copy of a snode."""

    @property
    def table(self) -> Mapping[str, SubscriptionGroupConfig]: ...

    def find(self, name: str, *, tell: bool = True) -> SubscriptionGroupConfig | None:
        """Return the group; creates it if it is missing and that is allowed. Raises Overloaded."""


@dataclass(slots=True, eq=False)
class Client:
    """A member of a group.

    `last_seen` is in seconds of `time.monotonic`, so that setting the clock forward expires no
    client. `account` is the access key that signed its heartbeat, "" without access control.
    """

    channel: Channel
    client_id: str
    language: int
    version: int
    last_seen: float
    account: str = ""

    def last_seen_ms(self) -> int:
        """Time of the last heartbeat, in ms since 1970."""
        return int((clock.time() - clock.monotonic() + self.last_seen) * 1000)


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """A consumer group that has members."""

    name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    clients: dict[Channel, Client] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)  # by topic
    # For each client id, the member that sent the last heartbeat, and the ids that several members
    # share.
    last_by_id: dict[str, Client] = field(default_factory=dict)
    shared_ids: set[str] = field(default_factory=set)

    def beat(self, client: Client) -> None:
        """Register the heartbeat of a member, and log once if another member has its client id.

        A client that reconnects leaves an old connection, which may stay open for minutes but sends
        nothing. So the id counts as shared only after both connections have sent a heartbeat after
        the other's.
        """
        known, name = self.clients.get(client.channel), client.client_id
        self.clients[client.channel] = client
        if known is not None and known.client_id != name:
            self._forget(known)
        last = self.last_by_id.get(name)
        self.last_by_id[name] = client
        if (
            known is None
            or last is None
            or last.channel is client.channel
            or last.last_seen <= known.last_seen
            or name in self.shared_ids
        ):
            return
        self.shared_ids.add(name)
        log.warning(
            "group %s: members at %s and %s have the same client id %s: both consume the same "
            "queues and may leave others unread; give each an instance name of its own",
            self.name,
            last.channel.remote,
            client.channel.remote,
            name,
            extra={"peer": client.channel.remote_address[0]},
        )

    def remove(self, channel: Channel) -> Client | None:
        """Remove a member; returns it, or None if it was not a member."""
        client = self.clients.pop(channel, None)
        if client is not None:
            self._forget(client)
        return client

    def _forget(self, client: Client) -> None:
        """Release the client id of this member."""
        self.shared_ids.discard(client.client_id)
        last = self.last_by_id.get(client.client_id)
        if last is not None and last.channel is client.channel:
            del self.last_by_id[client.client_id]

    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.clients.values()]

    def find(self, client_id: str) -> Client | None:
        """The member with that id."""
        for client in self.clients.values():
            if client.client_id == client_id:
                return client
        return None

    def subscribe(self, subscriptions: list[SubscriptionData], tell: bool = True) -> bool:
        """Apply the subscriptions of a heartbeat; returns whether topics were added or removed.
        Changes are logged only with `tell`.

        If two members disagree, the newer subscription (subVersion) counts, whichever heartbeat is
        later (ConsumerGroupInfo.updateSubscription).
        """
        changed = False
        topics = set()
        for new in subscriptions:
            if new.topic is None:
                continue
            topics.add(new.topic)
            old = self.subscriptions.get(new.topic)
            if old is None:
                changed = True
                if tell:
                    log.info("group %s subscribes to %s", self.name, new.topic)
            if old is None or new.sub_version > old.sub_version:
                self.subscriptions[new.topic] = new
        for topic in [t for t in self.subscriptions if t not in topics]:
            del self.subscriptions[topic]
            changed = True
            if tell:
                log.info("group %s no longer subscribes to %s", self.name, topic)
        return changed


class Consumers:
    """The consumer groups of a broker."""

    def __init__(self, clock: Callable[[], float] = clock.monotonic) -> None:
        self._clock = clock
        self.groups: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[Channel, set[str]] = {}
        self.on_change: list[Callable[[ConsumerGroup], None]] = []

    def register(self, name: str, client: Client, data: ConsumerData) -> bool:
        """Register a heartbeat for group `name`; returns whether the group has changed."""
        group = self.groups.get(name)
        channel = client.channel
        names = self._groups_of.setdefault(channel, set())
        names.add(name)
        if group is None:
            group = self.groups[name] = ConsumerGroup(name)
            if len(names) <= MOST_LOGGED:
                log.info("group %s: first member %s", name, client.client_id)
            elif len(names) == MOST_LOGGED + 1:
                log.info("%s has more groups, which are not logged", client.client_id)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        known = group.clients.get(channel)
        if known is not None and known.client_id != client.client_id:
            log.warning(
                "group %s: %s was %s on the same connection",
                group.name,
                client.client_id,
                known.client_id,
                extra={"peer": channel.remote},
            )
        group.beat(client)
        tell = len(names) <= MOST_LOGGED
        changed = group.subscribe(data.subscription_data_set, tell) or known is None
        if changed:
            self._changed(group)
        return changed

    def unregister(self, name: str, channel: Channel) -> None:
        """Remove a member from one group."""
        group = self.groups.get(name)
        self._groups_of.get(channel, set()).discard(name)
        if group is not None and group.remove(channel) is not None:
            log.info("group %s: %s left", name, channel.remote)
            self._changed(group)

    def groups_of(self, channel: Channel) -> Set[str]:
        """The names of the groups that a connection is a member of."""
        return self._groups_of.get(channel, frozenset())

    def connection_lost(self, channel: Channel) -> None:
        """Remove a member from all its groups, because its connection has closed."""
        names = self._groups_of.pop(channel, ())
        tell = len(names) <= MOST_LOGGED
        if not tell:
            log.info("connection of %s closed: it leaves %d groups", channel.remote, len(names))
        for name in names:
            group = self.groups.get(name)
            if group is not None and group.remove(channel) is not None:
                if tell:
                    log.info("group %s: connection of %s closed", group.name, channel.remote)
                self._changed(group, tell)

    def expire(self, timeout: float) -> None:
        """Evict members without a heartbeat for `timeout` seconds and close their connections."""
        oldest = self._clock() - timeout
        for group in list(self.groups.values()):
            silent = [c for c in group.clients.values() if c.last_seen < oldest]
            for client in silent:
                log.warning(
                    "group %s: evicting %s, which sends no heartbeats", group.name, client.client_id
                )
                group.remove(client.channel)
            if silent:
                self._changed(group)
            for client in silent:
                client.channel.close()

    def find(self, group: str, client_id: str) -> Client | None:
        """The member with an id."""
        known = self.groups.get(group)
        return None if known is None else known.find(client_id)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """A group's subscription to a topic."""
        known = self.groups.get(group)
        return None if known is None else known.subscriptions.get(topic)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Names of the groups with members that subscribe to a topic."""
        return [g.name for g in self.groups.values() if topic in g.subscriptions]

    def _changed(self, group: ConsumerGroup, tell: bool = True) -> None:
        if not group.clients:
            self.groups.pop(group.name, None)
            if tell:
                log.info("group %s: no members left", group.name)
        for callback in self.on_change:
            callback(group)


def notify_members(group: ConsumerGroup) -> None:
    """Notify all members that the group has changed, so that they rebalance."""
    fields = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name).encode()
    for channel in group.clients:
        if not channel.closed:
            channel.notify(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields))


class Producers:
    """The producer groups of a broker."""

    def __init__(
        self,
        clock: Callable[[], float] = clock.monotonic,
        may_have: Callable[[Client, str], bool] = lambda client, topic: True,
    ) -> None:
        """``may_have`` reports whether a client may receive messages of a topic."""
        self._clock = clock
        self._may_have = may_have
        self.groups: dict[str, dict[Channel, Client]] = {}
        self._groups_of: dict[Channel, set[str]] = {}
        self._clients: dict[str, Client] = {}  # by client id
        self._turn = 0

    def register(self, group: str, client: Client) -> None:
        """Register that a heartbeat names a group."""
        clients = self.groups.setdefault(group, {})
        if client.channel not in clients:
            log.info("producer group %s: new member %s", group, client.client_id)
        clients[client.channel] = client
        self._groups_of.setdefault(client.channel, set()).add(group)
        owner = self._clients.get(client.client_id)
        if owner is None or owner.channel.closed or owner.account == client.account:
            self._clients[client.client_id] = client
        else:
            # The new client would get the replies to the other's requests. The first one keeps the
            # id.
            log.warning(
                "%s uses the client id %s of another account's connection %s; it gets no replies",
                client.channel.remote,
                client.client_id,
                owner.channel.remote,
                extra={"peer": client.channel.remote_address[0]},
            )

    def unregister(self, group: str, channel: Channel) -> None:
        """Remove a member from one group."""
        clients = self.groups.get(group)
        if clients is not None:
            client = clients.pop(channel, None)
            self._drop_if_empty(group)
            left = self._groups_of.get(channel, set())
            left.discard(group)
            if client is not None and not left:
                self._forget(client)

    def connection_lost(self, channel: Channel) -> None:
        """Remove a member from all its groups, because its connection has closed."""
        for group in self._groups_of.pop(channel, ()):
            client = self.groups.get(group, {}).pop(channel, None)
            self._drop_if_empty(group)
            if client is not None:
                self._forget(client)

    def expire(self, timeout: float) -> None:
        """Evict members without a heartbeat for `timeout` seconds and close their connections."""
        oldest = self._clock() - timeout
        for group, clients in list(self.groups.items()):
            for client in [c for c in clients.values() if c.last_seen < oldest]:
                log.warning(
                    "producer group %s: evicting %s, which sends no heartbeats",
                    *(group, client.client_id),
                )
                del clients[client.channel]
                self._forget(client)
                client.channel.close()
            self._drop_if_empty(group)

    def any_channel(self, group: str, topic: str) -> Channel | None:
        """A live connection of a group, chosen round robin among its members; for a transaction
        check.

        Only members that may receive messages of `topic` are chosen, because any client can claim
        to belong to a group.
        """
        clients = [c for c in self.groups.get(group, {}).values() if not c.channel.closed]
        self._turn += 1
        for place in range(len(clients)):
            client = clients[(self._turn + place) % len(clients)]
            if self._may_have(client, topic):
                return client.channel
        return None

    def find(self, client_id: str) -> Channel | None:
        """The connection of a client, to push a reply to it."""
        client = self._clients.get(client_id)
        return None if client is None else client.channel

    def _forget(self, client: Client) -> None:
        owner = self._clients.get(client.client_id)
        if owner is not None and owner.channel is client.channel:
            del self._clients[client.client_id]

    def members(self) -> Iterator[tuple[str, Client]]:
        """All groups and members."""
        for group, clients in self.groups.items():
            for client in clients.values():
                yield group, client

    def _drop_if_empty(self, group: str) -> None:
        if not self.groups.get(group, True):
            del self.groups[group]
