"""Registration: announces this broker and its topics to the name servers.

Everything is registered with every name server at the start and each registerNameServerPeriod. When
topics change, the changed ones are registered, or everything if the last round failed. Changes
during a round are sent together in the next one. Each name server has its own link, which decides
what to send.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from mq.client.errors import MQError, RouteNotFound
from mq.client.machine import random_ids
from mq.client.routing.address_server import address_server_url, fetch_text
from mq.client.routing.routes import read_queues
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.name_server_link import NameServerLink
from mq.daemons.broker.name_servers.registration_requests import Content, RegistrationRequests
from mq.daemons.broker.peer_sessions import PeerSessions
from mq.daemons.broker.replication.controlled import ControlledRole
from mq.daemons.broker.replication.master_addresses import MasterAddresses
from mq.daemons.broker.replication.master_discovery import MasterDiscovery
from mq.daemons.broker.roles import is_slave, may_act_as_master
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.config import ConfigError
from mq.daemons.host_addresses import parse_name_servers
from mq.daemons.supervision import Tasks
from mq.protocol.bodies import DataVersion, KVTable, MessageQueue, TopicConfig
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import Permission
from mq.protocol.headers.broker import RegisterBrokerResponseHeader

log = logging.getLogger(__name__)

# Seconds: consumers query their queues every 20 s, and routes for them may be this old.
ROUTE_AGE = 5.0
# Seconds that a change of a topic waits for name servers; tools give up after 5 s.
ANNOUNCE_TIMEOUT = 3.0
_NO_TOPICS: dict[str, TopicConfig] = {}


class Registration:
    """The broker's entry in the routes: an async context manager. Leaving it unregisters.

    Entering it waits a limited time until the name servers know the broker. `first_round` is set
    when every name server has replied once, or has failed to. A slave registers itself without
    topics, which its master registers, unless it may act as the master; `masters` has the masters
    that name servers return.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        port: int,
        ha_port: int,
        tasks: Tasks,
        masters: MasterAddresses | None = None,
        role: ControlledRole | None = None,
    ) -> None:
        """``role`` exists if controllers elect the master; then name servers do not name it."""
        self._settings = settings
        self._topics = topics
        self.address = f"{settings.broker.broker_ip1}:{port}"
        self.start = random_ids.random_bytes(8).hex()  # identifies this start in beacons
        self.ha_address = f"{settings.broker.broker_ip2}:{ha_port}"
        self._requests = RegistrationRequests(settings, self.address, self.ha_address, self.start)
        self._tasks = tasks
        self._sessions = PeerSessions(settings)
        self._links: dict[str, NameServerLink] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._connecting = asyncio.Lock()  # one list of name servers at a time
        self._round = asyncio.Event()  # set when a round has ended; each round has its own
        self.first_round = asyncio.Event()
        self.filter_servers: Callable[[], Sequence[str]] = tuple
        self.says_farewell = True  # when leaving; otherwise the connections just end
        self._is_slave = is_slave(settings)
        self._registers_topics = not self._is_slave or may_act_as_master(settings)
        self._role = role
        self.masters = masters or MasterAddresses(settings.store.ha_master_address or "")
        self._named_masters = MasterDiscovery(self.masters, self.address)

    async def __aenter__(self) -> Self:
        if self._registers_topics:
            self._topics.on_change.append(self.topic_changed)
        self._settings.on_change.append(self._settings_changed)
        await self._connect_to(self._settings.name_servers())
        if not self._links:
            self.first_round.set()
        if self._asks_address_server():
            self._tasks.spawn(self._ask_address_server, "address server")
        # "Ready" means that clients find the broker through the name servers, but a dead one must
        # not delay it for long.
        try:
            async with asyncio.timeout(ANNOUNCE_TIMEOUT):
                await self.first_round.wait()
        except TimeoutError:
            silent = [link.address for link in self.links() if link.answers is None]
            log.warning("not registered yet: no reply from %s", ", ".join(silent))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._registers_topics:
            self._topics.on_change.remove(self.topic_changed)
        self._settings.on_change.remove(self._settings_changed)
        await self._connect_to([])

    def reload_key(self) -> None:
        """Read namesrvAclFile again; if it is invalid, the key does not change."""
        if not self._sessions.reload_key("name servers"):
            return
        for link in self._links.values():
            link.session.credentials = self._sessions.key
            link.notify(None)

    # notifications by the broker -------------------------------------------------------

    def topic_changed(self, topic: str) -> None:
        """Announce that a topic was created, changed or deleted; an empty name means all."""
        for link in self._links.values():
            link.notify(topic if topic in self._topics.table else None)

    def query_master(self) -> None:
        """Query the master at the name servers again, because it does not answer."""
        for link in self._links.values():
            link.notify(None)

    def filter_servers_changed(self) -> None:
        """Announce the changed list of filter servers."""
        for link in self._links.values():
            link.notify(None)

    def master_comes(self, address: str, ha_address: str) -> None:
        """Follow a master that has announced its addresses before it registered, as long as name
        servers name no master.
        """
        if self._is_slave and self._role is None:
            self._named_masters.announced(address, ha_address)

    def was_master(self, address: str) -> bool:
        """Whether name servers have last named the master at an address."""
        return address == self._named_masters.last

    async def announced(self) -> None:
        """Wait a limited time until every change so far is registered with all name servers that
        answer.
        """
        wanted = {link: link.requested for link in self._links.values()}
        try:
            async with asyncio.timeout(ANNOUNCE_TIMEOUT):
                while any(
                    link.answers is not False and link.done < requested
                    for link, requested in wanted.items()
                    if self._links.get(link.address) is link
                ):
                    await self.round_ended()
        except TimeoutError:
            log.warning("the name servers do not answer; they will get a change later")

    async def round_ended(self) -> None:
        """Wait until the next round with any name server has ended, successfully or not."""
        await self._round.wait()

    def links(self) -> Iterable[NameServerLink]:
        """The name servers with which this broker registers."""
        return list(self._links.values())

    def unregistered(self) -> list[str]:
        """The addresses of name servers with which the broker is not registered."""
        return [
            link.address
            for link in self.links()
            if not (link.answers and link.session.is_connected(link.address))
        ]

    async def queues_of(self, topic: str) -> list[MessageQueue] | None:
        """The queues of a topic on all brokers that the name servers know, or on this one.

        None for a topic that does not exist.
        """
        for link in self.links():
            try:
                return read_queues(topic, await link.session.route(topic, max_age=ROUTE_AGE))
            except RouteNotFound:  # another name server may know it: this one may have just started
                continue
            except MQError as error:
                log.debug("no route of %s from %s: %s", topic, link.address, error)
        known = self._topics.get(topic)
        if known is None or not known.perm & Permission.READ:
            return None
        name = self._settings.broker.broker_name
        return [MessageQueue(topic, name, queue_id) for queue_id in range(known.read_queue_nums)]

    def _settings_changed(self, names: frozenset[str]) -> None:
        if "namesrvAddr" in names:
            self._tasks.spawn(
                lambda: self._connect_to(self._settings.name_servers()), "new name servers"
            )
        if "brokerPermission" in names:
            for link in self._links.values():
                link.notify(None)

    # replies of name servers --------------------------------------------------------------

    def _content(self) -> Content:
        table = self._topics.table if self._registers_topics else _NO_TOPICS
        version = self._topics.data_version
        if self._role is not None:
            version = DataVersion(
                timestamp=version.timestamp,
                counter=version.counter,
                state_version=self._role.master_epoch,
            )
        permission = self._settings.broker.broker_permission
        return Content(table, version, permission, tuple(self.filter_servers()))

    def _round_ended(self) -> None:
        if all(link.answers is not None for link in self._links.values()):
            self.first_round.set()
        ended, self._round = self._round, asyncio.Event()
        ended.set()

    def _taken(
        self, link: NameServerLink, header: RegisterBrokerResponseHeader, body: bytes
    ) -> None:
        if self._is_slave:  # a slave gets the order from its master, with the topics
            if self._role is None:
                addresses = header.master_addr, header.ha_server_addr
                self._named_masters.reported(link.address, *addresses)
            return
        answering = [each for each in self._links.values() if each.answers is not False]
        if body and answering[:1] == [link]:  # the reply of one name server, not of each in turn
            self._tasks.spawn(lambda: self._take_ordered(body), "ordered topics")

    async def _take_ordered(self, body: bytes) -> None:
        """Apply the ordered topics from the name servers (their ORDER_TOPIC_CONFIG)."""
        try:
            await self._topics.set_ordered(KVTable.decode(body).table)
        except (RemoteProtocolError, OSError) as error:
            log.error("cannot apply the ordered topics of the name server: %s", error)

    # the list of name servers ---------------------------------------------------------------------

    async def _connect_to(self, addresses: list[str]) -> None:
        """Register with these name servers from now on, and unregister from others."""
        async with self._connecting:
            for address in addresses:
                if address not in self._links:
                    await self._add(address)
            gone = [link for address, link in self._links.items() if address not in addresses]
            for link in gone:
                del self._links[link.address]
            await asyncio.gather(*(self._leave(link) for link in gone))

    async def _add(self, address: str) -> None:
        link = NameServerLink(
            address, self._settings, self._requests, self._content, self._sessions
        )
        link.on_round = self._round_ended
        link.on_taken = self._taken
        link.seeks_master = self._seeks_master
        await link.session.open()
        link.notify(None)
        self._links[address] = link
        self._running[address] = self._tasks.spawn(link.run, f"registration with {address}")

    def _seeks_master(self) -> bool:
        """Whether to register repeatedly until a master is named. A slave that registers topics
        does not, because each registration is large, and it finds the master by other means.
        """
        if not self._is_slave or self._registers_topics:
            return False
        return self._role is None and not self.masters.address

    async def _leave(self, link: NameServerLink) -> None:
        if self._role is None:
            self._named_masters.forget(link.address)
        running = self._running.pop(link.address)
        running.cancel()
        # otherwise its last registration could arrive after the unregistration
        await asyncio.wait([running])
        await link.leave(farewell=self.says_farewell)

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
