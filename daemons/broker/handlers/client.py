"""Clients: heartbeats, goodbyes, and the check of a subscription."""

import logging
import time

from mq.daemons.broker.filter.subscriptions import check_supported, read_or_refuse
from mq.daemons.broker.filter.table import ConsumerFilters, is_tag_type
from mq.daemons.broker.groups import Groups
from mq.daemons.broker.registry import Client, ConsumerGroup, Consumers, Producers, notify_members
from mq.daemons.broker.topics import READ_WRITE, Topics
from mq.daemons.dispatch import Handler, Refused
from mq.daemons.listener import Channel
from mq.protocol import names
from mq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import TopicSysFlag
from mq.protocol.headers.group import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)

log = logging.getLogger(__name__)


def handlers(
    consumers: Consumers,
    producers: Producers,
    filters: ConsumerFilters,
    groups: Groups,
    topics: Topics,
) -> dict[int, Handler]:
    """The table of this subject."""
    about = ClientHandlers(consumers, producers, filters, groups, topics)
    return {
        RequestCode.HEART_BEAT: about.heartbeat,
        RequestCode.UNREGISTER_CLIENT: about.unregister,
        RequestCode.CHECK_CLIENT_CONFIG: about.check_subscription,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: about.list_consumers,
    }


class ClientHandlers:
    """What clients tell of themselves."""

    def __init__(
        self,
        consumers: Consumers,
        producers: Producers,
        filters: ConsumerFilters,
        groups: Groups,
        topics: Topics,
    ) -> None:
        self._consumers = consumers
        self._producers = producers
        self._filters = filters
        self._groups = groups
        self._topics = topics
        consumers.on_change.append(self._notify)

    def heartbeat(self, command: Command, channel: Channel) -> Command:
        """A client lives, with these groups."""
        told = command.read_body(HeartbeatData)
        if not told.client_id:
            raise RemoteProtocolError("HeartbeatData: clientID is missing")
        client = Client(channel, told.client_id, command.language, command.version, time.time())
        consumer_groups = [(_group(d.group_name), d) for d in told.consumer_data_set]
        producer_groups = [_group(d.group_name) for d in told.producer_data_set]
        self._watch(channel)
        for name, data in consumer_groups:
            self._consume(name, data, client)
        for name in producer_groups:
            self._producers.register(name, client)
        return command.reply()

    def _consume(self, name: str, data: ConsumerData, client: Client) -> None:
        group = self._groups.find(name)
        if group is not None and group.retry_queue_nums > 0:
            self._topics.create_internal(
                names.retry_topic(name),
                group.retry_queue_nums,
                READ_WRITE,
                TopicSysFlag.UNIT_SUB if data.unit_mode else 0,
            )
        self._consumers.register(name, client, data)
        self._filters.register(name, data.subscription_data_set)

    def unregister(self, command: Command, channel: Channel) -> Command:
        """A client leaves its groups."""
        header = command.read_header(UnregisterClientRequestHeader)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, channel)
        if header.consumer_group is not None:
            self._consumers.unregister(header.consumer_group, channel)
        return command.reply()

    def list_consumers(self, command: Command, channel: Channel) -> Command:
        """Who is in a group now."""
        header = command.read_header(GetConsumerListByGroupRequestHeader)
        group = self._consumers.groups.get(header.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}"
            )
        body = GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids())
        return command.reply(body=body.encode())

    def check_subscription(self, command: Command, channel: Channel) -> Command:
        """Whether the broker can filter by an expression."""
        subscription = command.read_body(CheckClientRequestBody).subscription_data
        if subscription is not None and not is_tag_type(subscription.expression_type):
            check_supported(self._filters.config(), subscription.expression_type)
            read_or_refuse(subscription.sub_string)
        return command.reply()

    def _notify(self, changed: ConsumerGroup) -> None:
        if not changed.clients:
            self._filters.unregister(changed.name)
        config = self._groups.table.get(changed.name)
        if config is None or config.notify_consumer_ids_changed_enable:
            notify_members(changed)

    def _watch(self, channel: Channel) -> None:
        """Have both registries told, once, when a client's connection closes."""
        if "registered" not in channel.attributes:
            channel.attributes["registered"] = True
            channel.on_close.append(self._consumers.connection_lost)
            channel.on_close.append(self._producers.connection_lost)


def _group(name: str | None) -> str:
    """A group's name from a heartbeat; names become parts of topics and of file contents."""
    try:
        return names.check_group(name or "")
    except names.IllegalName as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
