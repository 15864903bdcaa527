"""Sessions through snodes: requests to brokers are sent to a snode, with the broker's name.

Callers are unaffected: they name the broker's address from the route. The request goes to the snode
that `ReachableSnodes` selects, with the broker's name in the field `enodeName` (`n` in sends).
Snodes receive the heartbeats instead of brokers. Requests that snodes do not serve (ends of
transactions, replies, administration) go to brokers directly.

Name servers are queried every 30 s for the snodes (request 353). A snode whose connection ended is
lost until it has answered again; heartbeats check that each second. Its work continues at another
snode: repeatable requests are repeated at once; sends are retried by the producer, as after any
failure of a broker.

Source: the snode branch's MQClientInstance and NnodeAPI, as far as they go.

Selects the snode for each request. No I/O.

Every client assigns the queues of a topic to the snodes in turn, in the order of their addresses.
This spreads the load, and everything that concerns one queue meets at one snode: the sends to it,
which are pushed, and the committed offsets, which show a consumer's lag. (The snode branch takes
the next snode for each request, so that a queue's messages overtake each other, and no snode knows
its offsets.) If a snode is lost, the next one in that order takes over its queues.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Unpack
from zlib import crc32

from mq.client.errors import ClientError, ConnectError, MQError, RouteNotFound
from mq.client.options import ClientKeywords, ClientOptions
from mq.client.transport.peer import Peer
from mq.client.transport.session import Session
from mq.protocol.bodies import SnodeClusterInfo, TopicRouteData
from mq.protocol.codes import RequestCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.send import Letter

log = logging.getLogger(__name__)

SNODES_SECONDS = 30.0  # MQClientInstance.startScheduledTask
# Without any snode, or when no name server answers.
SNODES_RETRY_SECONDS = 1.0

_SENDS = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
# Repeatable requests, which are sent to another snode when a connection breaks.
_REPEATABLE = frozenset(
    (
        RequestCode.PULL_MESSAGE,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
    )
)
_SERVED = frozenset(
    (
        *_SENDS,
        *_REPEATABLE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.CHECK_CLIENT_CONFIG,
    )
)


class ReachableSnodes:
    """The snodes, and those that are lost: they are not used until they answer again."""

    def __init__(self, is_heard: Callable[[str], bool]) -> None:
        """`is_heard` returns whether anything was received over the connection to an address."""
        self._is_heard = is_heard
        self.addresses: tuple[str, ...] = ()
        self._lost: set[str] = set()

    def replace(self, addresses: Iterable[str]) -> None:
        """Replace the set of snodes."""
        self.addresses = tuple(sorted(set(addresses)))
        self._lost.intersection_update(self.addresses)

    def lose(self, address: str) -> None:
        """Record that the connection to a snode ended, or failed."""
        if address in self.addresses:
            self._lost.add(address)

    def has(self, address: str) -> bool:
        """Whether a snode is not lost."""
        if address in self._lost:
            if not self._is_heard(address):
                return False
            self._lost.discard(address)
        return True

    def choose(self, broker_name: str, fields: Mapping[str, str]) -> str | None:
        """Return the snode for a request to a broker with these fields; None if there is none.

        If all snodes are lost, the result is the same as if none were.
        """
        addresses = self.addresses
        if not addresses:
            return None
        topic = fields.get(Letter.TOPIC) or fields.get("topic", "")
        number = fields.get(Letter.QUEUE_ID) or fields.get("queueId", "0")
        place = crc32(f"{topic}@{broker_name}".encode())
        if number.isdigit():
            place += int(number)
        count = len(addresses)
        for turn in range(count):
            address = addresses[(place + turn) % count]
            if not self._lost or self.has(address):
                return address
        return addresses[place % count]

    @property
    def any_left(self) -> bool:
        """Whether a snode is not lost."""
        return any(map(self.has, self.addresses))


class SnodeSession(Session):
    """A session whose brokers are reached through snodes. An async context manager."""

    _directs = True

    def __init__(
        self,
        namesrv: str | Sequence[str],
        options: ClientOptions | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """See `Session`."""
        keywords["snode"] = True
        super().__init__(namesrv, options, **keywords)
        self._reachable = ReachableSnodes(self._is_heard)
        #: Called when the connection to a snode has ended.
        self.on_lost: list[Callable[[], None]] = []
        self._names: dict[str, str] = {}  # of brokers, by their addresses in routes

    @property
    def snodes(self) -> tuple[str, ...]:
        """The addresses of the known snodes."""
        return self._reachable.addresses

    async def open(self) -> None:
        """Prepare for sending. Safe to call again.

        Requests fail with RouteNotFound while no name server lists a snode.
        """
        if self._loop is not None:
            return
        await super().open()
        try:
            await self._find_snodes()
        except MQError as error:
            log.warning("no known snode yet: %s", error)
        self.keep_task(self._refresh_snodes())

    async def _refresh_snodes(self) -> None:
        while True:
            await asyncio.sleep(
                SNODES_SECONDS if self._reachable.any_left else SNODES_RETRY_SECONDS
            )
            try:
                await self._find_snodes()
            except MQError as error:
                log.warning("keeping the known snodes: %s", error)
            except Exception:
                log.exception("refresh of the snodes failed; keeping the known ones")

    async def _find_snodes(self) -> None:
        response = await self.call_name_server(Command(SnodeCode.GET_SNODE_CLUSTER_INFO))
        try:
            table = SnodeClusterInfo.decode(response.body).snode_table
        except RemoteProtocolError as error:
            raise ClientError(f"{self.name_server} lists no snodes: {error}") from None
        addresses = {snode.address for snode in table.values() if snode.address}
        # A name server that has just started lists none: keep the known ones, which may be alive.
        if addresses and addresses != set(self.snodes):
            log.info("snodes: %s", ", ".join(sorted(addresses)))
            self._reachable.replace(addresses)

        elif not self.snodes:
            log.warning("no name server knows a snode")

    async def _fetch_route(self, topic: str) -> TopicRouteData:
        route = await super()._fetch_route(topic)
        for broker in route.broker_datas:
            for address in broker.broker_addrs.values():
                self._names[address] = broker.broker_name
        return route

    def _direct(self, address: str, command: Command) -> str:
        """Return the snode for a request to `address`, and add the broker's name to the request.

        Raises RouteNotFound if there is no snode.
        """
        if command.code not in _SERVED or (name := self._names.get(address)) is None:
            return address
        if command.code not in _SENDS:
            command.fields = {**command.fields, "enodeName": name}
        snode = self._reachable.choose(name, command.fields)
        if snode is None:
            topic = command.fields.get("topic") or command.fields.get(Letter.TOPIC, "")
            raise RouteNotFound(topic, "no name server knows a snode")
        return snode

    async def invoke(self, address: str, command: Command, timeout: float | None = None) -> Command:
        if command.code in _REPEATABLE and address in self._names:
            for _ in self.snodes[1:]:
                first = Command(command.code, command.fields, command.body)
                try:
                    return await super().invoke(address, first, timeout)
                except ConnectError as error:
                    if not self._reachable.any_left:
                        raise
                    log.debug("retrying at another snode: %s", error)
        return await super().invoke(address, command, timeout)

    def heartbeat_peers(self, address: str) -> Iterable[str]:
        return self.snodes if address in self._names else (address,)

    def has_detour(self) -> bool:
        return self._reachable.any_left

    def known_brokers(self, *, replicas: bool = False) -> set[str]:
        """Return the addresses for heartbeats: the snodes, which do not pass their clients on to
        brokers.
        """
        return set(self.snodes)

    def drop_peer(self, peer: Peer) -> None:
        super().drop_peer(peer)
        if peer.address in self.snodes:
            self._reachable.lose(peer.address)
            for heard in self.on_lost if self._loop is not None else ():
                heard()

    def connection(self, address: str) -> object | None:
        return super().connection(self._snode_of(address))

    def ended(self, address: str) -> "asyncio.Future[None]":
        """Return a future for the end of a connection; for a broker it never completes.

        Snodes do not report the end of their connections to brokers, and a broker keeps this
        client's state, such as locks, when a snode dies.
        """
        if address in self._names:
            return asyncio.get_running_loop().create_future()
        return super().ended(address)

    def _snode_of(self, address: str) -> str:
        """Return the snode for requests about a broker but no queue; other addresses are
        unchanged.
        """
        name = self._names.get(address)
        return address if name is None else self._reachable.choose(name, {}) or address

    def _is_heard(self, address: str) -> bool:
        peer = self._peers.get(address)
        return peer is not None and peer.spoke
