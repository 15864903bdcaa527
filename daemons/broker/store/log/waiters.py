"""Waiters: callers that are notified whether their appended messages were stored.

One failing waiter must not affect the messages of others: its exception is logged, and the others
are notified nevertheless.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

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
