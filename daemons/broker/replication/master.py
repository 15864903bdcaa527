"""The master's side of replication: a port, and a connection for each slave.

A slave sends the offset from which it wants the log, and gets everything from there on, as the log
grows. A batch of the store wakes the slaves once, however many messages it has. Data in memory is
sent as slices of the mapped files; for a slave with a large lag a thread reads ahead, so that the
event loop never waits for a disk.

Where a slave may start (HAConnection.WriteSocketService):

    0                    at the last file of the log, as in Java: a new slave does not get old files
    within the log       at that offset
    before its start     nowhere: it only gets heartbeats
    after its end        nowhere: it has records that this log has not. It is refused, and so is
                         each later request of the same host for the same offset, when this log has
                         grown past it: the slave would continue there with a different log. (Java
                         sends it the log.)

Limits for unknown peers: MOST_SLAVES connections, each until it has sent nothing valid for
haHousekeepingInterval, or another peer needs its place; MOST_UNSENT bytes of the log in its buffer;
a log line for each address.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from mq.client.machine import clock
from mq.client.machine.threads import DiskThread
from mq.daemons.accept import bind, bound_port, start_accepting, stop_accepting
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.admission import Admission, OncePerPeer
from mq.daemons.broker.replication.slave_connection import SlaveConnection
from mq.daemons.broker.store import CommitLog

log = logging.getLogger(__name__)

# Concurrent connections. A master has a few slaves with one connection each, and a slave that
# reconnects may be here before its last connection has ended.
MOST_SLAVES = 32
# The newest requests, by host, for offsets that the log did not have: a peer that repeats one has
# no copy of this log.
MOST_FUTURE_OFFSETS = 1000
TICK = 1.0  # seconds between two checks for silent connections


class HaMaster:
    """The port from which slaves replicate.

    ``on_ack`` is called with each offset that the required number of slaves (``acks_needed``) has
    acknowledged, ``on_slaves`` when the number or the lag of the slaves has changed. `log` must be
    set between `bind` and `start`.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.log: CommitLog  # set before `start`
        self.port = settings.store.ha_listen_port
        self.slaves: dict[SlaveConnection, None] = {}
        self.complaints = OncePerPeer()
        self.turned_away = 0
        self.on_ack: Callable[[int], None] = lambda offset: None
        self.on_slaves: Callable[[], None] = lambda: None
        self.acks_needed: Callable[[], int] = lambda: 1
        self.is_prompt = False  # whether senders wait for slaves
        self.waits_for_disk = False  # with SYNC_FLUSH
        # Creates the connection of a peer.
        self.connect: Callable[[], SlaveConnection] = lambda: SlaveConnection(self)
        # Why slaves may not replicate from here; "" while they may.
        self.closed_because = ""
        self._admission = Admission(settings)
        self._future: deque[tuple[str, int]] = deque(maxlen=MOST_FUTURE_OFFSETS)
        self._server: asyncio.Server | None = None
        self._has_closed = False  # connections that were accepted and start now are aborted
        self._timer: asyncio.TimerHandle | None = None
        self._reader: DiskThread | None = None
        self._scheduled = False

    async def bind(self) -> None:
        """Bind the port. Raises OSError naming an address that is in use."""
        self._server = await bind(
            self._accept, self.settings.listen_host, self.port, setting="haListenPort"
        )
        self.port = bound_port(self._server)

    async def start(self) -> None:
        """Accept connections."""
        assert self._server is not None
        await start_accepting(self._server)

    def stop_accepting(self) -> None:
        if self._server is not None:
            stop_accepting(self._server)

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        self._has_closed = True
        self.stop_accepting()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for slave in list(self.slaves):
            slave.abort()
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await asyncio.to_thread(reader.stop)
        await asyncio.sleep(0)  # the port is free after that

    def _accept(self) -> asyncio.Protocol:
        return self.connect()

    # called by connections --------------------------------------------------------------------

    def admit(self, slave: SlaveConnection) -> bool:
        """Whether a new connection may stay; if so, it is registered."""
        host = slave.host
        if self._has_closed:
            return False
        if len(self.slaves) >= MOST_SLAVES:  # a connection that has sent nothing yet makes room
            silent = next((one for one in self.slaves if one.is_silent), None)
            if silent is not None:
                silent.abort()
        if self.closed_because:
            self.complaints.warn(
                host, "closed", "%s may not replicate: %s", host, self.closed_because
            )
        elif not self._admission.admits(host):
            self.complaints.warn(host, "admission", "%s", self._admission.refusal(host))
        elif len(self.slaves) >= MOST_SLAVES:
            self.complaints.warn(
                host, "connections", "%s may not replicate: %d do already", host, MOST_SLAVES
            )
        else:
            self.slaves[slave] = None
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)
            return True
        self.turned_away += 1
        return False

    def has(self, slave: SlaveConnection) -> bool:
        """Whether a connection is still registered."""
        return slave in self.slaves

    def acknowledged(self, offset: int) -> None:
        """Note that a slave has the log up to an offset."""
        if self.acks_needed() == 1:
            self.on_ack(offset)
        else:
            self._acknowledge_nearest()
        self.on_slaves()

    def _acknowledge_nearest(self) -> None:
        nearest = self.nearest()
        if nearest is not None:
            self.on_ack(nearest)

    def forget(self, slave: SlaveConnection) -> None:
        """Remove a connection that has ended."""
        if self.slaves.pop(slave, slave) is None:
            asyncio.get_running_loop().call_soon(self._has_fewer)  # a batch may be being written

    def _has_fewer(self) -> None:
        self.on_slaves()
        self._acknowledge_nearest()  # fewer acknowledgements may be enough now

    def refuse_future(self, host: str, offset: int) -> bool:
        """Whether a host cannot have an offset if it has a copy of this log.

        A request of one host says nothing about the slaves on other hosts, which reach that offset
        later.
        """
        asked = host, offset
        if offset > self.log.written:
            if asked not in self._future:
                self._future.append(asked)
            return True
        return asked in self._future

    @property
    def reader(self) -> DiskThread:
        """The thread that reads data that is not in memory."""
        if self._reader is None:
            self._reader = DiskThread("replication-read")
        return self._reader

    # called by the store and senders ------------------------------------------------------------

    def nearest(self) -> int | None:
        """The highest offset that the required number of connected slaves has acknowledged; None
        with fewer slaves.
        """
        acks_needed = self.acks_needed()
        if not acks_needed:
            return self.log.written
        acked = [slave.acked for slave in self.slaves if slave.acked >= 0]
        if len(acked) < acks_needed:
            return None
        return max(acked) if acks_needed == 1 else sorted(acked)[-acks_needed]

    @property
    def end(self) -> int:
        """The end of the log for slaves.

        With SYNC_FLUSH consumers see nothing here that is not on the disk: a slave that serves
        consumers would show it before, and still have it after a power failure has lost it here.
        But if senders wait for slaves, and slaves serve consumers only when this broker is down,
        disk and slaves work at the same time.
        """
        if not self.waits_for_disk:
            return self.log.written
        is_at_once = self.is_prompt and not self.settings.broker.slave_read_enable
        return self.log.written if is_at_once else self.log.flushed

    def written(self) -> None:
        """Note that the log has grown, or more of it is on the disk."""
        if not self.slaves:
            return
        if self.is_prompt:
            self._send()
        elif not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        for slave in list(self.slaves):
            slave.send()

    def drop_all(self) -> None:
        """End all connections, because records that they were sent are no longer in the log."""
        for slave in list(self.slaves):
            slave.abort()

    def _tick(self) -> None:
        self._timer = None
        now = clock.monotonic()
        for slave in list(self.slaves):
            slave.check(now)
        self.on_slaves()
        if self.slaves:
            self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)
