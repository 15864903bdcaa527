"""The slave's side of replication in a replica set with controllers (Java: AutoSwitchHAClient).

As `slave.py`, but the master sends the epochs of its log. So the slave first truncates everything
after the last epoch that both have, and then compares the rest byte for byte: epochs alone do not
distinguish two masters that have written under one number, as Java's may. The log is truncated
before the list of epochs: a kill in between leaves epochs without records, which the next start
drops.
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
from mq.daemons.broker.store import ConfirmOffset, MessageStore, NotReplicated, Replica

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
        self._reader = MasterReader()
        self._epochs = epochs
        self._bound = bound
        self._id = broker_id
        self._hello: asyncio.Future[MasterHello] = asyncio.get_running_loop().create_future()

    async def handshake(self) -> MasterHello:
        """Send this slave's identification, and wait for the master's. Raises MasterConnectionLost,
        or the error of the connection.
        """
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
        for item in self._reader.read(data):
            if isinstance(item, MasterHello):
                if self._hello.done():
                    raise NotReplicated("the master sends its handshake twice")
                self._hello.set_result(item)
                continue
            if self._acked < 0:
                raise NotReplicated(
                    "it sends data without a request: it is not a master of this set"
                )
            confirmed = item.confirmed
            if not item.data:
                self._check_heartbeat(item, end if pieces else None)
                continue
            if pieces and (item.offset != end or item.epoch != epoch):
                self._store(begin, pieces, epoch)
                pieces = []
            if not pieces:
                begin, epoch = item.offset, item.epoch
            pieces.append(item.data)
            end = item.offset + len(item.data)
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

    def _check_heartbeat(self, item: Piece, end: int | None) -> None:
        # A Java master that does not know yet where to start sends -1.
        if end is None and item.offset >= 0:
            self._replica.check_heartbeat(item.offset)
        elif end is not None and item.offset != end:
            raise NotReplicated(f"the master continues at {item.offset} after {end}")

    def _pack(self, offset: int) -> bytes:
        return encode_ack(offset)


class ControlledSlave(HaSlave):
    """Replicates the store from its master: `run`, until cancelled."""

    no_master = "there is no master now, or its replication address is unknown"

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
                f"the master has sent no handshake within {HELLO_SECONDS:g} s"
            ) from None
        log = self._store.log
        point = self._epochs.common_point(hello.epochs, hello.end, log.written)
        if point is not None and point < log.minimum:
            raise NotReplicated(
                f"the master's log and this one are equal up to {point}, but this one starts at "
                f"{log.minimum}: to start again from the master's log, move {self._store.root} away"
            )
        try:
            if point is not None and point < log.written and not connection.ended.done():
                await self._cut_unless_same(point, connection, ha_address)
            await super()._compare(connection, ha_address)
        except MQError as error:
            raise MasterConnectionLost(f"the logs cannot be compared: {error}") from error
        if not connection.ended.done():
            self._epochs.adopt(hello.epochs, log.written)

    async def _cut_unless_same(
        self, point: int, connection: MasterConnection, ha_address: str
    ) -> None:
        """Truncate to the point where the epochs of both logs diverge, but keep records after it
        that are equal. Raises as `_common_end`.

        A master that lost its power, and keeps its epoch, starts the epoch again at the end of its
        log. This slave may have all of that, and messages may have been acknowledged because it
        does: truncated here, they would be at the master alone until they are copied again.
        """
        try:
            end = await self._common_end(connection, ha_address)
        except NotReplicated:  # no record is equal
            end = point
        why = "it belongs to an epoch that the master does not have"
        if end is not None and end < self._store.log.written:
            await self._cut(max(end, point), why)
