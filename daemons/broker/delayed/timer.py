"""The timer: timed messages wait in rmq_sys_wheel_timer until their delivery time.

    put      a message with TIMER_DELIVER_MS or a delay becomes one of rmq_sys_wheel_timer
    enqueue  reads that queue: writes a unit to the timer log, chained to the slot of its time
    deliver  follows the clock from slot to slot and puts the messages into their real topics

A slot covers one `timerPrecisionMs`, a second by default; within a slot each message is delivered
at its exact millisecond. A message that is due later than the wheel should reach is put again when
half of that time has passed ("rolled"), also so that its log file is not deleted by age meanwhile.
All files are those of RocketMQ 5 (TimerMessageStore): each broker can continue for the other.

The read time follows the clock, also when the clock is set (`_turn_back`, `_catch_up`): a clock
that was ahead and is corrected does not delay new messages.
"""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Iterator

from mq.client.machine import clock, files, threads
from mq.daemons.broker.clock_steps import is_future
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delayed import timer_checkpoint, timer_log
from mq.daemons.broker.delayed.slot_moves import collect, cut_wheel, time_again
from mq.daemons.broker.delayed.timer_checkpoint import TimerCheckpoint
from mq.daemons.broker.delayed.timer_inheritance import (
    TIMER_LOG,
    TIMER_WHEEL,
    Inheritance,
    delivered_until,
    remove_files,
)
from mq.daemons.broker.delayed.timer_log import TimerLog, Unit
from mq.daemons.broker.delayed.timer_wheel import EMPTY, SLOTS, Slot, TimerWheel, is_wheel
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.delivery.timer_request import (
    deliver_time,
    is_withdrawn,
    number,
    withdrawn_by,
)
from mq.daemons.broker.delivery.waiting import MOST_ATTEMPTS, RETRY_SECONDS, NextMessage, store_all
from mq.daemons.broker.delivery.writer import MessageWriter, add_what_fits
from mq.daemons.broker.store import MessageStore, OnStored, layout
from mq.daemons.broker.tables.saves import Saves
from mq.daemons.supervision import Work
from mq.protocol import names
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

_AT_ONCE = 256  # messages handled in one turn of the event loop
# Unread entries of the queue for which a slot waits: the arrivals of a short pause of the event
# loop. With more the reader does not catch up, and nothing would be delivered while clients send.
_MAX_UNREAD = 4096
_LONGEST_SLEEP = 1.0  # s; limited so that a change of the clock is noticed
_SLOTS_A_TURN = 5000
_MAX_IN_MEMORY = 20_000
_SAVE_IDLE_SECONDS = 60
_SERVICE = "timer"
_FAREST = 1 << 62  # later than any time, ms
# A message that withdraws another one and is due far off is rolled first, like any other.
_KIND = timer_log.MAGIC_DELETE | timer_log.MAGIC_ROLL


class Timer:
    """Keeps timed messages and delivers them at their time."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        writer: MessageWriter,
        aside: Quarantine,
    ) -> None:
        config = settings.store
        self._settings = settings
        self._store = store
        self._writer = writer
        self._aside = aside
        self._precision = config.timer_precision_ms
        self._queue = store.queue(names.TIMER_TOPIC, 0)
        mark = self._checkpoint = TimerCheckpoint(
            store.root / "config" / timer_checkpoint.FILE_NAME
        )
        self._inherited_path = store.root / "config" / timer_checkpoint.INHERITED_NAME
        other = TimerCheckpoint(self._inherited_path)  # of a start that was killed before it saved
        self._is_inheriting = other.queue_offset > 0
        is_new = self._is_inheriting or not is_wheel(store.root / TIMER_WHEEL)
        if is_new and not self._is_inheriting and mark.queue_offset > 0:
            # Without a wheel the checkpoint is that of the previous master.
            other.save(mark.read_time, 0, mark.queue_offset)
            self._is_inheriting = True
        longest = config.timer_roll_window_slot * self._precision
        until = delivered_until(other.read_time)
        self._inherited = Inheritance(until, other.queue_offset, longest)
        if is_new:
            remove_files(store.root)
            mark.save(self._step(clock.milliseconds()), 0, 0)
        self._wheel = TimerWheel(store.root / TIMER_WHEEL, self._precision)
        if not is_new:
            self._wheel.check_precision(max(self._checkpoint.read_time, clock.milliseconds()))
        self._log = TimerLog(store.root / TIMER_LOG, config.mapped_file_size_timer_log)
        self._news = NextMessage()
        self._changed = asyncio.Event()  # a slot that may be the current one has a new unit
        self._has_read = asyncio.Event()  # a part of the queue was read, or cannot be read now
        self._turned = asyncio.Event()  # set when the read time follows the clock again
        self._failed_reads = 0  # of the next entry of the queue
        self._is_stuck = False  # nothing of the queue gets into the wheel
        self._is_last_slot = False  # no further slot may begin
        self._finished = asyncio.Event()
        # Physical offsets of the messages put from the current slot, which restarts after an error.
        self._put_from_slot: set[int] = set()
        self.delivered = 0
        self.clock_corrections = 0
        self._saved_delivered = 0
        self._last_slot = -1  # the last one from which something was delivered
        self._failure: OSError | None = None  # set permanently by the first fsync that fails
        self._saves = Saves()
        self._disk = threads.Lock()  # a cancelled save continues in its thread
        self._start_end = self._queue.readable
        self._offset, self._read_time = self._checkpoint.queue_offset, self._checkpoint.read_time
        self._recover()
        if self._offset < mark.queue_offset:  # saved now: after a kill it would skip messages
            mark.save(mark.read_time, mark.log_position, self._offset)

    @staticmethod
    def is_used(store: MessageStore) -> bool:
        """Whether a store has had messages for the timer; if not, the timer costs nothing.

        Its files alone are not sufficient: a power failure may lose them before the first save.
        """
        wheel = store.root / TIMER_WHEEL
        return files.exists(wheel) or store.max_offset(names.TIMER_TOPIC, 0) > 0

    def works(self) -> Iterator[tuple[Work, str]]:
        """The tasks that run until the broker stops, with their names."""
        yield self._enqueue, "timer: enqueue"
        yield self._deliver, "timer: deliver"

    async def save(self) -> None:
        """Flush the files and save the progress in the checkpoint.

        Raises OSError. After a failed fsync nothing is saved any more: the kernel may have dropped
        the pages, as in `store/flush.py`. The checkpoint stays, and a restart puts everything after
        it into the wheel.
        """
        if self._failure is not None:
            return
        read_time, position, offset = self._read_time, self._log.end, self._offset
        mark = self._checkpoint
        unchanged = (position, offset) == (mark.log_position, mark.queue_offset)
        idle = (
            unchanged
            and not self._is_inheriting
            and self.delivered == self._saved_delivered
            and read_time >= mark.read_time > self._last_slot  # a new master starts there
        )
        if idle and read_time - mark.read_time < _SAVE_IDLE_SECONDS * 1000:
            return
        delivered = self.delivered
        # The delivered messages are on the disk, in their topics or in the quarantine.
        await self._aside.save()
        if not await self._store.flusher.drain():
            return  # an fsync failed: after a restart they are delivered once more

        def sync() -> None:
            with self._disk:
                self._sync()
                # A unit that is put after the clock was set back may be due before `read_time`.
                mark.save(min(read_time, self._read_time), position, offset)
                end = min(self._inherited.queue_offset, self._queue.appended)
                if self._is_inheriting and offset >= end:
                    files.remove(self._inherited_path)  # everything is in the wheel
                    self._is_inheriting = False

        await self._saves.run(sync)
        self._saved_delivered = delivered
        self._log.remove_older(2 * self._roll_window() / 1000)

    def _sync(self) -> None:
        """Runs in a thread that has the lock. Raises OSError."""
        if self._failure is not None:  # of a cancelled save, which had no caller to raise it to
            raise self._failure
        try:
            self._log.sync()
            self._wheel.sync()
        except OSError as error:
            self._failure = OSError(
                error.errno,
                f"fsync of the timer's files failed: {error.strerror}; they are not saved "
                f"until the broker is restarted",
            )
            raise self._failure from error

    async def finish(self) -> None:
        """Return when the current slot is delivered; no further slot begins. So a broker that
        continues from here delivers nothing of it again."""
        self._is_last_slot = True
        self._changed.set()
        await self._finished.wait()

    async def close(self) -> None:
        """Save and close. Raises OSError."""
        try:
            await self.save()
        finally:
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """Runs in a thread."""
        with self._disk:
            self._wheel.close()
            self._log.close()

    def _recover(self) -> None:
        """Make wheel, log and read time consistent with each other and with the clock."""
        now = clock.milliseconds()
        is_set_back = self._is_set_back(now)
        if is_set_back:
            # Before units of the log are put, because those were put after the clock was corrected.
            self._wheel.clear(self._step(now), self._read_time)
        offset = self._checkpoint.queue_offset
        for position, unit in self._log.recover(self._checkpoint.log_position):
            slot = self._wheel.slot(unit.due)
            if slot.last < position:
                first = position if slot.first < 0 else slot.first
                self._wheel.put(unit.due, Slot(first, position, slot.units + 1))
            message = self._readable_message(unit)
            if message is not None:
                offset = max(offset, message.queue_offset + 1)
        cut_wheel(self._wheel, self._log)
        self._offset = min(max(offset, self._queue.minimum), self._queue.appended)
        if is_set_back:
            self._go_back(now)
            self._sync()
            self._checkpoint.save(self._read_time, self._log.end, self._offset)
        self._catch_up(now)

    # from the queue into the wheel --------------------------------------------------------------

    async def _enqueue(self) -> None:
        try:
            await self._read_queue()
        finally:
            self._note_stuck()

    def _note_stuck(self) -> None:
        self._is_stuck = True
        self._has_read.set()

    async def _read_queue(self) -> None:
        queue = self._queue
        while True:
            while self._is_off(clock.milliseconds()):
                self._turned.clear()
                self._has_read.set()
                self._changed.set()
                await self._wait_for_turn()
            self._offset = max(self._offset, queue.minimum)
            entries = queue.entries(self._offset, _AT_ONCE)
            if not entries:
                if self._offset < queue.readable:
                    self._offset = queue.next_file_index(self._offset)
                else:
                    self._has_read.set()
                    await self._news.wait(queue)
                continue
            try:
                for physical, _, _ in layout.ENTRY.iter_unpack(entries):
                    self._enqueue_entry(physical)
                    self._offset += 1
                self._is_stuck = False
                self._has_read.set()
            except OSError as error:
                log.error("the timer cannot read its queue: %s", error, extra={"failure": "timer"})
                self._note_stuck()
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(0)

    async def _wait_for_turn(self) -> None:
        """Return when the read time follows the clock again, or after `_LONGEST_SLEEP`, because the
        clock may become right again by itself."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_SLEEP):
                await self._turned.wait()

    def _enqueue_entry(self, physical: int) -> None:
        """Put the message of the next entry into the wheel, or quarantine it. Raises OSError."""
        try:
            message = self._read_entry(physical)
            if message is None:
                raise LookupError("the message of this queue entry is not in the log")
            self._enqueue_one(message)
        except OSError:
            raise
        except Exception as error:
            self._aside.put(_SERVICE, error, names.TIMER_TOPIC, 0, self._offset, physical)

    def _read_entry(self, physical: int) -> StoredMessage | None:
        """The message of the next entry. Raises OSError, or LookupError after MOST_ATTEMPTS."""
        try:
            message = self._writer.read_entry(names.TIMER_TOPIC, 0, self._offset, physical)
        except OSError as error:
            self._failed_reads += 1
            if self._failed_reads < MOST_ATTEMPTS:
                raise
            self._failed_reads = 0
            raise LookupError(f"the message cannot be read: {error}") from error
        self._failed_reads = 0
        return message

    def _enqueue_one(self, message: StoredMessage) -> None:
        """Put a message into its slot. Raises OSError, and ValueError for one without a time."""
        out = number(message, PropertyKey.TIMER_OUT_MS)
        if out is None:
            raise ValueError("TIMER_OUT_MS is not a number")
        if self._inherited.has_delivered(message.queue_offset, message.store_timestamp, out):
            return
        magic = timer_log.MAGIC
        if PropertyKey.TIMER_DELETE_UNIQUE_KEY in message.properties:
            magic |= timer_log.MAGIC_DELETE
        self._put_into_wheel(
            out, magic, message.physical_offset, message.store_size, clock.milliseconds()
        )

    def _put_into_wheel(self, out: int, magic: int, physical: int, size: int, now: int) -> None:
        """Put a unit into the slot of its time, or of its roll. Raises OSError."""
        window = self._roll_window()
        if out - now >= window:
            magic |= timer_log.MAGIC_ROLL
            # The last interval before the time is never very short.
            out = now + (window // 2 if out - now < window + window // 3 else window)
        out = max(self._step(out), self._read_time)
        slot = self._wheel.slot(out)
        position = self._log.append(slot.last, magic, now, out, physical, size)
        first = position if slot.first < 0 else slot.first
        self._wheel.put(out, Slot(first, position, slot.units + 1))
        if out <= now:
            self._changed.set()

    def _roll_window(self) -> int:
        """Milliseconds after which a message is put again: well before its log file is deleted."""
        config = self._settings.store
        kept = config.file_reserved_time * 3600 * 1000 // 2
        slots = min(config.timer_roll_window_slot, SLOTS - 1)  # the size of the wheel
        longest = min(slots * self._precision, kept, timer_log.LONGEST_DELAY)
        return max(longest, 2 * self._precision)  # a shorter time would put it again in a loop

    async def _read_up(self) -> None:
        """Return when everything that the queue has by now is in the wheel, unless reading is
        stuck, or messages arrive faster than they are read. Messages from before the start are
        always read first.

        A message there may withdraw another one, which must take effect in time although the event
        loop was late, or the clock jumped. Nothing is read before the read time follows the clock.
        """
        queue = self._queue
        end = queue.readable
        while (
            self._offset < min(end, queue.readable)
            and not self._is_stuck
            and not self._is_off(clock.milliseconds())
        ):
            if queue.readable - self._offset > _MAX_UNREAD and self._offset >= self._start_end:
                return
            self._has_read.clear()
            await self._has_read.wait()

    # from the wheel to the real topic -----------------------------------------------------------

    async def _deliver(self) -> None:
        passed = 0
        while not self._is_last_slot:
            now = clock.milliseconds()
            if self._is_set_back(now):
                await self._turn_back()
            elif self._is_off(now):
                self._catch_up(now)
                self._turned.set()
            elif self._read_time > now:
                await asyncio.sleep(self._seconds_to(self._read_time))
            elif self._wheel.slot(self._read_time).last >= 0:
                if not await self._deliver_slot(self._read_time):
                    continue
                self._last_slot = self._read_time
                self._read_time += self._precision
                self._put_from_slot.clear()
            elif self._read_time + self._precision > clock.milliseconds():
                await self._wait_for_change(self._read_time + self._precision)
            else:
                self._read_time += self._precision
                passed += 1
                if passed % _SLOTS_A_TURN == 0:
                    await asyncio.sleep(0)
        self._finished.set()

    async def _deliver_slot(self, slot_time: int) -> bool:
        """Deliver the units of a slot, also those added until its end, each at its time; returns
        False if the clock is set back before that."""
        seen = -1
        # A heap by time and arrival, with the message while the heap is small.
        waiting: list[tuple[int, int, Unit, StoredMessage | None]] = []
        withdrawn: set[str] = set()
        while True:
            await self._read_up()
            if self._is_set_back(clock.milliseconds()):
                return False
            last = self._wheel.slot(slot_time).last
            if last > seen:
                for unit in self._log.chain(last, seen):
                    if unit.physical in self._put_from_slot:
                        continue
                    message = self._readable_message(unit)
                    if unit.magic & _KIND == timer_log.MAGIC_DELETE:
                        withdrawn.update(withdrawn_by(message))
                    else:
                        kept = message if len(waiting) < _MAX_IN_MEMORY else None
                        due_at = self._due(unit, message)
                        heapq.heappush(waiting, (due_at, unit.physical, unit, kept))
                seen = last
            now = clock.milliseconds()
            due: list[tuple[Unit, StoredMessage | None]] = []
            while waiting and waiting[0][0] <= now and len(due) < _AT_ONCE:
                _, _, unit, kept = heapq.heappop(waiting)
                due.append((unit, kept))
            if due:
                await self._put_all(due, withdrawn)
            elif waiting:
                await self._wait_for_change(min(waiting[0][0], slot_time + self._precision))
            elif now >= slot_time + self._precision:
                return True
            else:
                await self._wait_for_change(slot_time + self._precision)

    # when the clock is set ----------------------------------------------------------------------

    def _is_set_back(self, now: int) -> bool:
        """Whether the read time is so far ahead that the clock must have been set back."""
        return is_future(self._read_time, now)

    async def _turn_back(self) -> None:
        """Go back to the time of the clock. Raises OSError.

        Slots that are passed again are emptied, because their messages were delivered. So those
        have to be on the disk first. Only this task goes back, while no message is being put.
        """
        await self._aside.save()
        if not await self._store.flusher.drain():
            await asyncio.sleep(RETRY_SECONDS)
            return
        with self._disk:  # no save of an earlier state may follow
            now = clock.milliseconds()
            is_set_back = self._is_set_back(now)
            if is_set_back:
                self._wheel.clear(self._step(now), self._read_time)
                self._go_back(now)
                self._put_from_slot.clear()
        if is_set_back:
            await self.save()  # after a kill before it, messages may be delivered again
        self._turned.set()

    def _go_back(self, now: int) -> None:
        """Make the slot of a time the next one; all slots from there to the read time are empty.

        Units of the current slot are put again; so are those that the wheel does not reach from
        here, because new slots would overwrite theirs. Raises OSError.
        """
        begun, target = self._read_time, self._step(now)
        reach = target + SLOTS * self._precision
        times = {begun, *self._wheel.used(reach, _FAREST)}
        slots = {time: slot for time in times if (slot := self._wheel.slot(time)).last >= 0}
        mark = self._checkpoint
        oldest = max(0, min([mark.log_position, *(slot.first for slot in slots.values())]))
        # From here on a kill loses no unit: neither a moved one nor a new one.
        mark.save(min(mark.read_time, target), oldest, mark.queue_offset)
        self._read_time = target
        self.clock_corrections += 1
        log.warning(
            "the clock was set back; setting the timer back by %.1f s; messages due in that time "
            "were delivered early, by the previous clock",
            (begun - target) / 1000,
        )
        self._last_slot = -1
        units = [unit for slot in slots.values() for unit in self._log.chain(slot.last)]
        for time in slots:
            self._wheel.put(time, EMPTY)
        for unit in units:
            if unit.due == begun and unit.physical in self._put_from_slot:
                continue
            try:
                out = time_again(self._message(unit), now)
            except OSError:  # it may be readable when it is due
                out = unit.due
            magic = unit.magic & ~timer_log.MAGIC_ROLL or timer_log.MAGIC
            # Delivery quarantines a unit without a message.
            out = self._read_time if out is None else out
            self._put_into_wheel(out, magic, unit.physical, unit.size, now)

    def _oldest(self, now: int) -> int:
        """The first slot of the half of the wheel that ends at a time."""
        return self._step(now) - (SLOTS // 2 - 1) * self._precision

    def _is_off(self, now: int) -> bool:
        """Whether nothing may be put into the wheel before the read time follows the clock, because
        new slots may overwrite passed ones."""
        return self._is_set_back(now) or self._read_time < self._oldest(now)

    def _catch_up(self, now: int) -> None:
        """Deliver next all units before the half of the wheel that ends now. Raises OSError."""
        late, oldest = now - self._read_time, self._oldest(now)
        if self._read_time >= oldest:
            return
        count = collect(self._wheel, self._log, self._read_time, oldest, self._put_from_slot)
        log.warning(
            "the timer is %.0f s late: it did not run, or the clock was set; %d messages are due",
            *(late / 1000, count),
        )
        self._read_time = oldest
        self._put_from_slot.clear()

    def _due(self, unit: Unit, message: StoredMessage | None) -> int:
        """The exact delivery time of a message in ms: within its slot."""
        if unit.magic & timer_log.MAGIC_ROLL:
            return unit.due
        exact = None if message is None else deliver_time(message, message.store_timestamp)
        if exact is None:
            return unit.due + self._precision
        return min(max(exact, unit.due), unit.due + self._precision)

    def _message(self, unit: Unit) -> StoredMessage | None:
        """The message of a unit, None if it is not in the log. Raises OSError."""
        return self._writer.read_of(names.TIMER_TOPIC, unit.physical)

    def _readable_message(self, unit: Unit) -> StoredMessage | None:
        """As `_message`, and None for a message that the disk cannot read now."""
        try:
            return self._message(unit)
        except OSError as error:
            log.error("the timer cannot read a message: %s", error, extra={"failure": "timer"})
            return None

    async def _put_all(
        self, due: list[tuple[Unit, StoredMessage | None]], withdrawn: set[str]
    ) -> None:
        """Put messages into their topics, retrying until all of them are stored."""

        def put(item: tuple[Unit, StoredMessage | None], outcome: OnStored) -> None:
            unit, message = item
            if message is None or message.topic != names.TIMER_TOPIC:
                message = self._message(unit)  # not kept, or refused before
            if message is None:
                raise LookupError("the message is not in the log any more")
            if is_withdrawn(message, withdrawn):
                outcome(None)
                return
            self._put(message, unit, outcome)

        def quarantine(item: tuple[Unit, StoredMessage | None], error: BaseException) -> None:
            unit = item[0]
            self._aside.put(_SERVICE, error, names.TIMER_TOPIC, 0, -1, unit.physical)

        await store_all(due, put, quarantine, "messages of the timer")
        self._put_from_slot.update(unit.physical for unit, _ in due)
        self.delivered += len(due)

    def _put(self, message: StoredMessage, unit: Unit, outcome: OnStored) -> None:
        """Put a message into its real topic or, if it rolls, into the timer's queue again.

        Raises StoreRefused, and NoTarget for one without a target.
        """
        properties = message.properties
        added = {PropertyKey.TIMER_ENQUEUE_MS: str(unit.written)}
        if unit.magic & timer_log.MAGIC_ROLL:
            rolls = number(message, PropertyKey.TIMER_ROLL_TIMES) or 0
            added[PropertyKey.TIMER_ROLL_TIMES] = str(rolls + 1)
        else:
            self._writer.restore_target(message)
        added[PropertyKey.TIMER_DEQUEUE_MS] = str(clock.milliseconds())
        for name in added:
            properties.pop(name, None)
        add_what_fits(properties, added)
        self._writer.put(message, outcome)

    async def _wait_for_change(self, until: int) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_to(until)):
                await self._changed.wait()

    def _seconds_to(self, moment: int) -> float:
        return min(max((moment - clock.milliseconds()) / 1000, 0.001), _LONGEST_SLEEP)

    def _step(self, moment: int) -> int:
        return moment // self._precision * self._precision
