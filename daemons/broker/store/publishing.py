"""Publishing: what becomes of a batch that is stored as the flush mode promises, or is not.

Queues show its messages, its senders are answered and held pulls are woken; both may be later, for
there may be slaves that senders wait for, and a bound up to which consumers may read.
"""

from collections.abc import Callable

from mq.daemons.broker.store import waiters
from mq.daemons.broker.store.batch import Batch, ReadLimit, ReplicationGate
from mq.daemons.broker.store.errors import StoreRefused


class Publisher:
    """Of one store.

    ``on_published`` is called with every published batch, after its replies have left. ``slaves``
    has senders wait for slaves; without it they do not. ``bound`` keeps from consumers what other
    brokers do not have; without it nothing is.
    """

    def __init__(self) -> None:
        self.on_published: Callable[[Batch], None] = lambda batch: None
        self.slaves: ReplicationGate | None = None
        self.bound: ReadLimit | None = None
        self.messages = 0  # published since the start, and their bytes in the log
        self.size = 0
        self.last_timestamp = 0  # of the last published message

    def publish(self, batch: Batch) -> None:
        """Let consumers read a batch, and answer its senders."""
        self.last_timestamp = batch.timestamp
        self.messages += batch.messages
        self.size += batch.end - batch.start
        if self.bound is None or not self.bound.holds(batch):
            self.show(batch)
        elif self.slaves is None or not self.slaves.stored(batch):
            self.answer(batch, None)
        try:
            self.on_published(batch)
        except Exception:
            waiters.log_failure("what follows a stored batch failed")

    def show(self, batch: Batch) -> None:
        """Let consumers read a batch that is stored, and answer its senders."""
        woken = []
        for queue, end in batch.touched.items():
            queue.puts += end - queue.readable
            queue.readable = end
            if queue.waiting:
                woken.append(queue)
        if self.slaves is None or not self.slaves.stored(batch):
            self.answer(batch, None)
        waiters.call(batch.callbacks, None)
        waiters.wake(woken)

    def fail(self, batch: Batch, refusal: StoreRefused) -> None:
        """Tell who waits for a batch that it is not stored, or not known to be on the disk."""
        if self.slaves is None or not self.slaves.stored(batch, refusal):
            self.answer(batch, refusal)
        waiters.refuse(batch.prompt_replies, refusal)
        waiters.call(batch.callbacks, refusal)

    def answer(self, batch: Batch, refusal: StoreRefused | None) -> None:
        """Answer the senders of a batch, once."""
        replies, answers = batch.replies, batch.answers
        batch.replies, batch.answers = [], []
        if refusal is None:
            waiters.send(replies)
        else:
            waiters.refuse(replies, refusal)
        waiters.call(answers, refusal)
