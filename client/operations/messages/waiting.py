"""Messages that wait at brokers for a later delivery: delayed ones by level, timed ones of 5.x.

Neither Java's brokers nor ours report the number of waiting messages directly. Delayed messages
wait in SCHEDULE_TOPIC_XXXX, in one queue per level; the broker reports the offset of each level
(GET_ALL_DELAY_OFFSET), so the messages after it wait, and the first of them is due next. Timed
messages wait in rmq_sys_wheel_timer, in the order of their arrival, between delivered ones: only
those among the newest entries that are read are known, which the result states.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import BrokerError, MQError
from mq.client.operations.messages import broker_queues
from mq.protocol import fastjson
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.message import StoredMessage

#: The default messageDelayLevel of a broker.
DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
MOST_LEVELS = 64
MOST_TIMED = 1024  # newest timed messages that are read per broker
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d{1,9})([smhd])").fullmatch
_TIMER_QUEUE = 0  # the only one


@dataclass(frozen=True, slots=True)
class Level:
    """A delay level of a broker. `delay_millis` is None if the broker does not report it, `waiting`
    if the query failed.

    `next_due` is in ms since 1970, and may be past: then the broker is late.
    """

    broker_name: str
    level: int
    delay_millis: int | None
    waiting: int | None
    next_due: int | None = None
    next_topic: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TimedMessages:
    """The timed messages of a broker.

    `waiting` counts those among the `looked` newest entries of the timer's topic. If not all were
    read (`is_all`) there may be more, including one that is due earlier.
    """

    broker_name: str
    waiting: int | None
    next_due: int | None = None
    next_topic: str | None = None
    looked: int = 0
    is_all: bool = True
    problem: str | None = None


def level_millis(text: str) -> tuple[int, ...]:
    """Parse a messageDelayLevel to the delays of the levels from 1 on. Raises ValueError."""
    found = []
    for part in text.split():
        match = _LEVEL(part)
        if match is None:
            raise ValueError(f"{part!r} is not the delay of a level")
        found.append(int(match[1]) * _UNITS[match[2]])
    return tuple(found[:MOST_LEVELS])


async def delayed(admin: "Admin", broker_name: str, address: str) -> list[Level]:
    """Return the delay levels of the broker at `address` that have had messages. Raises MQError."""
    offsets = await _delay_offsets(admin, address)
    try:
        config = await admin.broker_config(address)
        levels: Sequence[int] = level_millis(config.get("messageDelayLevel") or DEFAULT_LEVELS)
    except (BrokerError, ValueError):  # the account may lack permission to read settings
        levels = ()
    count = max([len(levels), *(level for level in offsets if level <= MOST_LEVELS)], default=0)
    found = await admin.session.all(
        [
            _level(
                admin,
                broker_name,
                address,
                level,
                levels[level - 1] if level <= len(levels) else None,
                offsets.get(level, 0),
            )
            for level in range(1, count + 1)
        ]
    )
    return [row for row in found if row is not None]


async def _delay_offsets(admin: "Admin", address: str) -> dict[int, int]:
    request = Command(RequestCode.GET_ALL_DELAY_OFFSET)
    response = await admin.session.call(address, request)
    try:
        table = fastjson.loads(bytes(response.body))["offsetTable"]
        return {int(level): int(offset) for level, offset in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # a broker that has had no delayed messages


async def _level(
    admin: "Admin", broker_name: str, address: str, level: int, delay: int | None, offset: int
) -> Level | None:
    """Return a level; None if it has never had a message."""
    queue = MessageQueue(SCHEDULE_TOPIC, broker_name, level - 1)
    try:
        end = await admin.max_offset(address, queue.topic, queue.queue_id)
        if not end:
            return None
        waiting = max(0, end - offset)
        if not waiting:
            return Level(broker_name, level, delay, 0)
        first = await broker_queues.read(admin, address, queue, offset, offset + 1)
    except MQError as error:
        return Level(broker_name, level, delay, None, problem=str(error))
    if not first:
        return Level(broker_name, level, delay, waiting)
    due = None if delay is None else first[0].store_timestamp + delay
    return Level(broker_name, level, delay, waiting, due, _real_topic(first[0]))


def _real_topic(message: "StoredMessage") -> str | None:
    return message.properties.get(PropertyKey.REAL_TOPIC)


async def timed(admin: "Admin", broker_name: str, address: str, now: int) -> TimedMessages | None:
    """Return the messages in the timer of the broker at `address`; None if there is no timer.

    `now` is in ms since 1970. A message due far in the future is re-appended from time to time,
    with the same unique id: it counts once. A recalled one does not count.
    """
    queue = MessageQueue(TIMER_TOPIC, broker_name, _TIMER_QUEUE)
    try:
        end = await admin.max_offset(address, queue.topic, queue.queue_id)
        if not end:
            return None
        low = await admin.min_offset(address, queue.topic, queue.queue_id)
        begin = max(low, end - MOST_TIMED)
        messages = await broker_queues.read(admin, address, queue, begin, end)
    except MQError as error:
        return TimedMessages(broker_name, None, problem=str(error))
    found: dict[str, tuple[int, StoredMessage]] = {}
    for message in messages:
        properties = message.properties
        withdrawn = properties.get(PropertyKey.TIMER_DELETE_UNIQUE_KEY)
        if withdrawn is not None:
            found.pop(withdrawn.rpartition("+")[2], None)
            continue
        due = properties.get(PropertyKey.TIMER_OUT_MS, "")
        if due.isdecimal() and int(due) > now:
            found[properties.get(PropertyKey.UNIQUE_KEY) or message.offset_id] = int(due), message
        else:
            found.pop(properties.get(PropertyKey.UNIQUE_KEY, ""), None)
    is_all = begin == low
    if not found:
        return TimedMessages(broker_name, 0, looked=len(messages), is_all=is_all)
    due_next, first = min(found.values(), key=lambda item: item[0])
    return TimedMessages(
        broker_name, len(found), due_next, _real_topic(first), len(messages), is_all
    )
