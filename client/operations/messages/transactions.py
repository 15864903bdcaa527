"""Open transactions: half messages that are neither committed nor rolled back.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC at its broker; an operation in
RMQ_SYS_TRANS_OP_HALF_TOPIC ends it by its queue offset. The broker stores, as offsets of
CID_RMQ_SYS_TRANS, before which everything in either topic is processed. So the open half messages
are after the first offset and in no operation after the second. A check appends a half message
again; the previous one is the same transaction.
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

MOST_READ = 1024  # half messages, and operations, read per broker
_QUEUE = 0  # the only one that brokers use
_REMOVE = "d"  # TransactionalMessageUtil.REMOVETAG


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open half message: its topic, its producer group, and how often it was checked."""

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
    """The open transactions of a broker, oldest first. If `is_all` is False only the first ones
    were read.

    `not_passed` counts half messages that the broker has not passed yet, including ended ones.
    """

    broker_name: str
    found: tuple[OpenTransaction, ...] = ()
    not_passed: int | None = None
    is_all: bool = True
    problem: str | None = None

    @property
    def oldest(self) -> int | None:
        """The born time of the oldest one, in ms since 1970."""
        return min((item.born_time for item in self.found), default=None)


async def open_transactions(admin: "Admin", broker_name: str, address: str) -> OpenTransactions:
    """Return the open transactions of the broker at `address`. Does not raise: see `problem`."""
    halves = MessageQueue(TRANSACTION_HALF_TOPIC, broker_name, _QUEUE)
    operations = MessageQueue(TRANSACTION_OPERATION_TOPIC, broker_name, _QUEUE)
    try:
        # Operations first: one that arrives meanwhile leaves a half message shown slightly too
        # long, but hides none.
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
    """Return the offset up to which the broker has processed one of its topics, and the topic's
    end.
    """
    end = await admin.max_offset(address, queue.topic, queue.queue_id)
    if not end:
        return 0, 0
    low = await admin.min_offset(address, queue.topic, queue.queue_id)
    passed = await admin.query_consumer_offset(
        address, TRANSACTION_CHECK_GROUP, queue.topic, queue.queue_id
    )
    return min(max(low, passed or 0), end), end


def ended_offsets(operation: "StoredMessage") -> list[int]:
    """Return the queue offsets of the half messages that an operation ends: one in 4.9, a list with
    a comma after each in 5.x. Empty if the body is not such a list.
    """
    if operation.tags != _REMOVE:
        return []
    parts = [part for part in bytes(operation.body).split(b",") if part]
    if not all(part.isdigit() and len(part) < 19 for part in parts):
        return []
    return [int(part) for part in parts]


def _key(half: "StoredMessage") -> tuple[str, ...]:
    """Return a key that identifies a transaction, however often its half message is appended
    again.
    """
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
