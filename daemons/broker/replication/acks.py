"""Acknowledgements of slaves, and the senders that wait for them (brokerRole=SYNC_MASTER).

Disk and slaves work at the same time. A batch of the store, the messages of one turn of the event
loop, is answered when both have it; each acknowledgement answers all batches that it covers at
once. Senders get these codes:

    SLAVE_NOT_AVAILABLE   stored; no slave is connected whose lag is within the limit
    FLUSH_SLAVE_TIMEOUT   stored; no slave had it within slaveTimeout
    FLUSH_DISK_TIMEOUT    a slave has it, the disk has not confirmed within syncFlushTimeout

If both are late, the sender gets the slave's code (CommitLog.submitReplicaRequest). One slave is
enough unless inSyncReplicas requires more (`in_sync_gate.py`). Unlike in Java, acknowledgements of
a slave that has disconnected do not count, nor those of offsets that it cannot have (`master.py`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store import Appender, Batch, StoreRefused
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)


class _PendingBatch:
    """A batch whose senders wait. The refusals of disk and slaves are None until they are known."""

    __slots__ = ("batch", "deadline", "disk_done", "disk_refusal", "slave_done", "slave_refusal")

    def __init__(self, batch: Batch, deadline: float) -> None:
        self.batch = batch
        self.deadline = deadline
        self.disk_done = self.slave_done = False
        self.disk_refusal: StoreRefused | None = None
        self.slave_refusal: StoreRefused | None = None

    @property
    def refusal(self) -> StoreRefused | None:
        """The refusal that replaces SEND_OK, or None. A message that is not stored goes first."""
        disk = self.disk_refusal
        if disk is not None and disk.code != ResponseCode.FLUSH_DISK_TIMEOUT:
            return disk
        return self.slave_refusal or disk


class SlaveAcks:
    """The senders that wait for slaves. The store calls `written` and `stored`.

    ``nearest`` returns the highest physical offset that enough connected slaves have acknowledged,
    None with fewer slaves.
    """

    def __init__(
        self, settings: BrokerSettings, appender: Appender, nearest: Callable[[], int | None]
    ) -> None:
        self._settings = settings
        self._appender = appender
        self._nearest = nearest
        self._held: dict[Batch, _PendingBatch] = {}
        # batches that wait for a slave, by their ends
        self._waiting: deque[_PendingBatch] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.timeouts = 0
        self.unavailable = 0

    @property
    def waiting_replies(self) -> int:
        """The number of senders that wait for a slave."""
        batches = [held.batch for held in self._waiting]
        return sum(len(batch.replies) + len(batch.answers) for batch in batches)

    def written(self, batch: Batch) -> None:
        """Note that a batch is in the log, so that slaves can get it."""
        nearest = self._nearest()
        if nearest is not None and nearest >= batch.end:
            return  # no sender has to wait
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
        """Let the senders of a batch wait until it is acknowledged or late."""
        self._idle.clear()
        self._waiting.append(held)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._time_out)

    @property
    def _seconds(self) -> float:
        return self._settings.store.slave_timeout / 1000

    def stored(self, batch: Batch, refusal: StoreRefused | None = None) -> bool:
        """Note that a batch is stored as the flush mode guarantees, or was refused. Returns False
        if no sender waits for slaves.
        """
        held = self._held.get(batch)
        if held is None:
            return False
        if not held.disk_done:
            held.disk_done, held.disk_refusal = True, refusal
            self._answer_if_done(held)
        return True

    def acknowledged(self, offset: int) -> None:
        """Note that a slave has the log up to an offset."""
        waiting = self._waiting
        while waiting and waiting[0].batch.end <= offset:
            self._end_wait(waiting.popleft(), None)
        if not waiting:
            self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Wait for slaves for some seconds at most, then refuse the batches that still wait. No
        more are accepted.
        """
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
        """The timer is set for the oldest batch, as in the flusher."""
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
        """Refuse the oldest batches, because no slave had them in time."""
        if not count:
            return
        self.timeouts += count
        seconds = self._seconds
        refusal = StoreRefused(
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
            f"stored, but no slave had it within {seconds:g} s (slaveTimeout)",
        )
        log.warning(
            "no slave had the messages within %g s (slaveTimeout)",
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
                f"the nearest slave lags {batch.end - nearest} bytes, the limit is {limit} "
                f"(haSlaveFallbehindMax)"
            )
        return StoreRefused(ResponseCode.SLAVE_NOT_AVAILABLE, f"stored here only: {why}")


class InSyncAcks(SlaveAcks):
    """Senders that wait for the sync state set, or for as many copies as they need. As in Java no
    sender gets SLAVE_NOT_AVAILABLE: one that needs no slave does not wait, and if the set is too
    small, no message is accepted.
    """

    def __init__(
        self, settings: BrokerSettings, appender: Appender, covered: Callable[[], int]
    ) -> None:
        super().__init__(settings, appender, covered)
        self._covered = covered

    def written(self, batch: Batch) -> None:
        """Note that a batch is in the log, so that slaves can get it."""
        if self._covered() < batch.end:
            self._wait(self._hold(batch))
