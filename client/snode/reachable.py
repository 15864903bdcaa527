"""Selects the snode for each request. No I/O.

Every client assigns the queues of a topic to the snodes in turn, in the order of their addresses.
This spreads the load, and everything that concerns one queue meets at one snode: the sends to it,
which are pushed, and the committed offsets, which show a consumer's lag. (The snode branch takes
the next snode for each request, so that a queue's messages overtake each other, and no snode knows
its offsets.) If a snode is lost, the next one in that order takes over its queues.
"""

from collections.abc import Callable, Iterable, Mapping
from zlib import crc32

from mq.protocol.headers.send import Letter


class ReachableSnodes:
    """The snodes, and those that are lost: they are not used until they answer again."""

    def __init__(self, is_heard: Callable[[str], bool]) -> None:
        """`is_heard` returns whether anything was received over the connection to an address."""
        self._is_heard = is_heard
        self.addresses: tuple[str, ...] = ()
        self._lost: set[str] = set()

    def replace(self, addresses: Iterable[str]) -> None:
        """Replace the set of snodes."""
        self.addresses = tuple(sorted(set(addresses)))
        self._lost.intersection_update(self.addresses)

    def lose(self, address: str) -> None:
        """Record that the connection to a snode ended, or failed."""
        if address in self.addresses:
            self._lost.add(address)

    def has(self, address: str) -> bool:
        """Whether a snode is not lost."""
        if address in self._lost:
            if not self._is_heard(address):
                return False
            self._lost.discard(address)
        return True

    def choose(self, broker_name: str, fields: Mapping[str, str]) -> str | None:
        """Return the snode for a request to a broker with these fields; None if there is none.

        If all snodes are lost, the result is the same as if none were.
        """
        addresses = self.addresses
        if not addresses:
            return None
        topic = fields.get(Letter.TOPIC) or fields.get("topic", "")
        number = fields.get(Letter.QUEUE_ID) or fields.get("queueId", "0")
        place = crc32(f"{topic}@{broker_name}".encode())
        if number.isdigit():
            place += int(number)
        count = len(addresses)
        for turn in range(count):
            address = addresses[(place + turn) % count]
            if not self._lost or self.has(address):
                return address
        return addresses[place % count]

    @property
    def any_left(self) -> bool:
        """Whether a snode is not lost."""
        return any(map(self.has, self.addresses))
