"""A slave's connection at its master: what it was sent, and what it has acknowledged.

Flow control: limits the bytes that a slave is sent in each second (haFlowControlEnable).

As in Java (FlowMonitor) each connection has maxHaTransferByteInSecond for itself. Java sends the
bytes of a second at once, and then nothing until the next second; here the second is divided into
slices, so that a sender that waits for a slave waits for one slice at most. Unused bytes of a slice
are lost.
"""

import asyncio
import logging
from collections import deque
from typing import Any, Protocol

from mq.client.machine import clock
from mq.client.machine.threads import DiskThread
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.admission import OncePerPeer
from mq.daemons.broker.replication.frames import FRAME_HEAD, OffsetReader
from mq.daemons.broker.store import CommitLog, MappedFile
from mq.daemons.broker.store_config import MessageStoreConfig

log = logging.getLogger(__name__)

SLICES = 20  # of a second

# Unsent bytes that are passed to a connection ahead of its socket.
MOST_UNSENT = 1024 * 1024
# Bytes sent at once, before other connections have their turn.
_AT_ONCE = 1024 * 1024
# Marks record when which offset was sent: one for each interval in seconds, and this many at most.
_MARK_SECONDS = 0.01
_MAX_MARKS = 1000


class FlowControl:
    """The budget of a connection. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._slice = -1  # the number of the current slice
        self._sent = 0  # bytes sent in it

    def room(self, store: MessageStoreConfig, now: float) -> int:
        """Bytes that may be sent now; 0 until `seconds_left` have passed."""
        number = int(now * SLICES)
        if number != self._slice:
            self._slice, self._sent = number, 0
        return max(0, max(1, store.max_ha_transfer_byte_in_second // SLICES) - self._sent)

    def took(self, size: int) -> None:
        """Count sent bytes."""
        self._sent += size

    def seconds_left(self, now: float) -> float:
        """The remaining time of the slice."""
        return (int(now * SLICES) + 1) / SLICES - now


class Port(Protocol):
    """The replication port of a connection (`HaMaster`)."""

    settings: BrokerSettings
    log: CommitLog
    complaints: OncePerPeer

    @property
    def end(self) -> int:
        """The end of the log for slaves."""

    def admit(self, slave: "SlaveConnection") -> bool:
        """Whether a peer may stay."""

    def has(self, slave: "SlaveConnection") -> bool:
        """Whether a connection is still registered."""

    def forget(self, slave: "SlaveConnection") -> None:
        """Remove a connection that has ended."""

    def refuse_future(self, host: str, offset: int) -> bool:
        """Whether a host cannot have an offset if it has a copy of this log."""

    def acknowledged(self, offset: int) -> None:
        """Note that a slave has the log up to an offset."""

    @property
    def reader(self) -> DiskThread:
        """The thread that reads data that is not in memory."""


class SlaveConnection(asyncio.Protocol):
    """A connection to the replication port.

    ``acked`` is the offset that the slave has acknowledged, -1 before its first one. ``next`` is
    the next offset that it is sent, -1 while it gets nothing.
    """

    def __init__(self, master: Port) -> None:
        self.host = ""
        self.remote = ""
        self.acked = -1
        self.next = -1
        self.sent = 0  # bytes of the log
        self.rate = 0.0  # bytes a second
        self._master = master
        self._log = master.log
        self._transport: Any = None
        self._offsets = OffsetReader()
        self._asked = -1  # where the slave wanted to start
        self._paused = False
        self._reading = False
        self._read_at = self._wrote_at = self._sampled_at = clock.monotonic()
        self._sent_before = 0
        self._marks: deque[tuple[int, float]] = deque()
        self._flow = FlowControl()
        self._next_slice: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.host = str(peer[0])
        self.remote = f"{peer[0]}:{peer[1]}"
        self._transport.set_write_buffer_limits(MOST_UNSENT)
        if not self._master.admit(self):
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        if self._master.has(self):
            self._master.forget(self)
            if self.acked >= 0:
                log.info(
                    "slave %s has disconnected; it has the log up to %d", self.remote, self.acked
                )

    @property
    def is_silent(self) -> bool:
        """Whether it has not sent its first offset yet."""
        return self._asked < 0

    def abort(self) -> None:
        """Abort the connection."""
        self._stop_waiting()
        self._master.forget(self)
        self._transport.abort()

    # input from the slave -----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._master.has(self):
            return
        offsets = self._offsets.read(data)
        if not offsets:
            return
        self._heard(*offsets)

    def _heard(self, first: int, last: int) -> None:
        """Handle received offsets: the first and the last of them."""
        self._read_at = clock.monotonic()
        if self._asked < 0:
            if not self._begin(first):
                return
        if last > max(self.next, self._asked):
            self._refuse("acknowledges an offset that it was not sent,", last)
        elif self.next >= 0 and last > self.acked:
            self.acked = last
            while self._marks and self._marks[0][0] <= last:
                self._marks.popleft()
            self._master.acknowledged(last)

    def _begin(self, offset: int) -> bool:
        """Handle the first offset of a slave, at which it wants to start."""
        commit_log, master = self._log, self._master
        if offset < 0 or self._is_future(offset):
            self._refuse(
                f"is not a slave of this broker, whose log ends at {commit_log.written}: it has "
                f"another broker's log, or this log has lost its end. It requests offset",
                offset,
            )
            return False
        self._asked = offset
        if offset == 0:
            self.next = self._start_of_empty()
            self.acked = 0
        elif offset < commit_log.minimum:
            master.complaints.warn(
                *(self.host, "too old", "slave %s requests offset %d, but the log starts at %d"),
                *(self.remote, offset, commit_log.minimum),
            )
            log.warning("the slave gets nothing: start it with an empty store")
            return True
        else:
            self.next = self.acked = offset
            master.complaints.forget(self.host)
        log.info("slave %s is replicating from %d on", self.remote, self.next)
        master.acknowledged(self.acked)
        self.send()
        return True

    def _is_future(self, offset: int) -> bool:
        """Whether the host cannot have that offset if it has a copy of this log."""
        return self._master.refuse_future(self.host, offset)

    def _start_of_empty(self) -> int:
        """Where an empty slave starts: with the last file, as in Java."""
        commit_log = self._log
        last = commit_log.written - commit_log.written % commit_log.file_size
        return max(last, commit_log.minimum)

    def _refuse(self, what: str, offset: int) -> None:
        self._master.complaints.warn(
            self.host, what[:20], "%s %s %d: its connection is closed", self.remote, what, offset
        )
        self.abort()

    # output to the slave ------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.send()

    def send(self) -> None:
        """Send more of the log, as far as the connection accepts it."""
        if self.next < 0 or self._paused or self._reading:
            return
        end = self._master.end
        if self.next >= end:
            return
        now = clock.monotonic()
        self._wrote_at = now
        if len(self._marks) < _MAX_MARKS and (
            not self._marks or now - self._marks[-1][1] >= _MARK_SECONDS
        ):
            self._marks.append((end, now))
        while not self._paused and self.next < end:
            file = self._log.file_at(self.next)
            if file is None:
                self._refuse("is too slow: the log was deleted up to its offset", self.next)
                return
            upto = min(end, file.end, self.next + self._room(now))
            if upto == self.next:
                return
            data = file.read_if_in_memory(self.next - file.start, upto - self.next)
            if data is None:
                self._read(file, self.next, upto - self.next)
                return
            self._send_frames(memoryview(data))

    def _room(self, now: float) -> int:
        """Bytes that may be sent at once; if none, sending continues in the next time slice."""
        store = self._master.settings.store
        if not store.ha_flow_control_enable:
            return _AT_ONCE
        room = self._flow.room(store, now)
        if not room and self._next_slice is None:
            loop = asyncio.get_running_loop()
            self._next_slice = loop.call_later(self._flow.seconds_left(now), self._resume)
        return min(room, _AT_ONCE)

    def _resume(self) -> None:
        self._next_slice = None
        self.send()

    def _stop_waiting(self) -> None:
        if self._next_slice is not None:
            self._next_slice.cancel()
            self._next_slice = None

    def _send_frames(self, data: memoryview) -> None:
        self._flow.took(len(data))
        most = max(1, self._master.settings.store.ha_transfer_batch_size)
        parts: list[bytes | memoryview] = []
        position, offset = 0, self.next
        while position < len(data):
            piece = data[position : position + most]
            parts += (FRAME_HEAD.pack(offset + position, len(piece)), piece)
            position += len(piece)
        self.next = offset + position
        self.sent += position
        self._transport.writelines(parts)

    def _read(self, file: MappedFile, offset: int, size: int) -> None:
        """Let a thread read the next data for the slave."""
        self._reading = True

        def done(data: bytes | None, error: Exception | None) -> None:
            self._reading = False
            if not self._master.has(self):
                return
            if error is not None or not data:
                self._refuse(f"needs a part of the log that is unreadable ({error}), at", offset)
                return
            self._send_frames(memoryview(data))
            self.send()

        self._master.reader.submit(lambda: file.read_part(offset - file.start, size), done)

    # its state ----------------------------------------------------------------------------------

    @property
    def lag(self) -> int:
        """Bytes that it has not acknowledged."""
        return max(0, self._log.written - max(self.acked, 0))

    def lag_seconds(self) -> float:
        """The age in seconds of the oldest unacknowledged data."""
        return clock.monotonic() - self._marks[0][1] if self._marks and self.lag else 0.0

    def check(self, now: float) -> None:
        """Called once a second: sends heartbeats, and ends the connection of a silent slave."""
        store = self._master.settings.store
        self.rate = (self.sent - self._sent_before) / max(now - self._sampled_at, 0.001)
        self._sent_before, self._sampled_at = self.sent, now
        if now - self._read_at > store.ha_housekeeping_interval / 1000:
            self._refuse("has sent nothing for haHousekeepingInterval; it was at", self.acked)
            return
        if self._asked < 0 or self._paused:
            return
        if now - self._wrote_at >= store.ha_send_heartbeat_interval / 1000:
            self._wrote_at = now
            offset = self.next if self.next >= 0 else self._asked
            self._transport.write(self._heartbeat(offset))

    def _heartbeat(self, offset: int) -> bytes:
        """A heartbeat with the next offset."""
        return FRAME_HEAD.pack(offset, 0)
