"""Open transactions: halves that nobody has committed or rolled back yet.

A half waits in RMQ_SYS_TRANS_HALF_TOPIC at its broker; an operation in RMQ_SYS_TRANS_OP_HALF_TOPIC
ends it by its queue offset. The broker keeps, as offsets of CID_RMQ_SYS_TRANS, before which all of
either topic is done with. So what is open is behind the first offset and in no operation behind the
second. A check puts a half again at the end; the one before is the same transaction.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.client.operations.messages import broker_queues
from mq.protocol.bodies import MessageQueue
from mq.protocol.names import (
    TRANSACTION_CHECK_GROUP,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OPERATION_TOPIC,
)
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.message import StoredMessage

MOST_READ = 1024  # halves, and as many operations, of one broker
_QUEUE = 0  # the only one that brokers use
_REMOVE = "d"  # TransactionalMessageUtil.REMOVETAG


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A half that is open: for which topic, of which producer group, how often it was checked."""

    broker_name: str
    message_id: str
    topic: str | None
    group: str | None
    born_time: int
    checks: int
    keys: str | None
    half_offset: int


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Those of a broker, oldest first. With `is_all` False only the first ones were read.

    `not_passed` are halves that the broker has not passed yet, ended ones among them.
    """

    broker_name: str
    found: tuple[OpenTransaction, ...] = ()
    not_passed: int | None = None
    is_all: bool = True
    problem: str | None = None

    @property
    def oldest(self) -> int | None:
        """When the oldest was made, in ms since 1970."""
        return min((item.born_time for item in self.found), default=None)


async def open_transactions(admin: "Admin", broker_name: str, address: str) -> OpenTransactions:
    """The open transactions of the broker at `address`. It raises nothing: see `problem`."""
    halves = MessageQueue(TRANSACTION_HALF_TOPIC, broker_name, _QUEUE)
    operations = MessageQueue(TRANSACTION_OPERATION_TOPIC, broker_name, _QUEUE)
    try:
        # Operations first: one that comes meanwhile leaves a half open that is shown once too long,
        # and none is hidden.
        begin, end = await _not_passed(admin, address, halves)
        if begin == end:
            return OpenTransactions(broker_name, not_passed=0)
        last = min(end, begin + MOST_READ)
        stored = await broker_queues.read(admin, address, halves, begin, last)
        first, until = await _not_passed(admin, address, operations)
        most = min(until, first + MOST_READ)
        notes = await broker_queues.read(admin, address, operations, first, most, bodies=True)
    except MQError as error:
        return OpenTransactions(broker_name, problem=str(error))
    ended = {offset for note in notes for offset in ended_offsets(note)}
    latest: dict[tuple[str, ...], StoredMessage] = {}
    for half in stored:
        if half.queue_offset not in ended:
            latest[_key(half)] = half
    found = sorted(latest.values(), key=lambda half: half.born_timestamp)
    return OpenTransactions(
        broker_name,
        tuple(_open(broker_name, half) for half in found),
        end - begin,
        last == end and most == until,
    )


async def _not_passed(admin: "Admin", address: str, queue: MessageQueue) -> tuple[int, int]:
    """From where on the broker has not passed a topic of its own, and where it ends."""
    end = await admin.max_offset(address, queue.topic, queue.queue_id)
    if not end:
        return 0, 0
    low = await admin.min_offset(address, queue.topic, queue.queue_id)
    passed = await admin.query_consumer_offset(
        address, TRANSACTION_CHECK_GROUP, queue.topic, queue.queue_id
    )
    return min(max(low, passed or 0), end), end


def ended_offsets(operation: "StoredMessage") -> list[int]:
    """The queue offsets of the halves that an operation ends: one of 4.9, a list of 5.x with a
    comma behind each. None for what is no such list."""
    if operation.tags != _REMOVE:
        return []
    parts = [part for part in bytes(operation.body).split(b",") if part]
    if not all(part.isdigit() and len(part) < 19 for part in parts):
        return []
    return [int(part) for part in parts]


def _key(half: "StoredMessage") -> tuple[str, ...]:
    """What tells one transaction from another, however often its half is put again."""
    properties = half.properties
    names = (PropertyKey.PRODUCER_GROUP, PropertyKey.REAL_TOPIC)
    unique = properties.get(PropertyKey.UNIQUE_KEY) or half.offset_id
    return (*(properties.get(name, "") for name in names), unique)


def _open(broker_name: str, half: "StoredMessage") -> OpenTransaction:
    properties = half.properties
    checks = properties.get(PropertyKey.TRANSACTION_CHECK_TIMES, "0")
    return OpenTransaction(
        broker_name,
        half.message_id,
        properties.get(PropertyKey.REAL_TOPIC),
        properties.get(PropertyKey.PRODUCER_GROUP),
        half.born_timestamp,
        int(checks) if checks.isdecimal() else 0,
        properties.get(PropertyKey.KEYS),
        half.queue_offset,
    )
