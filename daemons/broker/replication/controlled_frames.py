"""The replication protocol in controller mode (Java: AutoSwitchHAConnection, AutoSwitchHAClient).

    slave to master    i32 1, i16 whether an empty store starts with the last file, i16 whether it
                       only learns, i64 its id
    master to slave    i32 1, i32 size of what follows the head, i64 end of its log, i32 its last
                       epoch; then for each epoch i32 number, i64 start
    slave to master    i32 2, i64 physical offset up to which it has the log; the first one is
                       where it wants to start
    master to slave    i32 2, i32 size, i64 physical offset, i32 epoch of that offset, i64 start
                       of the epoch, i64 confirm offset; then that many bytes of the log's file

A frame with bytes never crosses the start of an epoch. A frame of size 0 is a heartbeat with the
confirm offset. The first number is the state of Java's connection: HANDSHAKE or TRANSFER.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mq.daemons.broker.replication.epochs import MOST_EPOCHS, Epoch, check_rising
from mq.daemons.broker.replication.frames import MOST_FRAME, BadFrame

HANDSHAKE = 1
TRANSFER = 2

SLAVE_HELLO = struct.Struct(">ihhq")
MASTER_HELLO = struct.Struct(">iiqi")
ACK = struct.Struct(">iq")
DATA_HEAD = struct.Struct(">iiqiqq")
_STATE = struct.Struct(">i")
_EPOCH = struct.Struct(">iq")
_START = struct.Struct(">ii")  # of a master's frame: state, size


class SlaveHello(NamedTuple):
    """The identification of a slave."""

    broker_id: int
    from_last_file: bool
    is_learner: bool

    def encode(self) -> bytes:
        return SLAVE_HELLO.pack(HANDSHAKE, self.from_last_file, self.is_learner, self.broker_id)


class MasterHello(NamedTuple):
    """The end of a master's log, and its epochs, the newest MOST_EPOCHS of them."""

    end: int
    epochs: Sequence[Epoch]

    def encode(self) -> bytes:
        epochs = self.epochs[-MOST_EPOCHS:]
        last = epochs[-1].number if epochs else -1
        head = MASTER_HELLO.pack(HANDSHAKE, _EPOCH.size * len(epochs), self.end, last)
        return head + b"".join(_EPOCH.pack(*epoch) for epoch in epochs)


class Piece(NamedTuple):
    """The bytes of a frame that have arrived so far; empty for a heartbeat."""

    offset: int
    epoch: Epoch
    confirmed: int
    data: memoryview


def encode_ack(offset: int) -> bytes:
    """Encode a slave's acknowledgement."""
    return ACK.pack(TRANSFER, offset)


class SlaveReader:
    """Parses a slave's input, which arrives in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self, data: bytes) -> Iterator[SlaveHello | int]:
        """Yield identifications and offsets. Raises BadFrame."""
        data = self._rest + data if self._rest else bytes(data)
        position, self._rest = 0, b""
        while len(data) - position >= _STATE.size:
            (state,) = _STATE.unpack_from(data, position)
            size = {HANDSHAKE: SLAVE_HELLO.size, TRANSFER: ACK.size}.get(state)
            if size is None:
                raise BadFrame(f"is not a slave of a replica set with controllers (state {state})")
            if len(data) - position < size:
                break
            if state == HANDSHAKE:
                _, from_last_file, is_learner, broker_id = SLAVE_HELLO.unpack_from(data, position)
                yield SlaveHello(broker_id, from_last_file == 1, is_learner == 1)
            else:
                yield int(ACK.unpack_from(data, position)[1])
            position += size
        self._rest = data[position:]


class MasterReader:
    """Parses a master's output, which arrives in pieces."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._offset = 0  # of the next byte
        self._left = 0  # bytes left of the frame
        self._epoch = Epoch(-1, 0)
        self._confirmed = 0

    def read(self, data: bytes) -> Iterator[MasterHello | Piece]:
        """Yield complete items. Raises BadFrame."""
        view = memoryview(data)
        position = 0
        while position < len(view):
            if self._left:
                piece = view[position : position + self._left]
                yield Piece(self._offset, self._epoch, self._confirmed, piece)
                self._left -= len(piece)
                self._offset += len(piece)
                position += len(piece)
                continue
            missing = self._needed() - len(self._head)
            self._head += view[position : position + missing]
            position += missing
            if len(self._head) == self._needed():
                hello = self._begin()
                if hello is not None:
                    yield hello
                elif not self._left:
                    yield Piece(self._offset, self._epoch, self._confirmed, view[:0])

    def _needed(self) -> int:
        """The size of the head, as far as it is known from its first bytes."""
        if len(self._head) < _START.size:
            return _START.size
        state, size = _START.unpack_from(self._head)
        if state == TRANSFER and 0 <= size <= MOST_FRAME:
            return int(DATA_HEAD.size)
        whole = size % _EPOCH.size == 0 and 0 <= size <= MOST_EPOCHS * _EPOCH.size
        if state == HANDSHAKE and whole:
            return int(MASTER_HELLO.size + size)
        raise BadFrame(f"this is not a master with a controller: state {state}, {size} bytes")

    def _begin(self) -> MasterHello | None:
        head, self._head = bytes(self._head), bytearray()
        if _STATE.unpack_from(head)[0] == HANDSHAKE:
            return _read_hello(head)
        _, self._left, self._offset, number, start, self._confirmed = DATA_HEAD.unpack(head)
        self._epoch = Epoch(number, start)
        if self._left and not 0 <= start <= self._offset:
            raise BadFrame(f"bytes at {self._offset} in an epoch from {start} on")
        return None


def _read_hello(head: bytes) -> MasterHello:
    _, _, end, _ = MASTER_HELLO.unpack_from(head)
    epochs = [Epoch(*each) for each in _EPOCH.iter_unpack(head[MASTER_HELLO.size :])]
    try:
        check_rising(epochs)
    except ValueError as error:
        raise BadFrame(f"the master's epochs: {error}") from None
    if end < 0:
        raise BadFrame(f"the master's log ends at {end}")
    return MasterHello(end, epochs)
