"""The slave's side of replication: connects to its master and stores the received log.

    connect     to the master's replication port; the master sends nothing yet
    compare     request the last record of this log from the master, on its port for requests, and
                truncate the part that it does not have (`common_end`). Only after the connection
                is open: a restart of the master ends it
    ask         send the end of this log, at once (a Java slave waits for five seconds)
    take        store each piece as it arrives; acknowledge once for all that arrived together
    doubt       stop reading while the master is asked whether queues restart, or miss messages,
                or while its topics and groups are copied because a record has an unknown topic
                (`Replica.doubt`)
    leave       when another master is named, although this one is alive: the sender of the log
                must be the broker that is queried

An acknowledgement means what the flush mode guarantees here: with ASYNC_FLUSH that the record is
written, as with Java, with SYNC_FLUSH that it is on the disk. Every error ends the connection, is
logged once while it stays the same, and is retried.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mq.client.errors import MQError
from mq.client.machine import clock
from mq.client.transport.caller import parse_address
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.common_end import common_end
from mq.daemons.broker.replication.frames import OFFSET, BadFrame, FrameReader
from mq.daemons.broker.replication.master_addresses import MasterAddresses
from mq.daemons.broker.replication.master_queries import MasterQueries
from mq.daemons.broker.store import (
    MessageStore,
    NotReplicated,
    Replica,
    StoreError,
    UnknownTopic,
    cut_end,
)

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
# Seconds between two attempts; the pause doubles while nothing is stored.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
TICK = 1.0

_ANOTHER = "another master is named"

# Called when the end of the log was truncated.
OnCut = Callable[[], None]
# Copies topics and groups from the master at an address, as `SlaveSynchronize.copy_ahead`.
CopyAhead = Callable[[str, UnknownTopic], Awaitable[int]]


class MasterConnectionLost(Exception):
    """The connection to the master has ended. The text says why."""


class MasterConnection(asyncio.Protocol):
    """A connection to a master. `ended` completes at its end, with MasterConnectionLost or another
    error.
    """

    def __init__(self, settings: BrokerSettings, replica: Replica) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.doubts = asyncio.Event()  # set while the master has to be asked
        self.received = 0  # bytes of the log
        self.rate = 0.0  # bytes a second
        self.read_at = self.wrote_at = clock.monotonic()
        self._settings = settings
        self._replica = replica
        self._transport: Any = None
        self._frames = FrameReader()
        self._acked = -1
        self._sampled_at, self._sampled_received = self.read_at, 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(
            MasterConnectionLost(
                f"the connection broke: {error}" if error else "the master has closed it"
            )
        )

    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        self.read_at = clock.monotonic()
        if not self._may_come:
            self._end(NotReplicated("it sends data without a request: not a replication port"))
            return
        try:
            self._take(data)
        except (BadFrame, StoreError, OSError) as error:
            self._end(error)
            return
        self._stored()

    def resume(self, decide: Callable[[], None]) -> None:
        """Continue after a doubt, with the replica's decision, unless the connection has ended."""
        self.doubts.clear()
        if self.ended.done():
            return
        try:
            decide()
        except (StoreError, OSError) as error:
            self._end(error)
            return
        self._transport.resume_reading()
        self._stored()

    def _stored(self) -> None:
        self.acknowledge()
        if self._replica.doubt is not None and not self.doubts.is_set():
            self._transport.pause_reading()
            self.doubts.set()

    @property
    def _may_come(self) -> bool:
        """Whether data was requested from the master."""
        return self._acked >= 0

    def _take(self, data: bytes) -> None:
        """Store the received data, joining adjacent pieces."""
        replica = self._replica
        pieces: list[memoryview] = []
        begin = end = replica.received
        for offset, piece in self._frames.read(data):
            if pieces and offset != end:
                raise NotReplicated(f"the master continues at {offset} after {end}")
            if not piece:
                if not pieces:
                    replica.check_heartbeat(offset)
                continue
            if not pieces:
                begin = offset
            pieces.append(piece)
            end = offset + len(piece)
        if pieces:
            replica.receive(begin, b"".join(pieces))
            self.received += end - begin

    def ask(self, offset: int) -> None:
        """Request the log from an offset on, unless the connection has ended."""
        if not self.ended.done():
            self._send_offset(offset)

    def acknowledge(self) -> None:
        """Acknowledge everything that is safe here, if that is more than before."""
        if self._acked >= 0 and not self.ended.done() and self._replica.safe > self._acked:
            self._send_offset(self._replica.safe)

    def _send_offset(self, offset: int) -> None:
        self._acked = offset
        self.wrote_at = clock.monotonic()
        self._transport.write(self._pack(offset))

    def _pack(self, offset: int) -> bytes:
        """Encode an offset."""
        return OFFSET.pack(offset)

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._end(MasterConnectionLost("this slave closed it"))

    def _end(self, why: Exception) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.ended.done():
            self.ended.set_exception(why)
            self.ended.exception()  # there may be no waiter
        if self._transport is not None:
            self._transport.abort()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)
        store, now = self._settings.store, clock.monotonic()
        self.rate = (self.received - self._sampled_received) / max(now - self._sampled_at, 0.001)
        self._sampled_received, self._sampled_at = self.received, now
        if now - self.read_at > store.ha_housekeeping_interval / 1000 and self._acked >= 0:
            self._end(
                MasterConnectionLost("the master has sent nothing for haHousekeepingInterval")
            )
        elif self._acked >= 0 and now - self.wrote_at >= store.ha_send_heartbeat_interval / 1000:
            self._send_offset(max(self._acked, self._replica.safe))


class HaSlave:
    """Replicates the store from its master: `run`, until cancelled.

    ``on_cut`` is called when the end of the log was truncated.
    """

    # The problem while no master is known.
    no_master = "no name server knows a master of this brokerName (haMasterAddress)"

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        addresses: MasterAddresses,
        on_cut: OnCut = lambda: None,
    ) -> None:
        assert store.replica is not None
        self.connection: MasterConnection | None = None  # while data may arrive over it
        self.connected = asyncio.Event()  # set while there is a connection
        self.master = ""  # the address of its peer
        self.problem = ""  # why nothing arrives, "" if it does
        self.transferred = 0  # bytes of earlier connections
        self.endings = 0  # ended connections and failed attempts to connect
        self.copy_ahead: CopyAhead  # set before `run`
        self._settings = settings
        self._store = store
        self._replica = store.replica
        self._addresses = addresses
        self._on_cut = on_cut
        self._pause = FIRST_PAUSE
        on_published = store.appender.publisher.on_published

        def published(batch: Any) -> None:
            on_published(batch)
            if self.connection is not None:
                self.connection.acknowledge()

        if store.appender.await_flush is not None:
            store.appender.publisher.on_published = published

    async def run(self) -> None:
        """Replicate from the current master."""
        while True:
            self._addresses.changed.clear()
            address = self._addresses.ha_address
            if not address:
                self._report(self.no_master)
                await self._addresses.changed.wait()
                continue
            try:
                await self._replicate(address)
            except (
                MasterConnectionLost,
                BadFrame,
                StoreError,
                MQError,
                OSError,
                UnicodeError,
            ) as error:
                self.endings += 1
                # UnicodeError: for a name that no host can have
                text = str(error) or type(error).__name__
                self._report(f"cannot replicate from the master at {address}: {text}")
            await self._wait()

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self._addresses.changed.wait()
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s", problem, extra={"failure": "replication"})
        self.problem = problem

    async def _replicate(self, address: str) -> None:
        """Connect, and store received data until the connection ends. Always raises."""
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()

        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await loop.create_connection(self._connect, host, port)
        before = self._store.log.written
        try:
            await self._store.flusher.drain()  # the requested offset is an acknowledgement, too
            await self._compare(connection, address)
            self._begin(connection, address)
            await self._run_connection(connection, address)
        finally:
            self.connection = None
            self.connected.clear()
            self.transferred += connection.received
            if self._store.log.written != before:
                self._pause = FIRST_PAUSE
            connection.close()

    @property
    def master_flush_offset(self) -> int:
        """The end of the master's log when it became master, 0 if unknown."""
        return self._addresses.flush_offset

    def _connect(self) -> MasterConnection:
        return MasterConnection(self._settings, self._replica)

    async def _compare(self, connection: MasterConnection, ha_address: str) -> None:
        """Make sure that this log is a prefix of the master's."""
        end = await self._common_end(connection, ha_address)
        if end is not None and end < self._store.log.written:
            await self._cut(end, "the master does not have it")

    async def _common_end(self, connection: MasterConnection, ha_address: str) -> int | None:
        """The end of the common part of both logs, by their records; None if it cannot be
        determined: the log is empty, or the connection has ended, perhaps together with its
        master.
        """
        store = self._store
        if store.log.written <= store.log.minimum:
            return None
        asked = self._master_address(ha_address)
        async with MasterQueries(asked, self._settings) as master:
            end = await common_end(store, master)
        if connection.ended.done():
            return None
        if asked != self._master_address(ha_address):
            raise MasterConnectionLost(_ANOTHER)
        self._check_is_named(ha_address)
        return end

    async def _cut(self, end: int, why: str) -> None:
        """Truncate the log at a physical offset. Raises OSError, StoreLoadError."""
        for damage in await cut_end(self._store, end, why):
            log.error("%s", damage)
        self._on_cut()

    async def _run_connection(self, connection: MasterConnection, address: str) -> None:
        """Wait for the end of a connection, resolving doubts meanwhile. Always raises."""
        changed = self._addresses.changed
        while True:
            self._check_is_named(address)
            changed.clear()
            news = [asyncio.create_task(one.wait()) for one in (changed, connection.doubts)]
            try:
                waiting: list[asyncio.Future[Any]] = [connection.ended, *news]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in news:
                    one.cancel()
            if connection.ended.done():
                connection.ended.result()
            if connection.doubts.is_set():
                await self._resolve_doubt(connection, address)

    async def _resolve_doubt(self, connection: MasterConnection, ha_address: str) -> None:
        """Ask the master about the doubt, and continue."""
        asked = self._master_address(ha_address)
        decide = await self._ask(asked)
        if asked != self._master_address(ha_address):
            raise MasterConnectionLost(_ANOTHER)
        if not connection.ended.done():
            connection.resume(decide)

    async def _ask(self, master_address: str) -> Callable[[], None]:
        """Ask the master about the doubt; returns the function that resolves it."""
        replica, doubt = self._replica, self._replica.doubt
        assert doubt is not None
        if isinstance(doubt, UnknownTopic):
            covered = await self.copy_ahead(master_address, doubt)
            return partial(replica.topics_copied, covered)
        async with MasterQueries(master_address, self._settings) as master:
            if doubt.number:
                shown = await master.shown(doubt.topic, doubt.queue_id, doubt.number)
                return partial(replica.decide_number, *shown)
            firsts = await master.first_offsets(replica.queues_in_doubt())
            return partial(replica.decide, firsts)

    def _check_is_named(self, ha_address: str) -> None:
        if self._addresses.ha_address != ha_address:
            self._pause = FIRST_PAUSE
            raise MasterConnectionLost(_ANOTHER)

    def _master_address(self, ha_address: str) -> str:
        """The master's address for requests: with Java's defaults one port below."""
        if self._addresses.address:
            return self._addresses.address
        host, port = parse_address(ha_address)
        return f"[{host}]:{port - 1}" if ":" in host else f"{host}:{port - 1}"

    def _begin(self, connection: MasterConnection, address: str) -> None:
        offset = self._replica.begin()
        if connection.ended.done():
            return
        if self._replica.safe < offset:
            raise NotReplicated("the log here is not flushed yet")
        self.connection, self.master, self.problem = connection, address, ""
        self.connected.set()
        log.info("replicating from the master at %s, from %d on", address, offset)
        connection.ask(offset)
