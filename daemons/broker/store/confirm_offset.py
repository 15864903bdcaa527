"""Confirm offset: up to where consumers may read, in a set of brokers that controllers keep.

There what is written, and on the disk where the flush mode asks for it, may still be cut: when this
master dies, another one follows that need not have it. So it is shown when the sync state set has
it (Java: DefaultMessageStore.getConfirmOffset). Until then entries are in their queues, and go to
their files, but `readable` is not moved over them; so nobody here sees them, be it a pull, a held
one or a part of the broker that delivers.

The offset is in the checkpoint. A store that is opened again shows what lies before it; the rest as
one, when the whole of that is confirmed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from mq.daemons.broker.store.batch import Batch
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.waiters import wake


class ConfirmOffset:
    """Holds back what is not confirmed. ``offset`` is the physical one up to which all is.

    ``is_open``: the store is opened by a master that waits for nobody, so that what it has counts.
    """

    def __init__(self, *, is_open: bool) -> None:
        self.offset = 0
        self._is_open = is_open
        self._release: Callable[[Batch], None] = lambda batch: None
        self._held: deque[Batch] = deque()  # by their ends
        # Queues with entries of before that are not shown: where these end, and the log did.
        self._hidden: dict[ConsumeQueue, int] = {}
        self._hidden_end = 0

    def begin(
        self,
        queues: Iterable[ConsumeQueue],
        end: int,
        saved: int,
        release: Callable[[Batch], None],
    ) -> None:
        """The store has been opened, with a log up to an end; ``saved`` is what the checkpoint has,
        ``release`` shows a batch that was held."""
        self._release = release
        self.offset = end if self._is_open else saved
        self.hide(queues, end)

    def holds(self, batch: Batch) -> bool:
        """Whether a stored batch is to be shown later: `release` does then. In their order."""
        if batch.end <= self.offset:
            return False
        self._held.append(batch)
        return True

    def raise_to(self, offset: int) -> None:
        """Let consumers read up to a physical offset, which is in the log. It never goes back."""
        if offset <= self.offset:
            return
        self.offset = offset
        if self._hidden and offset >= self._hidden_end:
            hidden, self._hidden = self._hidden, {}
            for queue, end in hidden.items():
                queue.readable = max(queue.readable, min(end, queue.written))
            wake([queue for queue in hidden if queue.waiting])
        while self._held and self._held[0].end <= offset:
            self._release(self._held.popleft())

    @contextmanager
    def all_in_sight(self) -> Iterator[None]:
        """Have what was there at the start be readable, for who makes a picture of all of it then.
        Nothing may be awaited or appended meanwhile."""
        shown = {queue: queue.readable for queue in self._hidden}
        for queue, end in self._hidden.items():
            queue.readable = end
        try:
            yield
        finally:
            for queue, readable in shown.items():
                queue.readable = readable

    def lift(self, queues: Iterable[ConsumeQueue]) -> None:
        """Let queues be cut, which go by what can be read; `hide` follows in the same turn."""
        for queue in queues:
            queue.readable = queue.written

    def hide(self, queues: Iterable[ConsumeQueue], end: int) -> None:
        """Take what queues have beyond the offset out of sight; the log ends at ``end``, and all
        entries can be read."""
        self._held.clear()
        self._hidden.clear()
        self.offset = min(self.offset, end)
        self._hidden_end = end
        if self.offset == end:
            return
        for queue in queues:
            if queue.last_physical_end() > self.offset:
                self._hidden[queue] = queue.appended
                queue.readable = max(queue.first_at_or_after(self.offset), queue.minimum)
