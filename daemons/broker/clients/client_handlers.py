"""Client requests: heartbeats, unregistrations, and the check of a subscription."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from mq.client.machine import clock
from mq.daemons.acl.signers import account_of
from mq.daemons.broker.clients.registry import (
    MOST_LOGGED,
    Client,
    ConsumerGroup,
    Consumers,
    GroupTable,
    Producers,
    notify_members,
)
from mq.daemons.broker.filters.reader import FilterReader
from mq.daemons.broker.filters.table import is_tag_type, read_or_refuse
from mq.daemons.broker.topics.topic_table import READ_WRITE, new_topic
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Overloaded, Refused, Reply
from mq.daemons.request_codes import serves
from mq.daemons.time_slices import OneAtATime, TimeSlices
from mq.protocol import names
from mq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    SubscriptionData,
    TopicConfig,
)
from mq.protocol.codes import DIALECT_FIELD, Dialect, RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import TopicSysFlag
from mq.protocol.headers.group import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)

log = logging.getLogger(__name__)

HEARTBEAT_SETTING = "heartbeatMaxGroups"
# Heartbeats above _LARGE bytes are decoded in a thread and processed in steps; those above
# MOST_HEARTBEAT_BYTES are refused. A thousand groups with ten subscriptions each need less.
_LARGE = 16 * 1024
MOST_HEARTBEAT_BYTES = 4 * 1024 * 1024
_MEMORY_FACTOR = 4  # bytes of a heartbeat's objects per byte of its JSON
# Group members notified of a change at once, and the pause after it in seconds.
_NOTIFIED_AT_ONCE = 50
_NOTIFY_PAUSE = 0.02


class ClientRules(NamedTuple):
    """The settings about clients. `check_expression` raises Refused for an expression type that is
    not allowed.
    """

    notifies: Callable[[], bool]
    most_groups: Callable[[], int]  # limit of groups per client; 0 for no limit
    check_expression: Callable[[str | None], None]


class RetryTopics(Protocol):
    """The topic table, in which the retry topics of groups are created."""

    def get(self, name: str) -> TopicConfig | None: ...

    def create_all(self, topics: Sequence[TopicConfig]) -> None: ...


class Filters(Protocol):
    """The filter expressions of groups."""

    reader: FilterReader

    def unread(self, groups: Iterable[tuple[str, list[SubscriptionData]]]) -> list[str]: ...

    def register(
        self, group: str, subscriptions: list[SubscriptionData], *, read: bool = True
    ) -> None: ...

    def unregister(self, group: str) -> None: ...


class ClientHandlers:
    """Serves the requests by which clients report their groups and subscriptions."""

    def __init__(
        self,
        rules: ClientRules,
        consumers: Consumers,
        producers: Producers,
        filters: Filters,
        groups: GroupTable,
        topics: RetryTopics,
        is_trusted: Callable[[Command, Channel], bool] = lambda command, channel: True,
    ) -> None:
        """``is_trusted`` reports whether the sender of a request is an administrator, and so may be
        a snode.
        """
        self._is_trusted = is_trusted
        self._consumers = consumers
        self._producers = producers
        self._filters = filters
        self._groups = groups
        self._topics = topics
        self._rules = rules
        self._large = OneAtATime()
        self._to_notify: dict[str, ConsumerGroup] = {}
        consumers.on_change.append(self._notify)

    @serves(RequestCode.HEART_BEAT)
    def heartbeat(self, command: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        """Register a client with its groups, or renew the registration."""
        if len(command.body) > _LARGE:
            return self._large_heartbeat(command, channel)
        heartbeat = command.read_body(HeartbeatData)
        for _ in self._register(heartbeat, command, channel):
            pass
        if heartbeat.snode_data is not None and self._is_trusted(command, channel):
            channel.dialect = Dialect.SNODE
            return command.reply(fields={DIALECT_FIELD: Dialect.SNODE.value})
        return command.reply()

    async def _large_heartbeat(self, command: Command, channel: Channel) -> Command:
        """Process a large heartbeat in steps, between which other requests are served; one at a
        time.
        """
        if len(command.body) > MOST_HEARTBEAT_BYTES:
            raise Overloaded(
                HEARTBEAT_SETTING,
                f"[OVERLOAD]a heartbeat of {len(command.body)} bytes, over {MOST_HEARTBEAT_BYTES}",
            )
        # Checked before decoding, which costs much more.
        self._check_count(bytes(command.body).count(b'"groupName"'))
        async with self._large.turn(channel):
            heartbeat = await asyncio.to_thread(command.read_body, HeartbeatData)
            # its close event is over, so the registration would never be removed
            if channel.closed:
                return command.reply()
            steps = TimeSlices()
            for _ in self._register(heartbeat, command, channel):
                await steps.rest()
                if channel.closed:
                    break
        return command.reply()

    def _register(
        self, heartbeat: HeartbeatData, command: Command, channel: Channel
    ) -> Iterator[None]:
        """Register the groups of a heartbeat, one per step of the iterator. Raises Refused."""
        if not heartbeat.client_id:
            raise RemoteProtocolError("HeartbeatData: clientID is missing")
        client = Client(
            channel,
            heartbeat.client_id,
            command.language,
            command.version,
            clock.monotonic(),
            account_of(command),
        )
        consumer_groups = [(_group(d.group_name), d) for d in heartbeat.consumer_data_set]
        producer_groups = [_group(d.group_name) for d in heartbeat.producer_data_set]
        self._check_count(len(consumer_groups) + len(producer_groups))
        self._check_count(
            len(self._consumers.groups_of(channel) | {name for name, _ in consumer_groups})
        )
        unread = self._filters.unread(
            (name, d.subscription_data_set) for name, d in consumer_groups
        )
        self._filters.reader.need(unread)
        channel.keep("heartbeat", _MEMORY_FACTOR * len(command.body))
        self._watch(channel)
        self._create([d for _, d in consumer_groups])
        for name, data in consumer_groups:
            self._consumers.register(name, client, data)
            self._filters.register(name, data.subscription_data_set, read=False)
            yield
        for name in producer_groups:
            self._producers.register(name, client)
            yield

    def _check_count(self, count: int) -> None:
        most = self._rules.most_groups()
        if 0 < most < count:
            remark = f"[OVERLOAD]a heartbeat that names {count} groups, and {most} are allowed"
            raise Overloaded(HEARTBEAT_SETTING, remark)

    def _create(self, consumers: list[ConsumerData]) -> None:
        """Create missing groups and retry topics, and save them together."""
        topics = []
        before = len(self._groups.table)
        for number, data in enumerate(consumers):
            name = data.group_name or ""
            group = self._groups.find(name, tell=number < MOST_LOGGED)
            topic = names.retry_topic(name)
            if group is not None and group.retry_queue_nums > 0 and not self._topics.get(topic):
                sys_flag = TopicSysFlag.UNIT_SUB if data.unit_mode else 0
                topics.append(new_topic(topic, group.retry_queue_nums, READ_WRITE, sys_flag))
                if len(topic) > names.MAX_TOPIC_LENGTH and number < MOST_LOGGED:
                    log.warning(
                        "group %s: failed messages are not redelivered and block the group, "
                        "because %s is longer than the %d characters of a topic; use a group "
                        "with a shorter name",
                        *(name, topic, names.MAX_TOPIC_LENGTH),
                    )
        if len(self._groups.table) - before > MOST_LOGGED:
            log.info("%d subscription groups created", len(self._groups.table) - before)
        self._topics.create_all(topics)

    @serves(RequestCode.UNREGISTER_CLIENT)
    def unregister(self, command: Command, channel: Channel) -> Command:
        """Remove a client from its groups."""
        header = command.read_header(UnregisterClientRequestHeader)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, channel)
        if header.consumer_group is not None:
            self._consumers.unregister(header.consumer_group, channel)
        return command.reply()

    @serves(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    def list_consumers(self, command: Command, channel: Channel) -> Command:
        """List the members of a group."""
        header = command.read_header(GetConsumerListByGroupRequestHeader)
        group = self._consumers.groups.get(header.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}"
            )
        body = GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids())
        return command.reply(body=body.encode())

    @serves(RequestCode.CHECK_CLIENT_CONFIG)
    def check_subscription(self, command: Command, channel: Channel) -> Command:
        """Check whether the broker can filter by an expression."""
        subscription = command.read_body(CheckClientRequestBody).subscription_data
        if subscription is not None and not is_tag_type(subscription.expression_type):
            self._rules.check_expression(subscription.expression_type)
            read_or_refuse(self._filters.reader, subscription.sub_string)
        return command.reply()

    def _notify(self, changed: ConsumerGroup) -> None:
        if not changed.clients:
            self._filters.unregister(changed.name)
        if not self._rules.notifies():
            return
        config = self._groups.table.get(changed.name)
        if config is None or config.notify_consumer_ids_changed_enable:
            if not self._to_notify:
                asyncio.get_running_loop().call_soon(self._notify_some)
            self._to_notify[changed.name] = changed

    def _notify_some(self) -> None:
        """Notify the members of changed groups, a few groups at a time.

        A client that names a thousand groups, or leaves them, changes all of them at once, and a
        thousand such clients have a million memberships.
        """
        notified = 0
        while self._to_notify and notified < _NOTIFIED_AT_ONCE:
            group = self._to_notify.pop(next(iter(self._to_notify)))
            notified += len(group.clients)
            notify_members(group)
        if self._to_notify:
            asyncio.get_running_loop().call_later(_NOTIFY_PAUSE, self._notify_some)

    def _watch(self, channel: Channel) -> None:
        """Unregister a client from both registries when its connection closes; added once per
        channel.
        """
        if "registered" not in channel.attributes:
            channel.attributes["registered"] = True
            channel.on_close.append(self._consumers.connection_lost)
            channel.on_close.append(self._producers.connection_lost)


def _group(name: str | None) -> str:
    """Check a group name from a heartbeat: names become parts of topics and of file contents."""
    try:
        return names.check_group(name or "")
    except names.IllegalName as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
