"""Registration requests of brokers."""

import asyncio
import logging
from collections.abc import Awaitable

from mq.daemons.beacon import INTERVAL_FIELD, START_FIELD
from mq.daemons.channel import Channel
from mq.daemons.dispatch import LARGE_BODY, Refused
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.namesrv.kv import ORDER_TOPIC_NAMESPACE, KvConfig
from mq.daemons.namesrv.registration import OutOfOrder, Outranked, Registration
from mq.daemons.namesrv.routes import Routes
from mq.daemons.namesrv.snodes import LONGEST_TEXT, Snodes
from mq.daemons.registration_body import body_crc32, decompress
from mq.daemons.registration_order import RegistrationOrder
from mq.daemons.request_codes import serves
from mq.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    SnodeData,
    TopicConfigAndMappingSerializeWrapper,
)
from mq.protocol.codes import RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.broker import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from mq.protocol.headers.snode import GetSnodeInfoRequestHeader, RegisterSnodeRequestHeader
from mq.protocol.versions import version_number

log = logging.getLogger(__name__)

# Older brokers send only the topics in the body of REGISTER_BROKER (DefaultRequestProcessor).
WITH_FILTER_SERVERS = version_number("V3_0_11")
WITH_MAPPINGS = version_number("V5_0_0")

# Limit in bytes of a compressed registration decoded in the event loop: larger ones take
# milliseconds.
LARGE_COMPRESSED = 1024

# Limit in seconds of the beacon interval that a broker announces: any broker that is silent for a
# few minutes is evicted.
LONGEST_BEACON_INTERVAL = 40.0


class SnodeHandlers:
    """Registers snodes, and lists them."""

    def __init__(self, snodes: Snodes) -> None:
        self._snodes = snodes

    @serves(SnodeCode.REGISTER_SNODE)
    def register(self, command: Command, channel: Channel) -> Command:
        """Register a snode with its address for clients."""
        header = RegisterSnodeRequestHeader.decode(command.fields)
        texts = (header.snode_name, header.snode_addr, header.cluster_name)
        if not all(0 < len(text) <= LONGEST_TEXT for text in texts):
            raise RemoteProtocolError(
                f"the name, address and cluster of a snode must have 1 to {LONGEST_TEXT} characters"
            )
        self._snodes.register(
            SnodeData(
                snode_name=header.snode_name,
                address=header.snode_addr,
                cluster_name=header.cluster_name,
            )
        )
        return command.reply()

    @serves(SnodeCode.GET_SNODE_CLUSTER_INFO)
    def all_snodes(self, command: Command, channel: Channel) -> Command:
        """All snodes, by name and by cluster."""
        return command.reply(body=self._snodes.info().encode())

    @serves(SnodeCode.GET_SNODE_INFO)
    def of_cluster(self, command: Command, channel: Channel) -> Command:
        """The snodes of one cluster. Java keys them by the cluster's name, so that only one is
        left.
        """
        header = GetSnodeInfoRequestHeader.decode(command.fields)
        return command.reply(body=self._snodes.info(header.snode_cluster_name).encode())


class RegistrationHandlers:
    """Serves registrations and unregistrations."""

    def __init__(self, routes: Routes, kv: KvConfig, settings: NamesrvSettings) -> None:
        self._routes = routes
        self._kv = kv
        self._settings = settings
        self._large = asyncio.Lock()

    @serves(RequestCode.REGISTER_BROKER)
    def register(self, command: Command, channel: Channel) -> Command | Awaitable[Command]:
        """Register a broker with its topics."""
        header = RegisterBrokerRequestHeader.decode(command.fields)
        if len(command.body) > (LARGE_COMPRESSED if header.compressed else LARGE_BODY):
            return self._register_large(command, channel, header)
        registration = _registration_of(
            command, channel, header, _read_body(command, channel, header)
        )
        _watch(channel, self._routes)
        drops = self._settings.namesrv.delete_topic_with_broker_registration
        try:
            master = self._routes.register(registration, channel, drop_missing_topics=drops)
        except OutOfOrder as error:
            master = _not_taken(registration, error)
        return self._registered(command, *master)

    async def _register_large(
        self, command: Command, channel: Channel, header: RegisterBrokerRequestHeader
    ) -> Command:
        async with self._large:  # one at a time: each takes many times its size in memory
            if channel.closed:
                raise ConnectionError("closed before its turn")
            body = await asyncio.to_thread(_read_body, command, channel, header)
            if channel.closed:  # its close event is over, so the broker would never be removed
                raise ConnectionError("closed while its registration was read")
            registration = _registration_of(command, channel, header, body)
            _watch(channel, self._routes)
            drops = self._settings.namesrv.delete_topic_with_broker_registration
            try:
                master = await self._routes.register_in_steps(
                    registration, channel, drop_missing_topics=drops
                )
            except OutOfOrder as error:
                master = _not_taken(registration, error)
        return self._registered(command, *master)

    def _registered(self, command: Command, master: str | None, ha_address: str | None) -> Command:
        fields = RegisterBrokerResponseHeader(ha_server_addr=ha_address, master_addr=master)
        ordered = None
        if self._settings.namesrv.return_order_topic_config_to_broker:
            ordered = self._kv.namespace(ORDER_TOPIC_NAMESPACE)
        return command.reply(
            fields=fields.encode(), body=b"" if ordered is None else KVTable(table=ordered).encode()
        )

    @serves(RequestCode.UNREGISTER_BROKER)
    def unregister(self, command: Command, channel: Channel) -> Command:
        """Unregister a broker that stops."""
        header = UnRegisterBrokerRequestHeader.decode(command.fields)
        self._routes.unregister(
            header.cluster_name, header.broker_name, header.broker_addr, header.broker_id
        )
        return command.reply()

    @serves(RequestCode.QUERY_DATA_VERSION)
    def query_data_version(self, command: Command, channel: Channel) -> Command:
        """Return whether a broker must register again; if not, this counts as a heartbeat."""
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


def _read_body(
    command: Command, channel: Channel, header: RegisterBrokerRequestHeader
) -> RegisterBrokerBody:
    """Decode a registration; called in a thread if it is large."""
    if header.body_crc32 and body_crc32(command.body) != header.body_crc32:
        log.warning("registration with a wrong checksum", extra={"peer": channel.remote})
        raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    return _registration_body(command, header.compressed)


def _registration_of(
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
        acts=header.enable_acting_master,
    )


def _not_taken(registration: Registration, error: OutOfOrder) -> tuple[None, None]:
    """Refuse a registration of one of mq's brokers. A Java broker that was elected earlier than
    another is answered as if it was accepted, which is the reply that it knows.
    """
    log.info("refusing the registration of %s: %s", registration.address, error)
    if isinstance(error, Outranked) and registration.order is None:
        return None, None
    raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None


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
    """Seconds between two beacons, from a field in ms; 0 if it is unreasonable."""
    try:
        return min(max(int(text) / 1000, 0.0), LONGEST_BEACON_INTERVAL)
    except ValueError:
        return 0.0


def _watch(channel: Channel, routes: Routes) -> None:
    """Remove a broker from the routes when its connection closes; added once per channel."""
    if "routes" not in channel.attributes:
        channel.attributes["routes"] = routes
        channel.on_close.append(routes.connection_lost)
