"""Waiters: who is told what became of messages that were appended.

The messages of all do not depend on one who waits: what a waiter raises is logged, and the others
are told all the same.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.errors import STORED_ALL_THE_SAME, StoreRefused

log = logging.getLogger(__name__)

#: Is called with why a message is not stored, or None when it is.
OnStored = Callable[[StoreRefused | None], None]


class ReplySink(Protocol):
    """Where replies go: a channel of the listener."""

    def queue_frame(self, frame: bytes) -> None: ...

    def flush(self) -> None: ...


#: Encoded replies, each with where it goes.
Replies = list[tuple[ReplySink, bytes]]


def send(replies: Replies) -> None:
    """Send replies, those of one sink in one write."""
    for sink, frame in replies:
        sink.queue_frame(frame)
    for sink, _ in replies:  # a second flush of one finds nothing
        try:
            sink.flush()
        except Exception:
            log_failure("a reply to %r failed", sink)


def wake(queues: Sequence[ConsumeQueue]) -> None:
    """Tell the pulls that wait for these queues that there is more to read."""
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
            log_failure("what was to be done with a message that is stored, or not, failed")


def refuse(replies: Replies, refusal: StoreRefused) -> None:
    """Send the same refusal in the place of each reply."""
    if not replies:
        return
    from mq.protocol.frame import decode, encode  # hardly ever needed

    # A message that is stored all the same keeps its id and offset: clients read both.
    stored = refusal.code in STORED_ALL_THE_SAME
    for sink, frames in replies:
        for frame in _each_frame(frames):
            reply = decode(frame)
            fields = reply.fields if stored else None
            send([(sink, encode(reply.reply(refusal.code, fields, remark=refusal.remark)))])


def _each_frame(frames: bytes) -> Iterator[bytes]:
    """Frames without their lengths."""
    position = 0
    while position < len(frames):
        (length,) = layout.INT.unpack_from(frames, position)
        position += 4 + length
        yield frames[position - length : position]


def log_failure(text: str, *arguments: object) -> None:
    """Log the exception of one who waited. The messages of all others must not depend on it."""
    log.exception(text, *arguments, extra={"failure": "waiters for messages"})
