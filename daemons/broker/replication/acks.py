"""Acknowledgements of slaves, and the senders that wait for them (brokerRole=SYNC_MASTER).

Disk and slaves work at the same time. A batch of the store, what came in one turn of the loop, is
answered when both are done with it; each acknowledgement answers all the batches that it covers in
one go. What a sender is told:

    SLAVE_NOT_AVAILABLE   stored; no slave is connected that is not too far behind
    FLUSH_SLAVE_TIMEOUT   stored; no slave had it within slaveTimeout
    FLUSH_DISK_TIMEOUT    a slave has it, the disk has not confirmed within syncFlushTimeout

Where both are late, the slave's is told (CommitLog.submitReplicaRequest). One slave is enough
unless inSyncReplicas says more (`enough.py`). Not as in Java, what a slave says that has left does
not count, nor what it cannot have (`master.py`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store.append import Appender
from mq.daemons.broker.store.batch import Batch
from mq.daemons.broker.store.errors import StoreRefused
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)


class _PendingBatch:
    """A batch whose senders wait. What disk and slaves say is None until they have."""

    __slots__ = ("batch", "deadline", "disk_done", "disk_refusal", "slave_done", "slave_refusal")

    def __init__(self, batch: Batch, deadline: float) -> None:
        self.batch = batch
        self.deadline = deadline
        self.disk_done = self.slave_done = False
        self.disk_refusal: StoreRefused | None = None
        self.slave_refusal: StoreRefused | None = None

    @property
    def refusal(self) -> StoreRefused | None:
        """What senders are told instead of SEND_OK. That it is not stored goes before all else."""
        disk = self.disk_refusal
        if disk is not None and disk.code != ResponseCode.FLUSH_DISK_TIMEOUT:
            return disk
        return self.slave_refusal or disk


class SlaveAcks:
    """Who waits for slaves. The store tells what it does by `written`, `stored` and `failed`.

    ``nearest`` gives the highest physical offset that enough connected slaves have acknowledged,
    None without so many.
    """

    def __init__(
        self, settings: BrokerSettings, appender: Appender, nearest: Callable[[], int | None]
    ) -> None:
        self._settings = settings
        self._appender = appender
        self._nearest = nearest
        self._held: dict[Batch, _PendingBatch] = {}
        self._waiting: deque[_PendingBatch] = deque()  # for a slave, by their ends
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.timeouts = 0
        self.unavailable = 0

    @property
    def waiting_replies(self) -> int:
        """Senders that wait for a slave."""
        batches = [held.batch for held in self._waiting]
        return sum(len(batch.replies) + len(batch.answers) for batch in batches)

    def written(self, batch: Batch) -> None:
        """A batch is in the log: slaves can have it now."""
        nearest = self._nearest()
        if nearest is not None and nearest >= batch.end:
            return  # nobody is waited for
        held = self._hold(batch)
        if nearest is None or batch.end - nearest >= self._settings.store.ha_slave_fallbehind_max:
            held.slave_done = True
            held.slave_refusal = self._unavailable(nearest, batch)
            return
        self._wait(held)

    def _hold(self, batch: Batch) -> _PendingBatch:
        deadline = asyncio.get_running_loop().time() + self._seconds
        held = self._held[batch] = _PendingBatch(batch, deadline)
        return held

    def _wait(self, held: _PendingBatch) -> None:
        """Have the senders of a batch wait until it is acknowledged, or late."""
        self._idle.clear()
        self._waiting.append(held)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._time_out)

    @property
    def _seconds(self) -> float:
        return self._settings.store.slave_timeout / 1000

    def stored(self, batch: Batch, refusal: StoreRefused | None = None) -> bool:
        """The disk has done with a batch what the flush mode promises, or not; False if nobody
        waits for slaves to have it."""
        held = self._held.get(batch)
        if held is None:
            return False
        if not held.disk_done:
            held.disk_done, held.disk_refusal = True, refusal
            self._answer_if_done(held)
        return True

    def acknowledged(self, offset: int) -> None:
        """A slave has the log up to an offset."""
        waiting = self._waiting
        while waiting and waiting[0].batch.end <= offset:
            self._end_wait(waiting.popleft(), None)
        if not waiting:
            self._idle.set()

    async def settle(self, seconds: float) -> None:
        """Wait at most so long for slaves; then tell those who still wait. No more are taken."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            pass
        self._refuse(len(self._waiting))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_wait(self, held: _PendingBatch, refusal: StoreRefused | None) -> None:
        held.slave_done, held.slave_refusal = True, refusal
        self._answer_if_done(held)

    def _answer_if_done(self, held: _PendingBatch) -> None:
        if held.disk_done and held.slave_done:
            del self._held[held.batch]
            self._appender.publisher.answer(held.batch, held.refusal)

    def _time_out(self) -> None:
        """The timer stands for the oldest batch, as that of the flusher."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = 0
        for held in self._waiting:
            if held.deadline > now:
                self._timer = loop.call_later(held.deadline - now, self._time_out)
                break
            late += 1
        self._refuse(late)

    def _refuse(self, count: int) -> None:
        """Tell the oldest ones that no slave had their messages in time."""
        if not count:
            return
        self.timeouts += count
        seconds = self._seconds
        refusal = StoreRefused(
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
            f"stored, but no slave had it within {seconds:g} s (slaveTimeout)",
        )
        log.warning(
            "no slave has had what was sent within %g s (slaveTimeout)",
            seconds,
            extra={"failure": "replication in time"},
        )
        for _ in range(count):
            self._end_wait(self._waiting.popleft(), refusal)
        if not self._waiting:
            self._idle.set()

    def _unavailable(self, nearest: int | None, batch: Batch) -> StoreRefused:
        self.unavailable += 1
        if nearest is None:
            why = "no slave is connected"
        else:
            limit = self._settings.store.ha_slave_fallbehind_max
            why = (
                f"the nearest slave is {batch.end - nearest} bytes behind, the limit is {limit} "
                f"(haSlaveFallbehindMax)"
            )
        return StoreRefused(ResponseCode.SLAVE_NOT_AVAILABLE, f"stored here only: {why}")


class InSyncAcks(SlaveAcks):
    """Senders that wait for the set, or for as many copies as they need. SLAVE_NOT_AVAILABLE is
    told to nobody, as in Java: who needs no slave waits for none, and where the set is too small
    nothing is taken."""

    def __init__(
        self, settings: BrokerSettings, appender: Appender, covered: Callable[[], int]
    ) -> None:
        super().__init__(settings, appender, covered)
        self._covered = covered

    def written(self, batch: Batch) -> None:
        """A batch is in the log: slaves can have it now."""
        if self._covered() < batch.end:
            self._wait(self._hold(batch))
