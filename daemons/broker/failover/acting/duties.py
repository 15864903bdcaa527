"""The duties of an acting master: each continues the master's work where that was, as the master
does it, except that messages go to other brokers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from functools import partial
from itertools import takewhile

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delayed.delay_levels import DelayedMessages
from mq.daemons.broker.delayed.timer import Timer
from mq.daemons.broker.delayed.timer_on_demand import TimerOnDemand
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.delivery.waiting import RETRY_SECONDS, StoreResults, is_stored
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.periodic import saving
from mq.daemons.broker.store import OnStored, StoreRefused
from mq.daemons.broker.stores import Stores
from mq.daemons.broker.transactions.records import HALF_QUEUE
from mq.daemons.broker.transactions.service import Transactions
from mq.daemons.supervision import Work
from mq.protocol import names

log = logging.getLogger(__name__)

_AT_ONCE = 64  # halves
# A slot of the timer lasts for a second, unless configured otherwise. A slot that takes longer is
# restarted by the master.
FINISH_SECONDS = 3.0


class OffsetDuty:
    """Offsets of groups, which are committed here meanwhile."""

    def __init__(self, offsets: ConsumerOffsets) -> None:
        self._offsets = offsets

    def begin(self) -> Iterable[tuple[Work, str]]:
        self._offsets.begin_acting()
        return ()

    async def finish(self) -> None:
        return

    async def end(self) -> None:
        await self._offsets.save()


class DelayDuty:
    """Delay levels."""

    def __init__(self, settings: BrokerSettings, delayed: DelayedMessages) -> None:
        self._settings = settings
        self._delayed = delayed

    def begin(self) -> Iterable[tuple[Work, str]]:
        if not self._delayed.is_known:
            log.warning("delay levels wait: the master has never reported its delivery progress")
            return
        self._delayed.version.has_acted = True
        yield from self._delayed.works()
        yield saving(
            self._delayed.save,
            lambda: self._settings.store.flush_delay_offset_interval / 1000,
            "delay offsets",
        )

    async def finish(self) -> None:
        return

    async def end(self) -> None:
        await self._delayed.save()


class TimerDuty:
    """Timed messages."""

    def __init__(
        self,
        stores: Stores,
        delayed: DelayedMessages,
        timer: TimerOnDemand,
        writer: MessageWriter,
    ) -> None:
        """If the master's progress of ``delayed`` is known, that of the timer is known, too."""
        self._stores = stores
        self._delayed = delayed
        self._timer = timer
        self._writer = writer

    def begin(self) -> Iterable[tuple[Work, str]]:
        if not Timer.is_used(self._stores.messages):
            return ()
        if not self._delayed.is_known:
            log.warning("the timer waits: the master has never reported its delivery progress")
            return ()
        return self._timer.open(self._writer)

    async def finish(self) -> None:
        timer = self._timer.timer
        if timer is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FINISH_SECONDS):
                    await timer.finish()

    async def end(self) -> None:
        await self._timer.end()


class HalfDuty:
    """Open transactions: no producer can end one here, so its half is sent to another broker, which
    checks it. The offset of the check group advances past the halves that were sent.

    After a half that cannot be sent only a few others are: the offset does not advance past that
    one, so they are open at the master, too, when it returns.
    """

    def __init__(self, stores: Stores, writer: MessageWriter) -> None:
        self._stores = stores
        self._writer = writer
        self._aside: Quarantine = stores.aside
        self._transactions: Transactions
        self._sent: set[int] = set()  # halves sent after one that was not

    def begin(self) -> Iterable[tuple[Work, str]]:
        stores = self._stores
        self._transactions = Transactions(
            stores.messages, self._writer, stores.offsets, stores.topics, has_them=False
        )
        self._transactions.load()
        self._sent.clear()
        yield self._run, "halves of transactions"

    async def finish(self) -> None:
        return

    async def end(self) -> None:
        self._transactions.save_progress()

    async def _run(self) -> None:
        transactions = self._transactions
        while offsets := transactions.open_halves()[:_AT_ONCE]:
            results = StoreResults()
            try:
                for offset in offsets:
                    if offset not in self._sent:
                        results.put(partial(self._put, offset))
            except (StoreRefused, OSError) as error:  # the master is back, or the disk fails
                log.warning(
                    "sending halves of transactions is delayed: %s",
                    error,
                    extra={"failure": "acting"},
                )
            try:
                await results.wait()
            finally:
                passed = list(takewhile(self._sent.__contains__, offsets))
                transactions.ledger.remove(passed)
                self._sent.difference_update(passed)
                transactions.save_progress()
            if len(passed) < len(offsets):
                await asyncio.sleep(RETRY_SECONDS)

    def _put(self, offset: int, outcome: OnStored) -> None:
        """Send a half, or quarantine it. Raises StoreRefused and OSError."""

        def stored(refusal: StoreRefused | None) -> None:
            if is_stored(refusal):
                self._sent.add(offset)
            outcome(refusal)

        try:
            half = self._transactions.read_half(offset)
            if half is None:
                raise LookupError("the half of an open transaction is not in the log")
            self._writer.put(half, stored)
        except (StoreRefused, OSError):
            raise
        except Exception as error:  # of this half: the others continue
            topic = names.TRANSACTION_HALF_TOPIC
            self._aside.put("acting: halves", error, topic, HALF_QUEUE, offset)
            stored(None)
