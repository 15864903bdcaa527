"""Timer requests of messages, and their conversion to messages of the timer's queue."""

import re
from collections.abc import Mapping

from mq.client.machine import clock
from mq.daemons.broker.store import StoreRefused
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.daemons.dispatch import Refused
from mq.protocol import names
from mq.protocol.codes import ResponseCode
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey

_REQUESTS = (
    PropertyKey.TIMER_DELAY_SEC,
    PropertyKey.TIMER_DELAY_MS,
    PropertyKey.TIMER_DELIVER_MS,
)

_LONG = re.compile(r"[+-]?[0-9]{1,19}").fullmatch  # as Long.parseLong accepts it
_MOST_LONG = (1 << 63) - 1


def asks_for_timer(message: StoredMessage) -> bool:
    """Whether a message has its own delivery time and has not been through the timer."""
    properties = message.properties
    if message.topic == names.TIMER_TOPIC or PropertyKey.TIMER_OUT_MS in properties:
        return False
    return any(name in properties for name in _REQUESTS)


def forget_timer(message: StoredMessage) -> None:
    """Drop the timer properties of a message with a delay level, which alone counts
    (HookUtils.checkIfTimerMessage).
    """
    for name in _REQUESTS:
        message.properties.pop(name, None)


def name_withdrawn(properties: dict[str, str], topic: str) -> None:
    """Restrict the message that a message to `topic` withdraws to the same topic.

    Clients of 5.x name it as topic+id, or by its id alone: that would be one of any topic.

    Raises Refused for one of another topic: the permission to send to this topic does not include
    that.
    """
    named = properties.get(PropertyKey.TIMER_DELETE_UNIQUE_KEY)
    if named is None or named.startswith(f"{topic}+"):
        return
    if "+" in named:
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"a message to {topic} cannot withdraw {named}, which is of another topic",
        )
    properties[PropertyKey.TIMER_DELETE_UNIQUE_KEY] = f"{topic}+{named}"


def deliver_time(message: StoredMessage, now: int) -> int | None:
    """The requested delivery time in ms; None if there is none, or it is not a number.

    A number may have a sign, and a time in the past is valid.
    """
    return _deliver_time(message.properties, now)


def _deliver_time(properties: Mapping[str, str], now: int) -> int | None:
    # The first existing property counts, even if it is not a number
    # (HookUtils.transformTimerMessage).
    for name, unit, begin in (
        (PropertyKey.TIMER_DELAY_SEC, 1000, now),
        (PropertyKey.TIMER_DELAY_MS, 1, now),
        (PropertyKey.TIMER_DELIVER_MS, 1, 0),
    ):
        text = properties.get(name)
        if text is not None:
            return begin + int(text) * unit if _is_long(text) else None
    return None


def check_in_batch(properties: Mapping[str, str]) -> None:
    """Raise Refused for a message of a batch that has a later delivery time.

    The messages of a batch are stored together in one queue. Java stores them, too, and delivers
    such a message at once.
    """
    if PropertyKey.TIMER_OUT_MS in properties:  # sent again by a consumer that received it
        return
    now = clock.milliseconds()
    due = _deliver_time(properties, now)
    if due is not None and due > now:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            "a message of a batch has a delivery time (TIMER_DELAY_SEC, TIMER_DELAY_MS or "
            "TIMER_DELIVER_MS): a batch is delivered at once, send the message by itself",
        )


def make_timed(message: StoredMessage, settings: MessageStoreConfig, now: int) -> bool:
    """Convert a message to one of the timer's queue; False if its time has passed and it needs no
    timer.

    Raises StoreRefused if the timer is off or the request is invalid.
    """
    if not settings.timer_wheel_enable:
        raise StoreRefused(
            ResponseCode.SYSTEM_ERROR,
            "timed messages are refused here (timerWheelEnable=false)",
        )
    due = deliver_time(message, now)
    if due is None:
        raise StoreRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            "the delivery time is not a whole number: TIMER_DELAY_SEC, TIMER_DELAY_MS and "
            "TIMER_DELIVER_MS must be whole numbers",
        )
    properties = message.properties
    if due <= now:
        if PropertyKey.TIMER_DELETE_UNIQUE_KEY in properties:
            raise StoreRefused(
                ResponseCode.MESSAGE_ILLEGAL, "a message that is due cannot be withdrawn"
            )
        return False
    if due - now > settings.timer_max_delay_sec * 1000:
        raise StoreRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"due in {(due - now) // 1000} s, over the limit of {settings.timer_max_delay_sec} s "
            f"(timerMaxDelaySec)",
        )
    precision = settings.timer_precision_ms
    # The slot that ends at the delivery time, or that contains it.
    properties[PropertyKey.TIMER_OUT_MS] = str((due - 1) // precision * precision)
    properties[PropertyKey.REAL_TOPIC] = message.topic
    properties[PropertyKey.REAL_QUEUE_ID] = str(message.queue_id)
    message.topic = names.TIMER_TOPIC
    message.queue_id = 0
    return True


def number(message: StoredMessage | None, name: str) -> int | None:
    """A property that is a non-negative whole number; None if it is missing or something else."""
    text = "" if message is None else message.properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _is_long(text: str) -> bool:
    return _LONG(text) is not None and -_MOST_LONG - 1 <= int(text) <= _MOST_LONG


def withdrawn_by(message: StoredMessage | None) -> set[str]:
    """The id of the message that a message withdraws, if any."""
    if message is None:
        return set()
    return {message.properties.get(PropertyKey.TIMER_DELETE_UNIQUE_KEY, "")} - {""}


def is_withdrawn(message: StoredMessage, withdrawn: set[str]) -> bool:
    """Whether a message was withdrawn. 5.x names it as topic+id, or by its id alone."""
    if not withdrawn:
        return False
    unique = message.properties.get(PropertyKey.UNIQUE_KEY, "")
    topic = message.properties.get(PropertyKey.REAL_TOPIC, "")
    return unique in withdrawn or f"{topic}+{unique}" in withdrawn
