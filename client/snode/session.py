"""Sessions through snodes: what goes to brokers goes to a snode, which is told which broker.

All above this stays as it is: who asks a broker names its address, as routes have it, and the
request goes to the snode that `ReachableSnodes` has for it, with the broker's name in the field
`enodeName` (`n` in sends). Snodes get the heartbeats instead of brokers. Requests that they do not
serve (ends of transactions, replies, administration) go to brokers directly.

The name servers say each 30 s which snodes there are (353). A snode whose connection has ended is
lost until it has answered again; heartbeats look for that each second. What it had of ours goes on
at another one: requests that may be repeated are, at once; sends are tried again by the
producer, as with any broker that fails.

Source: the snode branch's MQClientInstance and NnodeAPI, as far as they go.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from mq.client.errors import ClientError, ConnectError, MQError, RouteNotFound
from mq.client.options import ClientKeywords, ClientOptions
from mq.client.peer import Peer
from mq.client.session import Session
from mq.client.snode.reachable import ReachableSnodes
from mq.protocol.bodies import SnodeClusterInfo, TopicRouteData
from mq.protocol.codes import RequestCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.send import Letter

log = logging.getLogger(__name__)

SNODES_SECONDS = 30.0  # MQClientInstance.startScheduledTask
# Without any, or when no name server answers.
SNODES_RETRY_SECONDS = 1.0

_SENDS = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
# What may be done twice: it is asked of another snode when a connection breaks.
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


class SnodeSession(Session):
    """A session whose brokers are reached through snodes. An async context manager."""

    _directs = True

    def __init__(
        self,
        namesrv: str | Sequence[str],
        options: ClientOptions | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """As `Session`."""
        keywords["snode"] = True
        super().__init__(namesrv, options, **keywords)
        self._ways = ReachableSnodes(self._is_heard)
        #: Called when the connection to a snode has ended.
        self.on_lost: list[Callable[[], None]] = []
        self._names: dict[str, str] = {}  # of brokers, by the addresses in routes

    @property
    def snodes(self) -> tuple[str, ...]:
        """The addresses of the snodes that name servers have told of."""
        return self._ways.addresses

    async def open(self) -> None:
        """Get ready to send. Safe to call again.

        Requests fail with RouteNotFound as long as no name server tells of a snode.
        """
        if self._loop is not None:
            return
        await super().open()
        try:
            await self._find_snodes()
        except MQError as error:
            log.warning("no snode is known yet: %s", error)
        self.keep_task(self._look_for_snodes())

    async def _look_for_snodes(self) -> None:
        while True:
            await asyncio.sleep(SNODES_SECONDS if self._ways.any_left else SNODES_RETRY_SECONDS)
            try:
                await self._find_snodes()
            except MQError as error:
                log.warning("the snodes stay as they are: %s", error)
            except Exception:
                log.exception("the snodes stay as they are")

    async def _find_snodes(self) -> None:
        response = await self.call_name_server(Command(SnodeCode.GET_SNODE_CLUSTER_INFO))
        try:
            table = SnodeClusterInfo.decode(response.body).snode_table
        except RemoteProtocolError as error:
            raise ClientError(f"{self.name_server} tells of no snodes: {error}") from None
        addresses = {snode.address for snode in table.values() if snode.address}
        # A name server that has just started knows none: those that are known may be there.
        if addresses and addresses != set(self.snodes):
            log.info("snodes: %s", ", ".join(sorted(addresses)))
            self._ways.replace(addresses)

        elif not self.snodes:
            log.warning("no name server knows a snode")

    async def _fetch_route(self, topic: str) -> TopicRouteData:
        route = await super()._fetch_route(topic)
        for broker in route.broker_datas:
            for address in broker.broker_addrs.values():
                self._names[address] = broker.broker_name
        return route

    def _direct(self, address: str, command: Command) -> str:
        """Where a request to `address` goes; it is told the broker that it is for.

        Raises RouteNotFound when there is no snode.
        """
        if command.code not in _SERVED or (name := self._names.get(address)) is None:
            return address
        if command.code not in _SENDS:
            command.fields = {**command.fields, "enodeName": name}
        snode = self._ways.choose(name, command.fields)
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
                    if not self._ways.any_left:
                        raise
                    log.debug("at another snode: %s", error)
        return await super().invoke(address, command, timeout)

    def heartbeat_peers(self, address: str) -> Iterable[str]:
        return self.snodes if address in self._names else (address,)

    def has_detour(self) -> bool:
        return self._ways.any_left

    def known_brokers(self, *, replicas: bool = False) -> set[str]:
        """Whom heartbeats go to: the snodes, which tell no broker of their clients."""
        return set(self.snodes)

    def drop_peer(self, peer: Peer) -> None:
        super().drop_peer(peer)
        if peer.address in self.snodes:
            self._ways.lose(peer.address)
            for heard in self.on_lost if self._loop is not None else ():
                heard()

    def connection(self, address: str) -> object | None:
        return super().connection(self._snode_of(address))

    def ended(self, address: str) -> "asyncio.Future[None]":
        """Of a broker it is never done: nobody tells us when its connection to a snode ends, and
        what it keeps for us, as locks, it keeps when a snode dies."""
        if address in self._names:
            return asyncio.get_running_loop().create_future()
        return super().ended(address)

    def _snode_of(self, address: str) -> str:
        """Where it goes what is about a broker and no queue; another address stays as it is."""
        name = self._names.get(address)
        return address if name is None else self._ways.choose(name, {}) or address

    def _is_heard(self, address: str) -> bool:
        peer = self._peers.get(address)
        return peer is not None and peer.spoke
