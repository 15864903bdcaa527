"""A slave's connection at its master, in a replica set with controllers.

Unlike in plain replication the slave identifies itself, gets the epochs of this log, and starts
where both logs are equal. Each frame has the epoch of its bytes and the confirm offset.

    handshake    identifies the slave; each is answered, because Java's slaves repeat it while
                 they wait

Where a slave starts:

    0            an empty slave starts with this log, or with its last file (syncFromLastFile)
    within       at that offset
    before       nowhere: it only gets heartbeats
    after        it has not compared its log: its connection is closed
"""

from typing import Protocol

from mq.client.machine import clock
from mq.daemons.broker.replication.controlled_frames import (
    DATA_HEAD,
    TRANSFER,
    MasterHello,
    SlaveHello,
    SlaveReader,
)
from mq.daemons.broker.replication.epochs import Epochs
from mq.daemons.broker.replication.frames import BadFrame
from mq.daemons.broker.replication.slave_connection import Port, SlaveConnection


class ReplicaSetView(Protocol):
    """What a connection reports about its slave (`SyncState`)."""

    epochs: Epochs

    @property
    def confirmed(self) -> int:
        """The confirm offset of the log."""

    def joined(self, slave: "ControlledConnection") -> str:
        """A slave has identified itself; returns why it is refused, or ""."""

    def acknowledged(self, slave: "ControlledConnection") -> None:
        """A slave has acknowledged the log up to an offset."""

    def left(self, slave: "ControlledConnection") -> None:
        """A connection has ended."""


class ControlledConnection(SlaveConnection):
    """A connection to the replication port. ``id`` is the slave's id at the controllers, -1 before
    its handshake.
    """

    def __init__(self, master: Port, members: ReplicaSetView) -> None:
        super().__init__(master)
        self.id = -1
        self.is_learner = False
        self.sent_confirmed = -1  # the confirm offset that was sent last
        # The end of the log when the last bytes were sent, and the time of that.
        self.end_when_sent = 0
        self.had_all_at = clock.monotonic()
        self._sent_at = self.had_all_at
        self._members = members
        self._reader = SlaveReader()
        self._from_last_file = False

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._members.left(self)

    def abort(self) -> None:
        super().abort()
        self._members.left(self)

    # input from the slave -----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            for item in self._reader.read(data):
                if not self._master.has(self):
                    return
                if isinstance(item, SlaveHello):
                    self._handshake(item)
                else:
                    self._take_offset(item)
        except BadFrame as error:
            self._refuse(f"{error}", self.acked)

    def _handshake(self, hello: SlaveHello) -> None:
        self._read_at = clock.monotonic()
        self._from_last_file, self.is_learner = hello.from_last_file, hello.is_learner
        if hello.broker_id != self.id:
            if self.id >= 0:
                self._refuse(f"has identified itself as {self.id}, and now as", hello.broker_id)
                return
            self.id = hello.broker_id
            why = self._members.joined(self)
            if why:
                self._refuse(f"{why}; it identifies itself as broker", hello.broker_id)
                return
        epochs = self._members.epochs.all
        self._transport.write(MasterHello(self._log.written, epochs).encode())

    def _take_offset(self, offset: int) -> None:
        if self.id < 0:
            self._refuse("has not identified itself, and requests offset", offset)
            return
        self._heard(offset, offset)
        if self._master.has(self) and self.next >= 0:
            if self.acked >= self._log.written:
                self.had_all_at = clock.monotonic()
            elif self.acked >= self.end_when_sent:
                self.had_all_at = self._sent_at
            self._members.acknowledged(self)

    def _is_future(self, offset: int) -> bool:
        return offset > self._log.written

    def _start_of_empty(self) -> int:
        return super()._start_of_empty() if self._from_last_file else self._log.minimum

    # output to the slave ------------------------------------------------------------------------

    def _send_frames(self, data: memoryview) -> None:
        self._flow.took(len(data))
        most = max(1, self._master.settings.store.ha_transfer_batch_size)
        confirmed = self._members.confirmed
        parts: list[bytes | memoryview] = []
        position, offset = 0, self.next
        while position < len(data):
            at = offset + position
            found = self._members.epochs.at(at)
            if found is None:
                self._refuse("needs records from before the first epoch, at", at)
                return
            epoch, end = found
            piece = data[position : position + min(most, end - at)]
            parts += (DATA_HEAD.pack(TRANSFER, len(piece), at, *epoch, confirmed), piece)
            position += len(piece)
        self.next = offset + position
        self.sent += position
        self.sent_confirmed = confirmed
        self.end_when_sent, self._sent_at = self._log.written, clock.monotonic()
        self._transport.writelines(parts)

    def _heartbeat(self, offset: int) -> bytes:
        # The epoch of the last byte: a slave must not have an epoch without bytes.
        epochs = self._members.epochs
        found = epochs.at(max(offset - 1, 0))
        epoch = found[0] if found else epochs.all[0]
        self.sent_confirmed = self._members.confirmed
        return DATA_HEAD.pack(TRANSFER, 0, offset, *epoch, self.sent_confirmed)

    def send_confirmed(self) -> None:
        """Send the confirm offset, unless bytes are in flight that carry it."""
        is_idle = self.next >= self._log.written and not self._paused
        if self.next >= 0 and is_idle and self.sent_confirmed < self._members.confirmed:
            self._wrote_at = clock.monotonic()
            self._transport.write(self._heartbeat(self.next))

    def seconds_without_all(self) -> float:
        """For how many seconds it has lacked a part of the log."""
        if self.next >= 0 and self.acked >= self._log.written:
            return 0.0
        return clock.monotonic() - self.had_all_at
