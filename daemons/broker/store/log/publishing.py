"""Publishing: the steps after a batch is stored as the flush mode guarantees, or has failed.

Its messages become readable, its senders get replies, and suspended pulls are woken. Replies may
have to wait for slaves, and reading for the confirm offset.
"""

from collections.abc import Callable

from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.log import waiters
from mq.daemons.broker.store.log.batch import Batch, ReadLimit, ReplicationGate


class Publisher:
    """Publishes the batches of one store.

    ``on_published`` is called with every published batch, after its replies are sent. ``slaves``
    delays replies until slaves have the batch; None for no delay. ``bound`` hides messages from
    consumers that other brokers do not have yet; None to show everything.
    """

    def __init__(self) -> None:
        self.on_published: Callable[[Batch], None] = lambda batch: None
        self.slaves: ReplicationGate | None = None
        self.bound: ReadLimit | None = None
        self.messages = 0  # published since the start, and their bytes in the log
        self.size = 0
        self.last_timestamp = 0  # of the last published message

    def publish(self, batch: Batch) -> None:
        """Make a batch readable, and answer its senders, if nothing delays that."""
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
            waiters.log_failure("a callback after a stored batch failed")

    def show(self, batch: Batch) -> None:
        """Make a stored batch readable, and answer its senders."""
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
        """Report to all waiters of a batch that it is not stored, or not known to be on the
        disk."""
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
