"""Ways through snodes: which of them a request goes to. No I/O.

The queues of a topic are dealt out in turn over the snodes that there are, in the order of their
addresses, by every client in the same way: so the load is spread, and what concerns one queue -
sends to it, which are pushed, and the offsets that tell how far a consumer is behind - meets at one
snode. (The snode branch takes the next one for each request, so that a queue's messages overtake
each other, and no snode knows its offsets.) When that one is lost, the next in that order has its
queues.
"""

from collections.abc import Callable, Iterable, Mapping
from zlib import crc32

from mq.protocol.headers.send import Letter


class ReachableSnodes:
    """The snodes, and which of them are lost: those do not count until they are heard again."""

    def __init__(self, is_heard: Callable[[str], bool]) -> None:
        """`is_heard` says whether something has come over the connection to an address."""
        self._is_heard = is_heard
        self.addresses: tuple[str, ...] = ()
        self._lost: set[str] = set()

    def replace(self, addresses: Iterable[str]) -> None:
        """These are the snodes now."""
        self.addresses = tuple(sorted(set(addresses)))
        self._lost.intersection_update(self.addresses)

    def lose(self, address: str) -> None:
        """The connection to a snode has ended, or could not be made."""
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
        """The snode for a request to a broker with these fields; None if there is none.

        When all are lost it is the one that it would be if none were.
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
        """Whether one of them is not lost."""
        return any(map(self.has, self.addresses))
