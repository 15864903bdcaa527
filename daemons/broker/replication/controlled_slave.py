"""The slave's side of replication, where a controller keeps the set (Java: AutoSwitchHAClient).

As `slave.py` has it, but the master says which epochs its log has. So the slave first cuts off what
is behind the last epoch that both have, and only then compares what is left, byte for byte: epochs
alone do not tell two masters apart that have written under one number, as Java's may. The log is
cut before the list of epochs is: a kill between the two leaves epochs of which nothing is there,
which the next start drops.
"""

import asyncio

from mq.client.errors import MQError
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.controlled import ControlledRole
from mq.daemons.broker.replication.controlled_frames import (
    MasterHello,
    MasterReader,
    Piece,
    SlaveHello,
    encode_ack,
)
from mq.daemons.broker.replication.epochs import Epoch, Epochs
from mq.daemons.broker.replication.master_addresses import MasterAddresses
from mq.daemons.broker.replication.slave import (
    HaSlave,
    MasterConnection,
    MasterConnectionLost,
    OnCut,
)
from mq.daemons.broker.store.confirm_offset import ConfirmOffset
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.replica import NotReplicated, Replica

HELLO_SECONDS = 5.0


class ControlledMasterConnection(MasterConnection):
    """A connection to a master that a controller has named."""

    def __init__(
        self,
        settings: BrokerSettings,
        replica: Replica,
        epochs: Epochs,
        bound: ConfirmOffset,
        broker_id: int,
    ) -> None:
        super().__init__(settings, replica)
        self._words = MasterReader()
        self._epochs = epochs
        self._bound = bound
        self._id = broker_id
        self._hello: asyncio.Future[MasterHello] = asyncio.get_running_loop().create_future()

    async def handshake(self) -> MasterHello:
        """Say who this is, and wait for what the master says. Raises Lost, or what else was wrong
        with the connection."""
        store = self._settings.store
        hello = SlaveHello(self._id, store.sync_from_last_file, store.async_learner)
        if self.ended.done():
            self.ended.result()
        self._transport.write(hello.encode())
        async with asyncio.timeout(HELLO_SECONDS):
            await asyncio.wait((self._hello, self.ended), return_when=asyncio.FIRST_COMPLETED)
        if not self._hello.done():
            self.ended.result()
        return self._hello.result()

    @property
    def _may_come(self) -> bool:
        return not self._hello.done() or super()._may_come

    def _take(self, data: bytes) -> None:
        replica = self._replica
        pieces: list[memoryview] = []
        begin = end = replica.received
        epoch: Epoch | None = None  # of the pieces
        confirmed = -1
        for word in self._words.read(data):
            if isinstance(word, MasterHello):
                if self._hello.done():
                    raise NotReplicated("the master says twice what it has")
                self._hello.set_result(word)
                continue
            if self._said < 0:
                raise NotReplicated("it sends before it is asked: it is no master of this set")
            confirmed = word.confirmed
            if not word.data:
                self._check_heartbeat(word, end if pieces else None)
                continue
            if pieces and (word.offset != end or word.epoch != epoch):
                self._store(begin, pieces, epoch)
                pieces = []
            if not pieces:
                begin, epoch = word.offset, word.epoch
            pieces.append(word.data)
            end = word.offset + len(word.data)
        if pieces:
            self._store(begin, pieces, epoch)
        if confirmed >= 0:
            self._bound.raise_to(min(confirmed, replica.end))

    def _store(self, begin: int, pieces: list[memoryview], epoch: Epoch | None) -> None:
        assert epoch is not None
        replica = self._replica
        replica.check_next(begin)
        if epoch != self._epochs.last:
            self._epochs.follow(*epoch)  # on the disk before the first byte of it
        data = b"".join(pieces)
        replica.receive(begin, data)
        self.received += len(data)

    def _check_heartbeat(self, word: Piece, end: int | None) -> None:
        # A Java master that does not know yet where to begin says -1.
        if end is None and word.offset >= 0:
            self._replica.check_heartbeat(word.offset)
        elif end is not None and word.offset != end:
            raise NotReplicated(f"the master goes on at {word.offset} behind {end}")

    def _pack(self, offset: int) -> bytes:
        return encode_ack(offset)


class ControlledSlave(HaSlave):
    """Keeps the store as the master's: `run`, until cancelled."""

    nobody = "there is no master now, or nobody says where it is replicated from"

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        addresses: MasterAddresses,
        role: ControlledRole,
        epochs: Epochs,
        bound: ConfirmOffset,
        on_cut: OnCut = lambda: None,
    ) -> None:
        super().__init__(settings, store, addresses, on_cut)
        self._role = role
        self._epochs = epochs
        self._bound = bound

    def _connect(self) -> MasterConnection:
        return ControlledMasterConnection(
            self._settings, self._replica, self._epochs, self._bound, self._role.broker_id
        )

    async def _compare(self, connection: MasterConnection, ha_address: str) -> None:
        assert isinstance(connection, ControlledMasterConnection)
        try:
            hello = await connection.handshake()
        except TimeoutError:
            raise MasterConnectionLost(
                f"the master says nothing within {HELLO_SECONDS:g} s"
            ) from None
        log = self._store.log
        point = self._epochs.common_point(hello.epochs, hello.end, log.written)
        if point is not None and point < log.minimum:
            raise NotReplicated(
                f"the master's log and this one are the same up to {point}, and this one begins at "
                f"{log.minimum}: to begin anew with what the master has, move "
                f"{self._store.root} away"
            )
        try:
            if point is not None and point < log.written and not connection.ended.done():
                await self._cut_unless_same(point, connection, ha_address)
            await super()._compare(connection, ha_address)
        except MQError as error:
            raise MasterConnectionLost(f"it cannot be compared: {error}") from error
        if not connection.ended.done():
            self._epochs.adopt(hello.epochs, log.written)

    async def _cut_unless_same(
        self, point: int, connection: MasterConnection, ha_address: str
    ) -> None:
        """Cut back to where the epochs of both logs part, but for records that are the same behind
        it. Raises what `_common_end` does.

        A master that lost its power, and keeps its epoch, begins it anew at the end of its log. All
        of that may be here, and have been acknowledged because it is: cut off, it would be at the
        master alone until it is copied again.
        """
        try:
            end = await self._common_end(connection, ha_address)
        except NotReplicated:  # no record is the same
            end = point
        why = "it was written in an epoch that the master does not have"
        if end is not None and end < self._store.log.written:
            await self._cut(max(end, point), why)
