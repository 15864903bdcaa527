"""Administrative calls for topics."""

from __future__ import annotations  # bodies and headers are loaded only when a call needs them

from collections.abc import Mapping, Sequence

from mq.client.admin.base import AdminBase, read
from mq.protocol import bodies, headers
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.names import DEFAULT_TOPIC

_OR_NO_TOPIC = frozenset((int(ResponseCode.SUCCESS), int(ResponseCode.TOPIC_NOT_EXIST)))


class TopicAdmin(AdminBase):
    """Topics: create, delete, list, inspect."""

    async def create_topic(self, address: str, config: bodies.TopicConfig) -> None:
        """Create or change a topic on the broker at `address`."""
        await self._ask(address, _creation(config))

    async def create_topics(self, address: str, configs: Sequence[bodies.TopicConfig]) -> None:
        """Create or change many topics on the broker at `address` (5.x): all or none."""
        body = bodies.CreateTopicListRequestBody(topic_config_list=list(configs))
        await self._ask(address, headers.CreateTopicListRequestHeader(), body.encode())

    async def static_topic(
        self, address: str, topic: str
    ) -> bodies.TopicConfigAndQueueMapping | None:
        """Return a topic with its logical queues at the broker at `address` (5.x); None if it has
        none.

        The mapping is None for a topic that is not static.
        """
        header = headers.GetTopicConfigRequestHeader(topic=topic, logical=True)
        response = await self._ask(address, header, accept=_OR_NO_TOPIC)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return read(bodies.TopicConfigAndQueueMapping.decode, response.body, address)

    async def create_static_topic(
        self, address: str, config: bodies.TopicConfigAndQueueMapping, *, force: bool = False
    ) -> None:
        """Create a static topic on the broker at `address` (5.x), or change its logical queues.

        Unless `force`, the broker refuses a mapping that is older than its own.
        """
        command = Command(
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
            _creation(config, force=force).encode(),
            (config.mapping_detail or bodies.TopicQueueMappingDetail()).encode(),
        )
        await self.session.call(address, command, self.timeout)

    async def delete_topic_in_broker(self, address: str, topic: str) -> None:
        """Delete a topic from the broker at `address`."""
        await self._ask(address, headers.DeleteTopicRequestHeader(topic=topic))

    async def delete_topic_in_name_server(
        self, address: str, topic: str, cluster: str | None = None
    ) -> None:
        """Delete a topic's route from the name server at `address`; only that of `cluster` if
        given.
        """
        header = headers.DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        await self._ask(address, header)

    async def topic_list(self) -> bodies.TopicList:
        """Return the topics of all clusters."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        response, address = await self._ask_name_server(code)
        return read(bodies.TopicList.decode, response.body, address)

    async def topics_of_cluster(self, cluster: str) -> bodies.TopicList:
        """Return the topics of the brokers in `cluster`."""
        header = headers.GetTopicsByClusterRequestHeader(cluster=cluster)
        response, address = await self._ask_name_server(header)
        return read(bodies.TopicList.decode, response.body, address)

    async def system_topics(self) -> bodies.TopicList:
        """Return the topics that the system created for itself, including names of clusters and
        brokers.
        """
        code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS
        response, address = await self._ask_name_server(code)
        return read(bodies.TopicList.decode, response.body, address)

    async def topic_route(self, topic: str) -> bodies.TopicRouteData:
        """Return the route of `topic`, fetched from a name server."""
        return await self.session.route(topic, max_age=0)

    async def topic_configs(self, address: str) -> bodies.TopicConfigSerializeWrapper:
        """Return every topic's settings on the broker at `address`."""
        response = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return read(bodies.TopicConfigSerializeWrapper.decode, response.body, address)

    async def broker_system_topics(self, address: str) -> bodies.TopicList:
        """Return the topics that the broker at `address` created for itself."""
        response = await self._ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        return read(bodies.TopicList.decode, response.body, address)

    async def topic_stats(self, address: str, topic: str) -> bodies.TopicStatsTable:
        """Return the least and greatest offset of each queue on the broker at `address`."""
        response = await self._ask(address, headers.GetTopicStatsInfoRequestHeader(topic=topic))
        return read(bodies.TopicStatsTable.decode, response.body, address)

    async def whole_topic_stats(
        self, topic: str, route_topic: str | None = None
    ) -> bodies.TopicStatsTable:
        """Return the combined `topic_stats` of all brokers of the topic (or of `route_topic`)."""
        addresses = await self._brokers_of(route_topic or topic)
        tables = await self.session.all([self.topic_stats(a, topic) for a in addresses])
        whole = tables[0]
        for table in tables[1:]:
            whole.offset_table.update(table.offset_table)
        return whole

    async def topic_consumers(self, address: str, topic: str) -> bodies.GroupList:
        """Return the consumer groups of `topic` that the broker at `address` knows."""
        header = headers.QueryTopicConsumeByWhoRequestHeader(topic=topic)
        response = await self._ask(address, header)
        return read(bodies.GroupList.decode, response.body, address)

    async def groups_of_topic(self, topic: str) -> bodies.GroupList:
        """Return `topic_consumers` of one broker of the topic (DefaultMQAdminExtImpl queries the
        first).
        """
        return await self.topic_consumers(await self._any_broker_of(topic), topic)


def _creation(
    config: bodies.TopicConfig, *, force: bool | None = None
) -> headers.CreateTopicRequestHeader:
    return headers.CreateTopicRequestHeader(
        topic=config.topic_name,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type.name,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=_attributes_text(config.attributes or {}),
        force=force,
    )


def _attributes_text(attributes: Mapping[str, str]) -> str | None:
    """Format changes of attributes as 5.x brokers parse them: `+key=value,-key`
    (AttributeParser).
    """
    parts = [f"{key}={value}" if value else key for key, value in attributes.items()]
    return ",".join(parts) or None
