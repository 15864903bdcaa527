"""Batch: what was appended to the log in one turn of the loop, and who else has a say in it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.waiters import OnStored, Replies

#: Body, properties field, flag, tags code and hashes of the keys of a message of a batch request.
BatchedMessage = tuple[bytes, bytes, int, int, Sequence[int]]

#: Bytes of records that have been packed elsewhere; of each queue how many, their entries, and the
#: bytes of its records; items for the index; how many messages.
Packed = tuple[int, list[tuple[ConsumeQueue, int, bytes, int]], bytes, int]

#: What puts more about a message into its queue's extension: see `Appender`.
Extend = Callable[[ConsumeQueue, int, int, bytes], int]


class Origin(NamedTuple):
    """What the messages of a batch have in common."""

    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int


class Batch:
    """What was appended in one turn of the loop."""

    __slots__ = (
        "answers",
        "callbacks",
        "end",
        "keyed",
        "messages",
        "packed",
        "packed_begin",
        "packed_behind",
        "parts",
        "prompt_replies",
        "replies",
        "start",
        "timestamp",
        "touched",
    )

    def __init__(self, start: int) -> None:
        self.start = start  # physical offsets of its first byte and behind its last
        self.end = start
        self.messages = 0  # those of `parts` are counted when they are written
        self.packed = 0  # how many of the parts are records of several messages
        # Where the newest of these begins in memory, and how many parts there were with it.
        self.packed_begin = self.packed_behind = 0
        self.timestamp = 0  # the store timestamp of all its records, ms
        self.parts: list[bytes | memoryview] = []
        # Each queue that got messages, with the queue offset behind the last of them.
        self.touched: dict[ConsumeQueue, int] = {}
        self.keyed = bytearray()  # for the index
        self.replies: Replies = []
        self.prompt_replies: Replies = []  # do not wait for an fsync
        self.callbacks: list[OnStored] = []
        self.answers: list[OnStored] = []  # called when replies are sent


class ReplicationGate(Protocol):
    """Who has senders wait until a slave has their messages, too."""

    def written(self, batch: "Batch") -> None:
        """A batch whose senders wait is in the log."""

    def stored(self, batch: "Batch", refusal: StoreRefused | None = None) -> bool:
        """It is stored as the flush mode promises, or not; False if nobody waits for a slave."""


class ReadLimit(Protocol):
    """What keeps messages from consumers that are stored, until more brokers have them."""

    def holds(self, batch: "Batch") -> bool:
        """Whether a batch is to be shown later, by `Publisher.show`."""
