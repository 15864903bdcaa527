"""Batch: the messages appended to the log in one turn of the loop, and the protocols that may delay
its replies or its reading.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.log.waiters import OnStored, Replies
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue

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
