"""Confirm offset: the offset up to which consumers may read in a replica set with controllers.

In such a replica set a written and even a flushed record may still be truncated: if this master
dies, the next master need not have it. So a message becomes readable when the whole sync state set
has it (Java: DefaultMessageStore.getConfirmOffset). Until then its entry is in its queue, and is
written to the file, but `readable` does not move past it; so no reader in this broker sees it,
neither a pull, nor a suspended pull, nor a component that delivers messages.

The checkpoint keeps the offset. A store that is opened again shows the messages before it, and all
others together when everything that was in the log at the start is confirmed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from mq.daemons.broker.store.log.batch import Batch, wake
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue


class ConfirmOffset:
    """Hides messages that are not confirmed. ``offset`` is the confirm offset, a physical offset.

    ``is_open``: the store is opened by a master that waits for no replica, so its whole log is
    confirmed.
    """

    def __init__(self, *, is_open: bool) -> None:
        self.offset = 0
        self._is_open = is_open
        self._release: Callable[[Batch], None] = lambda batch: None
        self._held: deque[Batch] = deque()  # in order of their ends
        # Queues with hidden entries from before the start, with their ends; and the end of the log
        # then.
        self._hidden: dict[ConsumeQueue, int] = {}
        self._hidden_end = 0

    def begin(
        self,
        queues: Iterable[ConsumeQueue],
        end: int,
        saved: int,
        release: Callable[[Batch], None],
    ) -> None:
        """Start with an opened store whose log ends at ``end``. ``saved`` is the confirm offset of
        the checkpoint; ``release`` publishes a batch that was held.
        """
        self._release = release
        self.offset = end if self._is_open else saved
        self.hide(queues, end)

    def holds(self, batch: Batch) -> bool:
        """Whether a stored batch has to wait. If so, keeps it; `release` publishes the batches in
        order.
        """
        if batch.end <= self.offset:
            return False
        self._held.append(batch)
        return True

    def raise_to(self, offset: int) -> None:
        """Let consumers read up to a physical offset in the log. The offset never decreases."""
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
        """Make everything that was in the log at the start readable, for a caller that takes a
        snapshot of it. The caller must neither await nor append anything inside.
        """
        shown = {queue: queue.readable for queue in self._hidden}
        for queue, end in self._hidden.items():
            queue.readable = end
        try:
            yield
        finally:
            for queue, readable in shown.items():
                queue.readable = readable

    def lift(self, queues: Iterable[ConsumeQueue]) -> None:
        """Make all entries readable before queues are truncated, which depends on `readable`.
        `hide` must follow in the same turn.
        """
        for queue in queues:
            queue.readable = queue.written

    def hide(self, queues: Iterable[ConsumeQueue], end: int) -> None:
        """Hide the entries of queues past the offset. The log ends at ``end``; before the call all
        entries are readable.
        """
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
