"""Telling the name servers that this broker lives and which topics it has.

Every name server is told everything at the start and each registerNameServerPeriod; when topics
change, those that changed, or everything where the last round failed. Changes that come while a
round runs go out together in the next one. A name server that does not answer is tried again in
the next round and delays no other.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from mq.client.errors import MQError, RouteNotFound
from mq.client.routes import read_queues
from mq.client.session import Session
from mq.daemons.beacon import START_FIELD
from mq.daemons.broker.config import BrokerSettings, parse_name_servers
from mq.daemons.broker.topics import READ_WRITE, Topics
from mq.daemons.config import ConfigError
from mq.daemons.registration_body import body_crc32, compress
from mq.daemons.service import Tasks
from mq.protocol.bodies import (
    DataVersion,
    KVTable,
    MessageQueue,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import Permission
from mq.protocol.headers.broker import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

log = logging.getLogger(__name__)

# Java holds registerNameServerPeriod within these (BrokerController.start).
SHORTEST_PERIOD = 10.0
LONGEST_PERIOD = 60.0
# A name server that did not answer is tried again sooner: it may just be starting.
RETRY_PERIOD = 5.0
UNREGISTER_TIMEOUT = 3.0
# Consumers ask for their queues every 20 s; routes for them are as old as this at most.
ROUTE_AGE = 5.0
# Whoever changes a topic waits this long for name servers at most; tools give up after 5 s.
ANNOUNCE_TIMEOUT = 3.0
ADDRESS_SERVER_TIMEOUT = 3.0
MOST_ADDRESS_BYTES = 64 * 1024


class NameServerLink:
    """One name server: its own connection, since it takes a broker's for the broker's life."""

    def __init__(
        self, address: str, connect_timeout: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self.address = address
        self.session = Session(address, connect_timeout=connect_timeout, tls=tls)
        self.in_step = False  # it has everything up to the last round
        self.answers: bool | None = None  # None: not asked yet


class Registration:
    """The broker's place in the routes: an async context manager. Leaving it unregisters.

    Entering it waits, but not long, until the name servers know the broker. `first_round` is set
    when every name server has answered once, or failed to. For a slave `master_address` and
    `master_ha_address` are what the name servers say.
    """

    def __init__(
        self, settings: BrokerSettings, topics: Topics, port: int, ha_port: int, tasks: Tasks
    ) -> None:
        self._settings = settings
        self._topics = topics
        self.address = f"{settings.broker.broker_ip1}:{port}"
        self.start = os.urandom(8).hex()  # what beacons are known by
        self._ha_address = f"{settings.broker.broker_ip2}:{ha_port}"
        self._tasks = tasks
        self._tls = settings.name_server_tls()
        self._links: dict[str, NameServerLink] = {}
        self._changed: set[str] = set()
        self._everything = True
        self._wake = asyncio.Event()
        self._requested = 0  # rounds asked for, and the number up to which they have been done
        self._done = 0
        self._round_done = asyncio.Condition()
        self.first_round = asyncio.Event()
        self.master_address: str | None = None
        self.master_ha_address: str | None = None

    async def __aenter__(self) -> Self:
        self._topics.on_change.append(self.topic_changed)
        self._settings.on_change.append(self._settings_changed)
        await self._connect_to(self._settings.name_servers())
        if self._asks_address_server():
            self._tasks.spawn(self._ask_address_server(), "address server")
        self._tasks.spawn(self._run(), "registration")
        # "Ready" means found through the name servers, but none that is dead may delay it for long.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.first_round.wait(), ANNOUNCE_TIMEOUT)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._topics.on_change.remove(self.topic_changed)
        self._settings.on_change.remove(self._settings_changed)
        await self._connect_to([])

    # what the rest of the broker says -------------------------------------------------------

    def topic_changed(self, topic: str) -> None:
        """A topic was made, changed or deleted; an empty name stands for all."""
        if topic in self._topics.table:
            self._changed.add(topic)
        else:
            self._everything = True
        self._ask_for_round()

    async def announced(self) -> None:
        """Wait, but not long, until every change so far has been told to who answers."""
        wanted = self._requested
        try:
            async with asyncio.timeout(ANNOUNCE_TIMEOUT), self._round_done:
                await self._round_done.wait_for(lambda: self._done >= wanted)
        except TimeoutError:
            log.warning("the name servers do not answer: a change will reach them later")

    def links(self) -> Iterable[NameServerLink]:
        """The name servers that this broker registers with."""
        return list(self._links.values())

    def register_again(self, link: NameServerLink) -> None:
        """A name server has closed the connection, and with it forgotten this broker."""
        link.in_step = False
        self._everything = True
        self._ask_for_round()

    async def queues_of(self, topic: str) -> list[MessageQueue] | None:
        """The queues of a topic on all brokers that the name servers know, or on this one.

        None for a topic that nobody knows.
        """
        for link in self._links.values():
            try:
                return read_queues(topic, await link.session.route(topic, max_age=ROUTE_AGE))
            except RouteNotFound:
                break
            except MQError as error:
                log.debug("no route of %s from %s: %s", topic, link.address, error)
        known = self._topics.get(topic)
        if known is None or not known.perm & Permission.READ:
            return None
        name = self._settings.broker.broker_name
        return [MessageQueue(topic, name, queue_id) for queue_id in range(known.read_queue_nums)]

    def _settings_changed(self, names: frozenset[str]) -> None:
        if "namesrvAddr" in names:
            self._tasks.spawn(self._connect_to(self._settings.name_servers()), "new name servers")
        if "brokerPermission" in names:
            self._everything = True
            self._ask_for_round()

    def _ask_for_round(self) -> None:
        self._requested += 1
        self._wake.set()

    # rounds ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        periodic = True
        while True:
            self._wake.clear()
            await self._round(periodic)
            self.first_round.set()
            try:
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
                periodic = False
            except TimeoutError:
                periodic = True

    def _pause(self) -> float:
        if any(not link.in_step for link in self._links.values()):
            return RETRY_PERIOD
        period = self._settings.broker.register_name_server_period / 1000
        return min(max(period, SHORTEST_PERIOD), LONGEST_PERIOD)

    async def _round(self, periodic: bool) -> None:
        covered = self._requested
        changed, self._changed = self._changed, set()
        everything, self._everything = self._everything or periodic, False
        links = list(self._links.values())
        replies = await asyncio.gather(
            *(
                self._tell(link, None if everything or not link.in_step else changed, periodic)
                for link in links
            )
        )
        ordered = next((reply.body for reply in replies if reply is not None and reply.body), b"")
        if periodic and ordered:
            self._take_ordered(ordered)
        async with self._round_done:
            self._done = covered
            self._round_done.notify_all()

    def _take_ordered(self, body: bytes | memoryview) -> None:
        """The name servers say which topics are ordered (their ORDER_TOPIC_CONFIG)."""
        try:
            self._topics.set_ordered(KVTable.decode(body).table)
        except (RemoteProtocolError, OSError) as error:
            log.error("the ordered topics of the name server are not taken over: %s", error)

    async def _tell(
        self, link: NameServerLink, changed: set[str] | None, periodic: bool
    ) -> Command | None:
        """Register at one name server, with these topics or all; its reply if it took them."""
        broker = self._settings.broker
        timeout = broker.register_broker_timeout_mills / 1000
        try:
            if periodic and link.in_step and not broker.force_register:
                if not await self._is_needed(link, timeout):
                    return None
            reply = await link.session.invoke(link.address, self._request(changed), timeout)
            if reply.code != ResponseCode.SUCCESS:
                raise MQError(f"{link.address}: refused: {reply.code} {reply.remark}")
            master = RegisterBrokerResponseHeader.decode(reply.fields)
        except (MQError, RemoteProtocolError) as error:
            if link.answers is not False:
                log.warning("not registered with name server %s: %s", link.address, error)
            link.answers = link.in_step = False
            return None
        if not link.answers:
            log.info("registered with name server %s as %s", link.address, self.address)
        link.answers = link.in_step = True
        self.master_address = master.master_addr
        self.master_ha_address = master.ha_server_addr
        return reply

    async def _is_needed(self, link: NameServerLink, timeout: float) -> bool:
        """Ask whether the name server still has our topics as they are; that is a sign of life."""
        broker = self._settings.broker
        header = QueryDataVersionRequestHeader(
            broker_name=broker.broker_name,
            broker_addr=self.address,
            cluster_name=broker.broker_cluster_name,
            broker_id=broker.broker_id,
        )
        version = self._topics.data_version
        command = Command(RequestCode.QUERY_DATA_VERSION, header.encode(), version.encode())
        reply = await link.session.invoke(link.address, command, timeout)
        if reply.code != ResponseCode.SUCCESS:
            return True
        changed = QueryDataVersionResponseHeader.decode(reply.fields).changed
        return changed or not reply.body or DataVersion.decode(reply.body) != version

    def _request(self, changed: set[str] | None) -> Command:
        broker = self._settings.broker
        table = self._topics.table
        if changed is not None:
            table = {name: table[name] for name in changed if name in table}
        if broker.broker_permission != READ_WRITE:
            # What the broker does not permit, no topic of it permits (registerBrokerAll).
            table = {n: _with_permission(t, broker.broker_permission) for n, t in table.items()}
        body = RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                topic_config_table=table, data_version=self._topics.data_version
            )
        )
        data = compress(body) if broker.compressed_register else body.encode()
        header = RegisterBrokerRequestHeader(
            broker_name=broker.broker_name,
            broker_addr=self.address,
            cluster_name=broker.broker_cluster_name,
            ha_server_addr=self._ha_address,
            broker_id=broker.broker_id,
            compressed=broker.compressed_register,
            body_crc32=body_crc32(data),
        )
        fields = header.encode()
        if self._settings.operation.liveness_beacon_enable:
            fields[START_FIELD] = self.start
        return Command(RequestCode.REGISTER_BROKER, fields, data)

    # which name servers ---------------------------------------------------------------------

    async def _connect_to(self, addresses: list[str]) -> None:
        """Register with these name servers from now on, and unregister from others."""
        gone = [link for address, link in self._links.items() if address not in addresses]
        for link in gone:
            del self._links[link.address]
        for address in addresses:
            if address not in self._links:
                link = NameServerLink(
                    address, self._settings.client.connect_timeout_millis / 1000, self._tls
                )
                await link.session.open()
                self._links[address] = link
                self._ask_for_round()
        await asyncio.gather(*(self._leave(link) for link in gone))

    async def _leave(self, link: NameServerLink) -> None:
        broker = self._settings.broker
        header = UnRegisterBrokerRequestHeader(
            broker_name=broker.broker_name,
            broker_addr=self.address,
            cluster_name=broker.broker_cluster_name,
            broker_id=broker.broker_id,
        )
        command = Command(RequestCode.UNREGISTER_BROKER, header.encode())
        try:
            if link.answers:
                await link.session.invoke(link.address, command, UNREGISTER_TIMEOUT)
                log.info("unregistered from name server %s", link.address)
        except MQError as error:
            log.warning("not unregistered from name server %s: %s", link.address, error)
        finally:
            await link.session.close()

    def _asks_address_server(self) -> bool:
        broker = self._settings.broker
        return broker.fetch_namesrv_addr_by_address_server and not broker.namesrv_addr

    async def _ask_address_server(self) -> None:
        broker = self._settings.broker
        url = address_server_url(
            broker.rmq_address_server_domain, broker.rmq_address_server_sub_group
        )
        while True:
            try:
                addresses = parse_name_servers(await asyncio.to_thread(fetch_text, url))
                if addresses and set(addresses) != set(self._links):
                    log.info("name servers from %s: %s", url, "; ".join(addresses))
                    await self._connect_to(addresses)
            except (OSError, ValueError, ConfigError) as error:
                log.warning("address server %s: %s", url, error)
            await asyncio.sleep(broker.update_name_server_addr_period / 1000)


def _with_permission(topic: TopicConfig, permission: int) -> TopicConfig:
    return TopicConfig(
        topic_name=topic.topic_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=permission,
    )


def address_server_url(domain: str, sub_group: str) -> str:
    """Where the list is (MixAll.getWSAddr): port 8080 unless the domain has one."""
    return f"http://{domain if ':' in domain else domain + ':8080'}/rocketmq/{sub_group}"


def fetch_text(url: str) -> str:
    """Read a short text over HTTP; blocks, so call it in a thread.

    Raises:
        OSError: no connection, or a status other than 200.
        ValueError: it is not short UTF-8 text.
    """
    import urllib.request  # costs 20 ms and 4 MB, and almost nobody has an address server

    with urllib.request.urlopen(url, timeout=ADDRESS_SERVER_TIMEOUT) as response:
        data: bytes = response.read(MOST_ADDRESS_BYTES + 1)
    if len(data) > MOST_ADDRESS_BYTES:
        raise ValueError(f"more than {MOST_ADDRESS_BYTES} bytes")
    return data.decode().strip()
