"""Registration: telling the name servers that this broker lives and which topics it has.

Every name server is told everything at the start and each registerNameServerPeriod; when topics
change, those that changed, or everything where the last round failed. Changes that come while a
round runs go out together in the next one. Each name server has a link of its own, which decides
what it has to be told.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from mq.client.address_server import address_server_url, fetch_text
from mq.client.errors import MQError, RouteNotFound
from mq.client.machine import random_ids
from mq.client.routes import read_queues
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.name_server_link import NameServerLink
from mq.daemons.broker.name_servers.registration_requests import Content, RegistrationRequests
from mq.daemons.broker.peer_sessions import PeerSessions
from mq.daemons.broker.replication.controlled import ControlledRole
from mq.daemons.broker.replication.master_addresses import MasterAddresses
from mq.daemons.broker.replication.master_discovery import MasterDiscovery
from mq.daemons.broker.roles import is_slave, may_act_as_master
from mq.daemons.broker.tables.topics import Topics
from mq.daemons.config import ConfigError
from mq.daemons.host_addresses import parse_name_servers
from mq.daemons.supervision import Tasks
from mq.protocol.bodies import DataVersion, KVTable, MessageQueue, TopicConfig
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import Permission
from mq.protocol.headers.broker import RegisterBrokerResponseHeader

log = logging.getLogger(__name__)

# Consumers ask for their queues every 20 s; routes for them are as old as this at most.
ROUTE_AGE = 5.0
# Whoever changes a topic waits this long for name servers at most; tools give up after 5 s.
ANNOUNCE_TIMEOUT = 3.0
_NO_TOPICS: dict[str, TopicConfig] = {}


class Registration:
    """The broker's place in the routes: an async context manager. Leaving it unregisters.

    Entering it waits, but not long, until the name servers know the broker. `first_round` is set
    when every name server has answered once, or failed to. A slave registers itself and no topics,
    which are its master's to tell, unless it may have to act as the master; `masters` has what the
    name servers answer of that.
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
        """``role`` is there where controllers say who is master: name servers do not, then."""
        self._settings = settings
        self._topics = topics
        self.address = f"{settings.broker.broker_ip1}:{port}"
        self.start = random_ids.random_bytes(8).hex()  # what beacons are known by
        self.ha_address = f"{settings.broker.broker_ip2}:{ha_port}"
        self._requests = RegistrationRequests(settings, self.address, self.ha_address, self.start)
        self._tasks = tasks
        self._sessions = PeerSessions(settings)
        self._links: dict[str, NameServerLink] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._connecting = asyncio.Lock()  # one list of name servers after the other
        self._round = asyncio.Event()  # set when a round has ended; each has its own
        self.first_round = asyncio.Event()
        self.filter_servers: Callable[[], Sequence[str]] = tuple
        self.says_farewell = True  # when it is left; else its connections just end
        self._is_slave = is_slave(settings)
        self._tells_topics = not self._is_slave or may_act_as_master(settings)
        self._role = role
        self.masters = masters or MasterAddresses(settings.store.ha_master_address or "")
        self._named_masters = MasterDiscovery(self.masters, self.address)

    async def __aenter__(self) -> Self:
        if self._tells_topics:
            self._topics.on_change.append(self.topic_changed)
        self._settings.on_change.append(self._settings_changed)
        await self._connect_to(self._settings.name_servers())
        if not self._links:
            self.first_round.set()
        if self._asks_address_server():
            self._tasks.spawn(self._ask_address_server, "address server")
        # "Ready" means found through the name servers, but none that is dead may delay it for long.
        try:
            async with asyncio.timeout(ANNOUNCE_TIMEOUT):
                await self.first_round.wait()
        except TimeoutError:
            silent = [link.address for link in self.links() if link.answers is None]
            log.warning("not registered yet: no answer from %s", ", ".join(silent))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._tells_topics:
            self._topics.on_change.remove(self.topic_changed)
        self._settings.on_change.remove(self._settings_changed)
        await self._connect_to([])

    def reload_key(self) -> None:
        """Read namesrvAclFile again; one that cannot be used leaves the key as it was."""
        if not self._sessions.reload_key("name servers"):
            return
        for link in self._links.values():
            link.session.credentials = self._sessions.key
            link.tell(None)

    # what the rest of the broker says -------------------------------------------------------

    def topic_changed(self, topic: str) -> None:
        """A topic was made, changed or deleted; an empty name stands for all."""
        for link in self._links.values():
            link.tell(topic if topic in self._topics.table else None)

    def look_for_master(self) -> None:
        """Ask the name servers again who the master is: the one they named does not answer."""
        for link in self._links.values():
            link.tell(None)

    def filter_servers_changed(self) -> None:
        """There are others than before: name servers hear of it now."""
        for link in self._links.values():
            link.tell(None)

    def master_comes(self, address: str, ha_address: str) -> None:
        """A master that has not registered yet says where it is: it is followed while name servers
        name none."""
        if self._is_slave and self._role is None:
            self._named_masters.announced(address, ha_address)

    def was_master(self, address: str) -> bool:
        """Whether the master that name servers have named last is at an address."""
        return address == self._named_masters.last

    async def announced(self) -> None:
        """Wait, but not long, until every change so far has been told to who answers."""
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
            log.warning("the name servers do not answer: a change will reach them later")

    async def round_ended(self) -> None:
        """Wait until the next round with any name server has ended, well or not."""
        await self._round.wait()

    def links(self) -> Iterable[NameServerLink]:
        """The name servers that this broker registers with."""
        return list(self._links.values())

    def unregistered(self) -> list[str]:
        """The addresses of name servers that do not know the broker, or not any more."""
        return [
            link.address
            for link in self.links()
            if not (link.answers and link.session.is_connected(link.address))
        ]

    async def queues_of(self, topic: str) -> list[MessageQueue] | None:
        """The queues of a topic on all brokers that the name servers know, or on this one.

        None for a topic that nobody knows.
        """
        for link in self.links():
            try:
                return read_queues(topic, await link.session.route(topic, max_age=ROUTE_AGE))
            except RouteNotFound:  # another may know it: this one may have just started
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
                link.tell(None)

    # what the name servers say --------------------------------------------------------------

    def _content(self) -> Content:
        table = self._topics.table if self._tells_topics else _NO_TOPICS
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
        if self._is_slave:  # what is ordered it hears from its master, with the topics
            if self._role is None:
                addresses = header.master_addr, header.ha_server_addr
                self._named_masters.reported(link.address, *addresses)
            return
        answering = [each for each in self._links.values() if each.answers is not False]
        if body and answering[:1] == [link]:  # one name server's word, not each in turn
            self._tasks.spawn(lambda: self._take_ordered(body), "ordered topics")

    async def _take_ordered(self, body: bytes) -> None:
        """The name servers say which topics are ordered (their ORDER_TOPIC_CONFIG)."""
        try:
            await self._topics.set_ordered(KVTable.decode(body).table)
        except (RemoteProtocolError, OSError) as error:
            log.error("the ordered topics of the name server are not taken over: %s", error)

    # which name servers ---------------------------------------------------------------------

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
        link.tell(None)
        self._links[address] = link
        self._running[address] = self._tasks.spawn(link.run, f"registration with {address}")

    def _seeks_master(self) -> bool:
        """Whether to register again and again until a master is named. One that tells all its
        topics each time does not: it hears by other means that the master is there."""
        if not self._is_slave or self._tells_topics:
            return False
        return self._role is None and not self.masters.address

    async def _leave(self, link: NameServerLink) -> None:
        if self._role is None:
            self._named_masters.forget(link.address)
        running = self._running.pop(link.address)
        running.cancel()
        await asyncio.wait([running])  # its last registration is not to follow the farewell
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
