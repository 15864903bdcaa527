"""A slave as its master sees it: what it was sent, what it has acknowledged."""

import asyncio
import logging
from collections import deque
from typing import Any, Protocol

from mq.client.machine import clock
from mq.client.machine.threads import DiskThread
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.admission import OncePerPeer
from mq.daemons.broker.replication.flow import FlowControl
from mq.daemons.broker.replication.frames import FRAME_HEAD, OffsetReader
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.mapped_file import MappedFile

log = logging.getLogger(__name__)

# Bytes that are given to a connection ahead of what its socket takes.
MOST_UNSENT = 1024 * 1024
# In one go: then others have their turn.
_AT_ONCE = 1024 * 1024
# Marks of when what was sent: one for so many seconds, and so many at most.
_MARK_SECONDS = 0.01
_MOST_MARKS = 1000


class Port(Protocol):
    """The port of replication that a connection came to (`HaMaster`)."""

    settings: BrokerSettings
    log: CommitLog
    complaints: OncePerPeer

    @property
    def end(self) -> int:
        """Up to where slaves are sent the log."""

    def admit(self, slave: "SlaveConnection") -> bool:
        """Whether a peer may stay."""

    def has(self, slave: "SlaveConnection") -> bool:
        """Whether it stays still."""

    def forget(self, slave: "SlaveConnection") -> None:
        """It has ended."""

    def refuse_future(self, host: str, offset: int) -> bool:
        """Whether nobody at a host can have an offset who has our log."""

    def acknowledged(self, offset: int) -> None:
        """A slave has the log up to an offset."""

    @property
    def reader(self) -> DiskThread:
        """The thread that reads what is not in memory."""


class SlaveConnection(asyncio.Protocol):
    """A connection to the port of replication.

    ``acked`` is the offset that the slave has acknowledged, -1 as long as it has said nothing.
    ``next`` is what it is sent next, -1 while it gets nothing.
    """

    def __init__(self, master: Port) -> None:
        self.host = ""
        self.remote = ""
        self.acked = -1
        self.next = -1
        self.sent = 0  # bytes of the log
        self.rate = 0.0  # of them a second
        self._master = master
        self._log = master.log
        self._transport: Any = None
        self._offsets = OffsetReader()
        self._asked = -1  # where the slave wanted to begin
        self._paused = False
        self._reading = False
        self._read_at = self._wrote_at = self._looked_at = clock.monotonic()
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
                log.info("slave %s has left, with the log up to %d", self.remote, self.acked)

    @property
    def is_silent(self) -> bool:
        """Whether it has not said yet where it wants to begin."""
        return self._asked < 0

    def abort(self) -> None:
        """End the connection at once."""
        self._stop_waiting()
        self._master.forget(self)
        self._transport.abort()

    # what the slave says ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._master.has(self):
            return
        offsets = self._offsets.read(data)
        if not offsets:
            return
        self._heard(*offsets)

    def _heard(self, first: int, last: int) -> None:
        """The slave has said offsets: the first and the last of them."""
        self._read_at = clock.monotonic()
        if self._asked < 0:
            if not self._begin(first):
                return
        if last > max(self.next, self._asked):
            self._refuse("acknowledges what it was never sent, offset", last)
        elif self.next >= 0 and last > self.acked:
            self.acked = last
            while self._marks and self._marks[0][0] <= last:
                self._marks.popleft()
            self._master.acknowledged(last)

    def _begin(self, offset: int) -> bool:
        """What a slave says first is where it wants to begin."""
        commit_log, master = self._log, self._master
        if offset < 0 or self._is_future(offset):
            self._refuse(
                f"is no slave of this broker, whose log ends at {commit_log.written}: it has the "
                f"log of another, or this one has lost its end. It asks for offset",
                offset,
            )
            return False
        self._asked = offset
        if offset == 0:
            self.next = self._start_of_empty()
            self.acked = 0
        elif offset < commit_log.minimum:
            master.complaints.warn(
                *(self.host, "too old", "slave %s asks for offset %d, and the log begins at %d"),
                *(self.remote, offset, commit_log.minimum),
            )
            log.warning("it gets nothing: begin its store anew")
            return True
        else:
            self.next = self.acked = offset
            master.complaints.forget(self.host)
        log.info("slave %s replicates from %d on", self.remote, self.next)
        master.acknowledged(self.acked)
        self.send()
        return True

    def _is_future(self, offset: int) -> bool:
        """Whether nobody can have that offset who has our log."""
        return self._master.refuse_future(self.host, offset)

    def _start_of_empty(self) -> int:
        """Where one begins that has nothing: with the last file, as in Java."""
        commit_log = self._log
        last = commit_log.written - commit_log.written % commit_log.file_size
        return max(last, commit_log.minimum)

    def _refuse(self, what: str, offset: int) -> None:
        self._master.complaints.warn(
            self.host, what[:20], "%s %s %d: its connection is closed", self.remote, what, offset
        )
        self.abort()

    # what it is sent ----------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.send()

    def send(self) -> None:
        """Send what the log has more, as far as the connection takes it."""
        if self.next < 0 or self._paused or self._reading:
            return
        end = self._master.end
        if self.next >= end:
            return
        now = clock.monotonic()
        self._wrote_at = now
        if len(self._marks) < _MOST_MARKS and (
            not self._marks or now - self._marks[-1][1] >= _MARK_SECONDS
        ):
            self._marks.append((end, now))
        while not self._paused and self.next < end:
            file = self._log.file_at(self.next)
            if file is None:
                self._refuse("is too slow: what it needs has been deleted, offset", self.next)
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
        """Bytes that may be sent in one go; with none it goes on in the next slice of time."""
        store = self._master.settings.store
        if not store.ha_flow_control_enable:
            return _AT_ONCE
        room = self._flow.room(store, now)
        if not room and self._next_slice is None:
            loop = asyncio.get_running_loop()
            self._next_slice = loop.call_later(self._flow.seconds_left(now), self._go_on)
        return min(room, _AT_ONCE)

    def _go_on(self) -> None:
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
        """Have a thread read what the slave needs next."""
        self._reading = True

        def done(data: bytes | None, error: Exception | None) -> None:
            self._reading = False
            if not self._master.has(self):
                return
            if error is not None or not data:
                self._refuse(f"cannot be sent what the disk does not give ({error}), at", offset)
                return
            self._send_frames(memoryview(data))
            self.send()

        self._master.reader.submit(lambda: file.read_part(offset - file.start, size), done)

    # its state ----------------------------------------------------------------------------------

    @property
    def behind(self) -> int:
        """Bytes that it has not acknowledged."""
        return max(0, self._log.written - max(self.acked, 0))

    def lag_seconds(self) -> float:
        """For how long it has not had what was sent the longest ago."""
        return clock.monotonic() - self._marks[0][1] if self._marks and self.behind else 0.0

    def look(self, now: float) -> None:
        """Once a second: say that the connection lives; end it if the slave has said nothing."""
        store = self._master.settings.store
        self.rate = (self.sent - self._sent_before) / max(now - self._looked_at, 0.001)
        self._sent_before, self._looked_at = self.sent, now
        if now - self._read_at > store.ha_housekeeping_interval / 1000:
            self._refuse("has said nothing for haHousekeepingInterval; it was at", self.acked)
            return
        if self._asked < 0 or self._paused:
            return
        if now - self._wrote_at >= store.ha_send_heartbeat_interval / 1000:
            self._wrote_at = now
            offset = self.next if self.next >= 0 else self._asked
            self._transport.write(self._heartbeat(offset))

    def _heartbeat(self, offset: int) -> bytes:
        """What says that the connection lives, and what is sent next."""
        return FRAME_HEAD.pack(offset, 0)
