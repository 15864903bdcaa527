"""Moves whole slots of the wheel, after the clock was set or the log has lost its end."""

import logging
from collections.abc import Container

from mq.daemons.broker.clock_steps import is_future
from mq.daemons.broker.delayed.timer_log import TimerLog
from mq.daemons.broker.delayed.timer_wheel import EMPTY, Slot, TimerWheel
from mq.daemons.broker.delivery.timer_request import deliver_time, number
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey

logger = logging.getLogger(__name__)


def collect(
    wheel: TimerWheel, log: TimerLog, begin: int, slot_time: int, done: Container[int]
) -> int:
    """Move all units that are due from ``begin`` on into one later slot; returns their number.

    Skips units of the first slot whose physical offsets are in ``done``. The slot is written once,
    at the end: a kill before that changes nothing. Raises OSError.
    """
    slot, count = wheel.slot(slot_time), 0
    first, last = slot.first, slot.last
    for time in wheel.used(begin, slot_time):
        for unit in log.chain(wheel.slot(time).last):
            if time == begin and unit.physical in done:
                continue
            magic, physical, size = unit.magic, unit.physical, unit.size
            last = log.append(last, magic, unit.written, slot_time, physical, size)
            first, count = last if first < 0 else first, count + 1
    if count:
        wheel.put(slot_time, Slot(first, last, slot.units + count))
    return count


def time_again(message: StoredMessage | None, now: int) -> int | None:
    """The time in the wheel for a message whose slot does not count any more; None if unknown.

    A delay that started in the future, by a clock that was ahead, starts now.
    """
    if message is None:
        return None
    if (
        is_future(message.store_timestamp, now)
        and PropertyKey.TIMER_DELIVER_MS not in message.properties
    ):
        due = deliver_time(message, now)
        if due is not None:
            return due - 1
    return number(message, PropertyKey.TIMER_OUT_MS)


def cut_wheel(wheel: TimerWheel, log: TimerLog) -> None:
    """Truncate slots to the end of the log, because a power failure may have lost units to which
    they point.

    Without those the remaining units before them would not be found.
    """
    slots = dict.fromkeys(wheel.times_after(log.end), EMPTY)
    if not slots:
        return
    logger.warning("%d slots of the timer's wheel point past the end of its log", len(slots))
    for position, unit in log.units():
        slot = slots.get(unit.due)
        if slot is not None:
            first = position if slot.first < 0 else slot.first
            slots[unit.due] = Slot(first, position, slot.units + 1)
    for time, slot in slots.items():
        wheel.put(time, slot)
    # Before the log grows: after another power failure the old slots would point to new units.
    wheel.sync()
