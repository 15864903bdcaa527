"""The messages that an acting master sends to another broker: as their senders sent them, except
for the steps that are done already. No I/O.

    delivered   its delay is over: it must not be delayed again
    rolled      it still waits for its time, and goes to the timer of the other broker
    half        its transaction is open: it becomes a half at the other broker, which checks it
"""

from mq.client.producer.outgoing import DEFAULT_QUEUES
from mq.daemons.broker.delivery.timer_request import deliver_time, number
from mq.daemons.broker.delivery.writer import NoTarget, real_target
from mq.protocol import names
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.headers.send import Letter
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey, encode

_HOST_FLAGS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6

_TIMER = (
    PropertyKey.TIMER_DELAY_SEC,
    PropertyKey.TIMER_DELAY_MS,
    PropertyKey.TIMER_DELIVER_MS,
    PropertyKey.TIMER_OUT_MS,
    PropertyKey.TIMER_ENQUEUE_MS,
    PropertyKey.TIMER_DEQUEUE_MS,
    PropertyKey.TIMER_ROLL_TIMES,
)
_ANY_TIMES = str((1 << 31) - 1)
_SLOT_MS = 1000  # of a slot of the timer (timerPrecisionMs)
_WAITED = (PropertyKey.REAL_TOPIC, PropertyKey.REAL_QUEUE_ID)
_CHECKED = (PropertyKey.TRANSACTION_CHECK_TIMES, PropertyKey.TRANSACTION_PREPARED_QUEUE_OFFSET)


class ForwardedMessage:
    """A message for any queue of a topic."""

    def __init__(self, topic: str, sys_flag: int, properties: dict[str, str]) -> None:
        self.topic = topic
        self.sys_flag = sys_flag
        self.properties = properties

    def command(self, message: StoredMessage, group: str, queue_id: int, broker: str) -> Command:
        """The request that sends it to a queue of a broker. ``group`` is the producer's group for a
        message without one.
        """
        fields = {
            Letter.PRODUCER_GROUP: self.properties.get(PropertyKey.PRODUCER_GROUP) or group,
            Letter.TOPIC: self.topic,
            Letter.DEFAULT_TOPIC: names.DEFAULT_TOPIC,
            Letter.DEFAULT_TOPIC_QUEUE_NUMS: str(DEFAULT_QUEUES),
            Letter.QUEUE_ID: str(queue_id),
            Letter.SYS_FLAG: str(self.sys_flag),
            Letter.BORN_TIMESTAMP: str(message.born_timestamp),
            Letter.FLAG: str(message.flag),
            Letter.PROPERTIES: encode(self.properties),
            Letter.RECONSUME_TIMES: str(message.reconsume_times),
            Letter.UNIT_MODE: "false",
            Letter.BATCH: "false",
            Letter.BROKER_NAME: broker,
        }
        if self.topic.startswith(names.RETRY_PREFIX):  # else it may become a dead letter there
            fields[Letter.MAX_RECONSUME_TIMES] = _ANY_TIMES
        return Command(RequestCode.SEND_MESSAGE_V2, fields, bytes(message.body))


def delivered(message: StoredMessage) -> ForwardedMessage:
    """A message whose delay is over, with its real topic. A committed message is no longer a half,
    although its property says so.
    """
    removed = (
        *_WAITED,
        *_TIMER,
        *_CHECKED,
        PropertyKey.DELAY_LEVEL,
        PropertyKey.TRANSACTION_PREPARED,
    )
    return ForwardedMessage(message.topic, _sys_flag(message), _without(message, removed))


def rolled(message: StoredMessage) -> ForwardedMessage:
    """A message of the timer's queue, with its delivery time.

    Raises NoTarget, also for one that withdraws another message: that one does not go to the same
    broker.
    """
    if PropertyKey.TIMER_DELETE_UNIQUE_KEY in message.properties:
        raise NoTarget("the message that it withdraws waits at this broker")
    due = number(message, PropertyKey.TIMER_OUT_MS)
    if due is None:
        raise NoTarget("TIMER_OUT_MS is not a number")
    topic, _ = real_target(message.properties)
    removed = (
        *_WAITED,
        *_TIMER,
        *_CHECKED,
        PropertyKey.DELAY_LEVEL,
        PropertyKey.TRANSACTION_PREPARED,
    )
    properties = _without(message, removed)
    properties[PropertyKey.TIMER_DELIVER_MS] = str(_exact(message, due))
    return ForwardedMessage(topic, _sys_flag(message), properties)


def _exact(message: StoredMessage, slot: int) -> int:
    """The delivery time of a message in a timer slot, in ms; late rather than early. A delay counts
    from the first store time.
    """
    has_rolled = PropertyKey.TIMER_ROLL_TIMES in message.properties
    asks_for_time = PropertyKey.TIMER_DELIVER_MS in message.properties
    exact = None
    if asks_for_time or not has_rolled:
        exact = deliver_time(message, message.store_timestamp)
    return slot + _SLOT_MS if exact is None else exact


def half(message: StoredMessage) -> ForwardedMessage:
    """A half, under its real topic. Raises NoTarget."""
    topic, _ = real_target(message.properties)
    flag = _sys_flag(message) | SysFlag.TRANSACTION_PREPARED
    return ForwardedMessage(topic, flag, _without(message, (*_WAITED, *_CHECKED)))


def _sys_flag(message: StoredMessage) -> int:
    return message.sys_flag & ~_HOST_FLAGS & ~SysFlag.TRANSACTION_MASK


def _without(message: StoredMessage, removed: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in message.properties.items() if name not in removed}
