"""A slave as its master sees it, where a controller keeps the set.

Not as with plain replication it says who it is, is told the epochs of this log, and begins where
both logs are the same. Each frame says of which epoch its bytes are, and up to where the log is
confirmed.

    handshake    who it is; each is answered, for Java's slaves say it again when they wait
    0            it has nothing: it begins with this log, or with its last file (syncFromLastFile)
    within       there
    before       nowhere: it is told that the connection lives, and no more
    behind       it has not compared what it has: its connection is closed
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
    """What a connection tells of its slave (`SyncState`)."""

    epochs: Epochs

    @property
    def confirmed(self) -> int:
        """Up to where the log is confirmed."""

    def joined(self, slave: "ControlledConnection") -> str:
        """A slave has said who it is; returns why it cannot be, or ""."""

    def acknowledged(self, slave: "ControlledConnection") -> None:
        """A slave has said up to where it has the log."""

    def left(self, slave: "ControlledConnection") -> None:
        """A connection has ended."""


class ControlledConnection(SlaveConnection):
    """A connection to the port of replication. ``id`` is what the controllers know the slave by,
    -1 before it has said so."""

    def __init__(self, master: Port, members: ReplicaSetView) -> None:
        super().__init__(master)
        self.id = -1
        self.is_learner = False
        self.told_confirmed = -1  # what it has been sent of that
        # Where the log ended when the last bytes were sent, and when that was.
        self.end_when_sent = 0
        self.had_all_at = clock.monotonic()
        self._sent_at = self.had_all_at
        self._members = members
        self._words = SlaveReader()
        self._from_last_file = False

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._members.left(self)

    def abort(self) -> None:
        super().abort()
        self._members.left(self)

    # what the slave says ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            for word in self._words.read(data):
                if not self._master.has(self):
                    return
                if isinstance(word, SlaveHello):
                    self._handshake(word)
                else:
                    self._take_offset(word)
        except BadFrame as error:
            self._refuse(f"{error}", self.acked)

    def _handshake(self, hello: SlaveHello) -> None:
        self._read_at = clock.monotonic()
        self._from_last_file, self.is_learner = hello.from_last_file, hello.is_learner
        if hello.broker_id != self.id:
            if self.id >= 0:
                self._refuse(f"has said that it is {self.id}, and now", hello.broker_id)
                return
            self.id = hello.broker_id
            why = self._members.joined(self)
            if why:
                self._refuse(f"{why}; it says that it is broker", hello.broker_id)
                return
        epochs = self._members.epochs.all
        self._transport.write(MasterHello(self._log.written, epochs).encode())

    def _take_offset(self, offset: int) -> None:
        if self.id < 0:
            self._refuse("has not said who it is, and asks for offset", offset)
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

    # what it is sent ----------------------------------------------------------------------------

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
                self._refuse("needs what was written before the first epoch, at", at)
                return
            epoch, end = found
            piece = data[position : position + min(most, end - at)]
            parts += (DATA_HEAD.pack(TRANSFER, len(piece), at, *epoch, confirmed), piece)
            position += len(piece)
        self.next = offset + position
        self.sent += position
        self.told_confirmed = confirmed
        self.end_when_sent, self._sent_at = self._log.written, clock.monotonic()
        self._transport.writelines(parts)

    def _heartbeat(self, offset: int) -> bytes:
        # Of the last byte: an epoch of which there is nothing yet is none that a slave may have.
        epochs = self._members.epochs
        found = epochs.at(max(offset - 1, 0))
        epoch = found[0] if found else epochs.all[0]
        self.told_confirmed = self._members.confirmed
        return DATA_HEAD.pack(TRANSFER, 0, offset, *epoch, self.told_confirmed)

    def tell_confirmed(self) -> None:
        """Say up to where the log is confirmed, unless bytes are on their way that say so."""
        is_idle = self.next >= self._log.written and not self._paused
        if self.next >= 0 and is_idle and self.told_confirmed < self._members.confirmed:
            self._wrote_at = clock.monotonic()
            self._transport.write(self._heartbeat(self.next))

    def seconds_without_all(self) -> float:
        """For how long it has not had all that it could have."""
        if self.next >= 0 and self.acked >= self._log.written:
            return 0.0
        return clock.monotonic() - self.had_all_at
