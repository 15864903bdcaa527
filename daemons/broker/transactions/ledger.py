"""The ledger: which transactions are open.

The truth is on the disk: a half is open if no operation ends it. The ledger is a copy of that state
in memory, built at the start and kept up to date, so that each transaction ends once however often
its end is requested, and the checks read only open halves.

A check puts the half at the end of the half topic again. It is then known by its newest offset; its
producer may still end it by an older one, which was in flight at the check.
"""

from collections.abc import Iterable, Sequence

from mq.daemons.broker.transactions.records import HalfLike, transaction_key
from mq.protocol.message import StoredMessage

# Transactions that were given up may still be ended by their producers; the newest are remembered.
_MAX_GIVEN_UP = 10_000


class Ledger:
    """The queue offsets of open halves."""

    def __init__(self) -> None:
        self._open: dict[int, bytes] = {}  # key of the transaction by queue offset of its half
        self._newest: dict[bytes, int] = {}  # the reverse
        self._given_up: dict[bytes, int] = {}
        self._given_up_at: dict[int, bytes] = {}  # the reverse
        self._ending: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def offsets(self) -> list[int]:
        """The open halves, oldest first."""
        return sorted(self._open)

    def first(self, default: int) -> int:
        """The oldest open half, `default` without one."""
        return min(self._open, default=default)

    def is_open(self, offset: int) -> bool:
        """Whether a half is open and not just being ended."""
        return offset in self._open and offset not in self._ending

    def may_end(self, offset: int) -> bool:
        """Whether the end of a half is not in flight already."""
        return offset not in self._ending

    def count_endable(self, offsets: Sequence[int]) -> int:
        """How many of these halves, from the first on, are open by these offsets, not just being
        ended, and named once.
        """
        named: set[int] = set()
        for offset in offsets:
            if offset in named or not self.is_open(offset):
                break
            named.add(offset)
        return len(named)

    def add(self, half: StoredMessage, offset: int) -> None:
        """Add a stored half. If its producer has sent it twice, only the second one is open."""
        self._add_key(transaction_key(half), offset)

    def add_keys(self, keys: Sequence[bytes], first: int) -> None:
        """As `add` for consecutive halves whose keys are known."""
        for offset, key in enumerate(keys, first):
            self._add_key(key, offset)

    def _add_key(self, key: bytes, offset: int) -> None:
        self._forget(key)
        self._open[offset] = key
        self._newest[key] = offset

    def find(self, half: HalfLike) -> int | None:
        """The offset by which the transaction of a half has to be ended, None if it is not open."""
        if half.queue_offset in self._open:
            return half.queue_offset
        key = transaction_key(half)
        offset = self._newest.get(key)
        return self._given_up.get(key) if offset is None else offset

    def replace(self, old: int, new: int) -> None:
        """Replace a half that was put again: later requests for the transaction concern the new
        one.
        """
        key = self._open.pop(old, None)
        if key is None:  # it has ended meanwhile
            return
        self._open[new] = key
        self._newest[key] = new

    def begin_ends(self, offsets: Iterable[int]) -> None:
        """Note that the ends of halves are in flight to the disk."""
        self._ending.update(offsets)

    def cancel_ends(self, offsets: Iterable[int]) -> None:
        """Note that they were refused."""
        self._ending.difference_update(offsets)

    def remove(self, offsets: Iterable[int]) -> None:
        """Remove halves that have ended, or no longer exist."""
        for offset in offsets:
            self._ending.discard(offset)
            key = self._open.pop(offset, None)
            if key is not None:
                self._newest.pop(key, None)
            elif (given_up := self._given_up_at.get(offset)) is not None:
                self._forget_given_up(given_up)

    def has_ended(self, half: StoredMessage) -> None:
        """Note, while the ledger is built, that a half has ended, with the older ones that it
        replaced.
        """
        self._forget(transaction_key(half))

    def give_up(self, offset: int) -> None:
        """Stop checking a half."""
        key = self._open.pop(offset, None)
        if key is None:
            return
        self._newest.pop(key, None)
        self._forget_given_up(key)
        self._given_up[key] = offset
        self._given_up_at[offset] = key
        if len(self._given_up) > _MAX_GIVEN_UP:
            self._forget_given_up(next(iter(self._given_up)))

    def _forget(self, key: bytes) -> None:
        known = self._newest.pop(key, None)
        if known is not None:
            self._open.pop(known, None)
        self._forget_given_up(key)

    def _forget_given_up(self, key: bytes) -> None:
        """Forget a transaction that was given up."""
        offset = self._given_up.pop(key, None)
        if offset is not None:
            self._given_up_at.pop(offset, None)


class Operations:
    """The operations that Java has to read again because of open halves, by queue offset.

    The offset of the group CID_RMQ_SYS_TRANS may pass an operation when all halves that it ends are
    before that group's offset in the half topic.
    """

    def __init__(self) -> None:
        self._first = 0
        self._latest_halves: list[int] = []  # by operation, the last half that it ends

    def add(self, offset: int, halves: Iterable[int]) -> None:
        """Add a stored operation."""
        self._leave_gap(offset)
        self._latest_halves.append(max(halves, default=-1))

    def add_each(self, offset: int, halves: Iterable[int]) -> None:
        """Add stored consecutive operations, each of which ends one half."""
        self._leave_gap(offset)
        self._latest_halves += halves

    def _leave_gap(self, offset: int) -> None:
        if not self._latest_halves:
            self._first = offset
        # Offsets without a readable operation must not block the others.
        gap = offset - self._first - len(self._latest_halves)
        self._latest_halves += [-1] * gap

    def passed(self, half_offset: int, default: int) -> int:
        """Remove the operations that end only halves before an offset; returns the offset of the
        first one left.

        Returns `default` if there were none.
        """
        if not self._latest_halves:
            return default
        count = 0
        for latest in self._latest_halves:
            if latest >= half_offset:
                break
            count += 1
        self._first += count
        del self._latest_halves[:count]
        return self._first
