"""What a name server answers: one method per request code."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mq.daemons.beacon import INTERVAL_FIELD, START_FIELD
from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError, NotUpdatable
from mq.daemons.dispatch import LARGE_BODY, Handler, Refused
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.namesrv.kv import ORDER_TOPIC_NAMESPACE, KvConfig
from mq.daemons.namesrv.product_env import ProductEnvironment
from mq.daemons.namesrv.routes import OutOfOrder, Registration, Routes
from mq.daemons.namesrv.turns import in_turn
from mq.daemons.properties import read_update
from mq.daemons.registration_body import body_crc32, decompress
from mq.daemons.registration_order import RegistrationOrder
from mq.protocol.bodies import (
    BrokerMemberGroup,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from mq.protocol.codes import RequestCode, ResponseCode, version_number
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from mq.protocol.headers.controller import BrokerHeartbeatRequestHeader
from mq.protocol.headers.kv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from mq.protocol.headers.route import GetRouteInfoRequestHeader
from mq.protocol.headers.topic import (
    DeleteTopicFromNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
)

log = logging.getLogger(__name__)

# Before it the body of REGISTER_BROKER is the topics alone (DefaultRequestProcessor).
WITH_FILTER_SERVERS = version_number("V3_0_11")
# From it on clients read standard JSON, whether or not they say so.
STANDARD_JSON = version_number("V4_9_4")
WITH_MAPPINGS = version_number("V5_0_0")

# A compressed registration over so many bytes takes milliseconds to read: not in the loop.
LARGE_COMPRESSED = 1024

# A broker that says that its beacons are rarer than this is watched as if they were not: silence of
# a few minutes ends any broker.
LONGEST_BEACON_INTERVAL = 40.0

# Java appends this to the remark of an unknown topic, and its users search for it.
HELP = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


def handlers(
    routes: Routes,
    kv: KvConfig,
    settings: NamesrvSettings,
    elsewhere: ProductEnvironment | None = None,
) -> dict[int, Handler]:
    """The table of a name server. Topics without a route here are asked for `elsewhere`."""
    about_kv = KvHandlers(kv)
    about_brokers = BrokerHandlers(routes, kv, settings)
    about_topics = TopicHandlers(routes, kv, settings, elsewhere)
    about_config = ConfigHandlers(settings)
    return {
        RequestCode.PUT_KV_CONFIG: about_kv.put,
        RequestCode.GET_KV_CONFIG: about_kv.get,
        RequestCode.DELETE_KV_CONFIG: about_kv.delete,
        RequestCode.GET_KVLIST_BY_NAMESPACE: about_kv.list_namespace,
        RequestCode.REGISTER_BROKER: in_turn(about_brokers.register),
        RequestCode.UNREGISTER_BROKER: in_turn(about_brokers.unregister),
        RequestCode.QUERY_DATA_VERSION: in_turn(about_brokers.query_data_version),
        RequestCode.BROKER_HEARTBEAT: about_brokers.heartbeat,
        RequestCode.GET_BROKER_MEMBER_GROUP: about_brokers.member_group,
        RequestCode.GET_BROKER_CLUSTER_INFO: about_brokers.cluster_info,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER: about_brokers.wipe_write_permission,
        RequestCode.ADD_WRITE_PERM_OF_BROKER: about_brokers.add_write_permission,
        RequestCode.GET_ROUTEINFO_BY_TOPIC: about_topics.route,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: about_topics.listing(routes.all_topics),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: about_topics.listing(routes.system_topics),
        RequestCode.GET_UNIT_TOPIC_LIST: about_topics.listing(routes.unit_topics),
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: about_topics.listing(
            routes.unit_subscribed_topics
        ),
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: about_topics.listing(
            routes.unit_subscribed_only_topics
        ),
        RequestCode.GET_TOPICS_BY_CLUSTER: about_topics.of_cluster,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: about_topics.delete,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: in_turn(about_topics.register),
        RequestCode.UPDATE_NAMESRV_CONFIG: about_config.update,
        RequestCode.GET_NAMESRV_CONFIG: about_config.get,
    }


class KvHandlers:
    """Key-value configuration."""

    def __init__(self, kv: KvConfig) -> None:
        self._kv = kv

    def put(self, command: Command, channel: Channel) -> Command:
        """Set a value."""
        header = PutKVConfigRequestHeader.decode(command.fields)
        _saved(lambda: self._kv.put(header.namespace, header.key, header.value))
        return command.reply()

    def get(self, command: Command, channel: Channel) -> Command:
        """Look up a value."""
        header = GetKVConfigRequestHeader.decode(command.fields)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return command.reply(fields=GetKVConfigResponseHeader(value=value).encode())

    def delete(self, command: Command, channel: Channel) -> Command:
        """Remove a value."""
        header = DeleteKVConfigRequestHeader.decode(command.fields)
        _saved(lambda: self._kv.delete(header.namespace, header.key))
        return command.reply()

    def list_namespace(self, command: Command, channel: Channel) -> Command:
        """All values of a namespace."""
        header = GetKVListByNamespaceRequestHeader.decode(command.fields)
        table = self._kv.namespace(header.namespace)
        if table is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
            )
        return command.reply(body=KVTable(table=table).encode())


class BrokerHandlers:
    """Brokers that come, stay and go."""

    def __init__(self, routes: Routes, kv: KvConfig, settings: NamesrvSettings) -> None:
        self._routes = routes
        self._kv = kv
        self._settings = settings
        self._large = asyncio.Lock()

    def register(self, command: Command, channel: Channel) -> Command | Awaitable[Command]:
        """A broker says that it lives, and which topics it has."""
        header = RegisterBrokerRequestHeader.decode(command.fields)
        if len(command.body) > (LARGE_COMPRESSED if header.compressed else LARGE_BODY):
            return self._register_large(command, channel, header)
        told = _told(command, channel, header, _read_body(command, channel, header))
        _watch(channel, self._routes)
        drops = self._settings.namesrv.delete_topic_with_broker_registration
        try:
            master = self._routes.register(told, channel, drop_missing_topics=drops)
        except OutOfOrder as error:
            raise _out_of_order(told, error) from None
        return self._registered(command, *master)

    async def _register_large(
        self, command: Command, channel: Channel, header: RegisterBrokerRequestHeader
    ) -> Command:
        async with self._large:  # one at a time: each takes many times its size in memory
            if channel.closed:
                raise ConnectionError("closed before its turn")
            body = await asyncio.to_thread(_read_body, command, channel, header)
            if channel.closed:  # nobody would forget it with its connection
                raise ConnectionError("closed while its registration was read")
            told = _told(command, channel, header, body)
            _watch(channel, self._routes)
            drops = self._settings.namesrv.delete_topic_with_broker_registration
            try:
                master = await self._routes.register_in_steps(
                    told, channel, drop_missing_topics=drops
                )
            except OutOfOrder as error:
                raise _out_of_order(told, error) from None
        return self._registered(command, *master)

    def _registered(self, command: Command, master: str | None, ha_address: str | None) -> Command:
        fields = RegisterBrokerResponseHeader(ha_server_addr=ha_address, master_addr=master)
        ordered = None
        if self._settings.namesrv.return_order_topic_config_to_broker:
            ordered = self._kv.namespace(ORDER_TOPIC_NAMESPACE)
        return command.reply(
            fields=fields.encode(), body=b"" if ordered is None else KVTable(table=ordered).encode()
        )

    def unregister(self, command: Command, channel: Channel) -> Command:
        """A broker says that it stops."""
        header = UnRegisterBrokerRequestHeader.decode(command.fields)
        self._routes.unregister(
            header.cluster_name, header.broker_name, header.broker_addr, header.broker_id
        )
        return command.reply()

    def query_data_version(self, command: Command, channel: Channel) -> Command:
        """Whether a broker has to register again; if not, it has shown that it lives."""
        header = QueryDataVersionRequestHeader.decode(command.fields)
        version = DataVersion.decode(command.body)
        changed = self._routes.is_changed(header.broker_addr, version)
        if not changed:
            self._routes.touch(header.broker_addr)
        known = self._routes.data_version(header.broker_addr)
        return command.reply(
            fields=QueryDataVersionResponseHeader(changed=changed).encode(),
            body=b"" if known is None else known.encode(),
        )

    def heartbeat(self, command: Command, channel: Channel) -> Command:
        """A 5.x broker says between registrations that it lives."""
        header = BrokerHeartbeatRequestHeader.decode(command.fields)
        self._routes.touch(header.broker_addr)
        return command.reply()

    def member_group(self, command: Command, channel: Channel) -> Command:
        """The addresses under one broker name, as 5.x brokers ask for them."""
        header = GetBrokerMemberGroupRequestHeader.decode(command.fields)
        broker = self._routes.brokers.get(header.broker_name)
        known = broker is not None and broker.cluster == header.cluster_name
        group = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=dict(broker.broker_addrs) if broker is not None and known else {},
        )
        body = GetBrokerMemberGroupResponseBody(broker_member_group=group)
        return command.reply(body=body.encode())

    def cluster_info(self, command: Command, channel: Channel) -> Command:
        """Every cluster, broker name and address."""
        return command.reply(body=self._routes.cluster_info().encode())

    def wipe_write_permission(self, command: Command, channel: Channel) -> Command:
        """Stop clients from writing to a broker, until its topics change."""
        header = WipeWritePermOfBrokerRequestHeader.decode(command.fields)
        count = self._routes.wipe_write_permission(header.broker_name)
        log.info("%s wiped write permission of %s: %d topics", channel.remote, header.broker_name,
                 count)  # fmt: skip
        return command.reply(
            fields=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count).encode()
        )

    def add_write_permission(self, command: Command, channel: Channel) -> Command:
        """Let clients write to a broker again."""
        header = AddWritePermOfBrokerRequestHeader.decode(command.fields)
        count = self._routes.add_write_permission(header.broker_name)
        log.info("%s added write permission of %s: %d topics", channel.remote, header.broker_name,
                 count)  # fmt: skip
        return command.reply(
            fields=AddWritePermOfBrokerResponseHeader(add_topic_count=count).encode()
        )


class TopicHandlers:
    """Topics and their routes."""

    def __init__(
        self,
        routes: Routes,
        kv: KvConfig,
        settings: NamesrvSettings,
        elsewhere: ProductEnvironment | None,
    ) -> None:
        self._routes = routes
        self._kv = kv
        self._settings = settings
        self._elsewhere = elsewhere

    def route(self, command: Command, channel: Channel) -> Command | Awaitable[Command]:
        """Where a topic is."""
        header = GetRouteInfoRequestHeader.decode(command.fields)
        route = self._routes.route(header.topic)
        if route is None:
            if self._elsewhere is not None:
                return self._route_elsewhere(self._elsewhere, command, header)
            raise _no_route(header.topic)
        # With clusterTest Java adds it whatever the settings say (ClusterTestRequestProcessor).
        if self._settings.namesrv.order_message_enable or self._elsewhere is not None:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_NAMESPACE, header.topic)
        return self._answer(command, header, route)

    async def _route_elsewhere(
        self, elsewhere: ProductEnvironment, command: Command, header: GetRouteInfoRequestHeader
    ) -> Command:
        route = await elsewhere.route(header.topic)
        if route is None:
            raise _no_route(header.topic)
        return self._answer(command, header, route)

    def _answer(
        self, command: Command, header: GetRouteInfoRequestHeader, route: TopicRouteData
    ) -> Command:
        standard = command.version >= STANDARD_JSON or bool(header.accept_standard_json_only)
        return command.reply(body=route.encode(standard=standard))

    def listing(self, topics: Callable[[], TopicList]) -> Handler:
        """A handler that answers one of the lists."""
        return lambda command, channel: command.reply(body=topics().encode())

    def of_cluster(self, command: Command, channel: Channel) -> Command:
        """The topics of a cluster."""
        header = GetTopicsByClusterRequestHeader.decode(command.fields)
        return command.reply(body=self._routes.topics_of_cluster(header.cluster).encode())

    def delete(self, command: Command, channel: Channel) -> Command:
        """Forget a topic; a broker that still has it brings it back when it registers."""
        header = DeleteTopicFromNamesrvRequestHeader.decode(command.fields)
        self._routes.delete_topic(header.topic, header.cluster_name)
        log.info("%s deleted topic %s", channel.remote, header.topic)
        return command.reply()

    def register(self, command: Command, channel: Channel) -> Command:
        """One topic of a 5.x broker that tells its topics one by one."""
        header = RegisterTopicRequestHeader.decode(command.fields)
        self._routes.add_topic(header.topic, TopicRouteData.decode(command.body).queue_datas)
        return command.reply()


class ConfigHandlers:
    """The name server's own settings."""

    def __init__(self, settings: NamesrvSettings) -> None:
        self._settings = settings

    def update(self, command: Command, channel: Channel) -> Command:
        """Change settings of the allow list, all or none."""
        try:
            properties = read_update(command.body)
            changed = self._settings.update(properties)
        except NotUpdatable as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
        except (ConfigError, ValueError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("%s changed settings: %s", channel.remote, ", ".join(sorted(changed)) or "none")
        return command.reply()

    def get(self, command: Command, channel: Channel) -> Command:
        """All settings as a .properties text."""
        return command.reply(body=self._settings.text().encode())


def _no_route(topic: str) -> Refused:
    return Refused(
        ResponseCode.TOPIC_NOT_EXIST,
        f"No topic route info in name server for the topic: {topic}{HELP}",
    )


def _read_body(
    command: Command, channel: Channel, header: RegisterBrokerRequestHeader
) -> RegisterBrokerBody:
    """What a registration says; of a large one to be called in a thread."""
    if header.body_crc32 and body_crc32(command.body) != header.body_crc32:
        log.warning("registration with a wrong checksum", extra={"peer": channel.remote})
        raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    return _registration_body(command, header.compressed)


def _told(
    command: Command,
    channel: Channel,
    header: RegisterBrokerRequestHeader,
    body: RegisterBrokerBody,
) -> Registration:
    wrapper = body.topic_config_serialize_wrapper
    timeout = header.heartbeat_timeout_millis
    start = command.fields.get(START_FIELD)
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        address=header.broker_addr,
        broker_id=header.broker_id,
        ha_address=header.ha_server_addr,
        data_version=wrapper.data_version,
        topics=wrapper.topic_config_table,
        filter_servers=(
            body.filter_server_list if command.version >= WITH_FILTER_SERVERS else None
        ),
        mappings=wrapper.topic_queue_mapping_info_map or {},
        timeout=None if timeout is None else timeout / 1000,
        beacon_source=None if start is None else (start, channel.remote_address[0]),
        beacon_interval=_beacon_interval(command.fields.get(INTERVAL_FIELD, "")),
        order=RegistrationOrder.decode(command.fields),
    )


def _out_of_order(told: Registration, error: OutOfOrder) -> Refused:
    log.info("%s: not registered: %s", told.address, error)
    return Refused(ResponseCode.SYSTEM_ERROR, str(error))


def _registration_body(command: Command, compressed: bool) -> RegisterBrokerBody:
    if not command.body:
        return RegisterBrokerBody()  # no topics, of version 0
    if command.version < WITH_FILTER_SERVERS:
        wrapper = TopicConfigAndMappingSerializeWrapper.decode(command.body)
        return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    if compressed:
        return decompress(command.body, mappings=command.version >= WITH_MAPPINGS)
    return RegisterBrokerBody.decode(command.body)


def _beacon_interval(text: str) -> float:
    """Seconds between two beacons, of a field in ms; 0 where it says nothing reasonable."""
    try:
        return min(max(int(text) / 1000, 0.0), LONGEST_BEACON_INTERVAL)
    except ValueError:
        return 0.0


def _watch(channel: Channel, routes: Routes) -> None:
    """Have the routes told, once, when a broker's connection closes."""
    if "routes" not in channel.attributes:
        channel.attributes["routes"] = routes
        channel.on_close.append(routes.connection_lost)


def _saved(change: Callable[[], None]) -> None:
    try:
        change()
    except OSError as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"the KV configuration cannot be saved: {error.strerror}"
        ) from None
