"""Batch: the messages appended to the log in one turn of the loop, and the protocols that may delay
its replies or its reading.

Waiters are notified whether their appended messages were stored. One failing waiter must not affect
the messages of others: its exception is logged, and the others are notified nevertheless.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import STORED_ALL_THE_SAME, StoreRefused
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue

log = logging.getLogger(__name__)

# Called with the reason why a message is not stored, or with None when it is.
OnStored = Callable[[StoreRefused | None], None]


class ReplySink(Protocol):
    """Where replies are sent: a channel of the listener."""

    def queue_frame(self, frame: bytes) -> None: ...

    def flush(self) -> None: ...


# Encoded replies, each with its sink.
Replies = list[tuple[ReplySink, bytes]]


def send(replies: Replies) -> None:
    """Send replies, those of one sink in one write."""
    for sink, frame in replies:
        sink.queue_frame(frame)
    for sink, _ in replies:  # a second flush of a sink does nothing
        try:
            sink.flush()
        except Exception:
            log_failure("a reply to %r failed", sink)


def wake(queues: Sequence[ConsumeQueue]) -> None:
    """Wake the suspended pulls of these queues."""
    for queue in queues:
        for pull in list(queue.waiting):
            try:
                pull.wake()
            except Exception:
                log_failure("a pull that waited for %r failed", queue)


def call(callbacks: list[OnStored], refusal: StoreRefused | None) -> None:
    for callback in callbacks:
        try:
            callback(refusal)
        except Exception:
            log_failure("a callback for a stored or refused message failed")


def refuse(replies: Replies, refusal: StoreRefused) -> None:
    """Send the same refusal in place of each reply."""
    if not replies:
        return
    from mq.protocol.frame import decode, encode  # rarely needed

    # The reply for a message that is stored nevertheless keeps its id and offset: clients read
    # both.
    stored = refusal.code in STORED_ALL_THE_SAME
    for sink, frames in replies:
        for frame in _each_frame(frames):
            reply = decode(frame)
            fields = reply.fields if stored else None
            send([(sink, encode(reply.reply(refusal.code, fields, remark=refusal.remark)))])


def _each_frame(frames: bytes) -> Iterator[bytes]:
    """Yield the frames without their lengths."""
    position = 0
    while position < len(frames):
        (length,) = layout.INT.unpack_from(frames, position)
        position += 4 + length
        yield frames[position - length : position]


def log_failure(text: str, *arguments: object) -> None:
    """Log the exception of a waiter."""
    log.exception(text, *arguments, extra={"failure": "waiters for messages"})


# Body, properties field, flag, tags code and hashes of the keys of one message of a batch request.
BatchedMessage = tuple[bytes, bytes, int, int, Sequence[int]]

# Records that were packed elsewhere: their size in bytes; for each queue the number of messages,
# their entries, and the size of their records; items for the index; the number of messages.
Packed = tuple[int, list[tuple[ConsumeQueue, int, bytes, int]], bytes, int]

# Stores more about a message in the extension of its queue: see `Appender`.
Extend = Callable[[ConsumeQueue, int, int, bytes], int]


class Origin(NamedTuple):
    """The fields that all messages of a batch request share."""

    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int


class Batch:
    """The messages appended in one turn of the loop."""

    __slots__ = (
        "answers",
        "callbacks",
        "end",
        "keyed",
        "messages",
        "packed",
        "packed_last",
        "packed_start",
        "parts",
        "prompt_replies",
        "replies",
        "start",
        "timestamp",
        "touched",
    )

    def __init__(self, start: int) -> None:
        self.start = start  # physical offsets of its first byte and past its last
        self.end = start
        self.messages = 0  # those in `parts` are counted when the batch is written
        self.packed = 0  # how many parts hold the records of several messages
        # Where the last of these starts in memory, and the number of parts up to and including it.
        self.packed_start = self.packed_last = 0
        self.timestamp = 0  # the store timestamp of all its records, ms
        self.parts: list[bytes | memoryview] = []
        # Each queue that got messages, with the queue offset after the last of them.
        self.touched: dict[ConsumeQueue, int] = {}
        self.keyed = bytearray()  # for the index
        self.replies: Replies = []
        self.prompt_replies: Replies = []  # do not wait for an fsync
        self.callbacks: list[OnStored] = []
        self.answers: list[OnStored] = []  # called when replies are sent


class ReplicationGate(Protocol):
    """Delays replies until a slave has the messages, too."""

    def written(self, batch: "Batch") -> None:
        """Note that a batch whose senders wait is written to the log."""

    def stored(self, batch: "Batch", refusal: StoreRefused | None = None) -> bool:
        """Note that a batch is stored as the flush mode guarantees, or refused. Returns False if no
        sender has to wait for a slave.
        """


class ReadLimit(Protocol):
    """Hides stored messages from consumers until more brokers have them."""

    def holds(self, batch: "Batch") -> bool:
        """Whether the batch is published later, by `Publisher.show`."""
