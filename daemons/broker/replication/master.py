"""The master's side of replication: a port, and a connection for each slave.

A slave says from where it wants the log, and gets all that is in it from there on, as it grows. A
batch of the store wakes the slaves once, whatever number of messages it has. What is in memory goes
out as slices of the mapped files; for a slave that is far behind a thread reads ahead of it, so
that the loop never waits for a disk.

Where a slave may begin (HAConnection.WriteSocketService):

    0                    the last file of the log, as in Java: a new slave is not given what is old
    within the log       there
    before its begin     nowhere: it is told that the connection lives, and no more
    behind its end       nowhere: it has what this log has not. It is turned away, and whoever asks
                         from the same host for the same offset later, when this log has grown over
                         it: it would go on there with a log that is not this one. (Java sends it
                         that.)

What strangers can have: a connection of MOST_SLAVES, until it has said nothing sensible for
haHousekeepingInterval, or another one needs its place; MOST_UNSENT bytes of the log in its buffer;
a line in our log for each address.
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
from mq.daemons.broker.store.commit_log import CommitLog

log = logging.getLogger(__name__)

# Connections at once. A master has a few slaves, each has one, and one that comes back may be here
# before its last connection has ended.
MOST_SLAVES = 32
# Who asked for offsets before the log had them, the newest: who asks again is no copy of us.
MOST_FUTURE_OFFSETS = 1000
TICK = 1.0  # seconds between two looks at silent connections


class HaMaster:
    """The port that slaves replicate from.

    ``on_ack`` is called with each offset that as many slaves have acknowledged as senders wait for
    (``wanted``), ``on_slaves`` when there are others, or they have come nearer. `log` has to be
    given between `bind` and `start`.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.log: CommitLog  # is there before `start`
        self.port = settings.store.ha_listen_port
        self.slaves: dict[SlaveConnection, None] = {}
        self.complaints = OncePerPeer()
        self.turned_away = 0
        self.on_ack: Callable[[int], None] = lambda offset: None
        self.on_slaves: Callable[[], None] = lambda: None
        self.wanted: Callable[[], int] = lambda: 1
        self.is_prompt = False  # whether somebody waits for slaves
        self.waits_for_disk = False  # with SYNC_FLUSH
        #: Makes the connection of a peer.
        self.connect: Callable[[], SlaveConnection] = lambda: SlaveConnection(self)
        #: Why nobody may replicate from here; "" while slaves may.
        self.closed_because = ""
        self._admission = Admission(settings)
        self._future: deque[tuple[str, int]] = deque(maxlen=MOST_FUTURE_OFFSETS)
        self._server: asyncio.Server | None = None
        self._has_closed = False  # what has been accepted and comes now is broken off
        self._timer: asyncio.TimerHandle | None = None
        self._reader: DiskThread | None = None
        self._scheduled = False

    async def bind(self) -> None:
        """Take the port. Raises OSError naming an address that is taken."""
        self._server = await bind(
            self._accept, self.settings.listen_host, self.port, setting="haListenPort"
        )
        self.port = bound_port(self._server)

    async def start(self) -> None:
        """Take connections."""
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
        await asyncio.sleep(0)  # the port is free behind it

    def _accept(self) -> asyncio.Protocol:
        return self.connect()

    # what connections ask ---------------------------------------------------------------------

    def admit(self, slave: SlaveConnection) -> bool:
        """Whether a peer that has connected may stay; it is told of what it does then."""
        host = slave.host
        if self._has_closed:
            return False
        if len(self.slaves) >= MOST_SLAVES:  # who has said nothing yet makes room
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
        """Whether a connection stays still."""
        return slave in self.slaves

    def acknowledged(self, offset: int) -> None:
        """A slave has the log up to an offset."""
        if self.wanted() == 1:
            self.on_ack(offset)
        else:
            self._acknowledge_nearest()
        self.on_slaves()

    def _acknowledge_nearest(self) -> None:
        nearest = self.nearest()
        if nearest is not None:
            self.on_ack(nearest)

    def forget(self, slave: SlaveConnection) -> None:
        """A connection has ended."""
        if self.slaves.pop(slave, slave) is None:
            asyncio.get_running_loop().call_soon(self._has_fewer)  # a batch may be being written

    def _has_fewer(self) -> None:
        self.on_slaves()
        self._acknowledge_nearest()  # fewer may be enough now

    def refuse_future(self, host: str, offset: int) -> bool:
        """Whether an offset is one that nobody at a host can have who has our log.

        What one host asks for says nothing of the slaves of others, which come there in time.
        """
        asked = host, offset
        if offset > self.log.written:
            if asked not in self._future:
                self._future.append(asked)
            return True
        return asked in self._future

    @property
    def reader(self) -> DiskThread:
        """The thread that reads what is not in memory."""
        if self._reader is None:
            self._reader = DiskThread("replication-read")
        return self._reader

    # what the store and senders need ------------------------------------------------------------

    def nearest(self) -> int | None:
        """The highest offset that as many connected slaves have acknowledged as senders wait for;
        None without so many."""
        wanted = self.wanted()
        if not wanted:
            return self.log.written
        acked = [slave.acked for slave in self.slaves if slave.acked >= 0]
        if len(acked) < wanted:
            return None
        return max(acked) if wanted == 1 else sorted(acked)[-wanted]

    @property
    def end(self) -> int:
        """Up to where slaves are sent the log.

        With SYNC_FLUSH nobody is shown here what is not on the disk: a slave that is read from
        would show it before, and still when a power cut has taken it here. Where senders wait for
        slaves and nobody reads there but when this broker is gone, both disks work at once.
        """
        if not self.waits_for_disk:
            return self.log.written
        is_at_once = self.is_prompt and not self.settings.broker.slave_read_enable
        return self.log.written if is_at_once else self.log.flushed

    def written(self) -> None:
        """The log has grown, or more of it is on the disk."""
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
        """End all connections: what they were sent is not in the log any more."""
        for slave in list(self.slaves):
            slave.abort()

    def _tick(self) -> None:
        self._timer = None
        now = clock.monotonic()
        for slave in list(self.slaves):
            slave.look(now)
        self.on_slaves()
        if self.slaves:
            self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)
