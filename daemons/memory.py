"""The memory budget: the memory that peers use, and the eviction of peers when it is exceeded.

A peer uses memory for data that cannot be served yet (part of a frame, requests after replies that
it does not read), requested data that it does not read, suspended requests, and the content of its
heartbeats. Each connection knows its own memory (`Channel.memory`); one budget, shared by all ports
of a daemon, adds it up.

Adding up reads every connection, so it is done only when the sum may have reached the limit:
increases are reported with `took`, decreases are not, and `left` is computed by each check. So
between two checks the sum never exceeds the limit.

When it does, connections are closed as in Redis (maxmemory-clients): first those that have used the
most for the longest time. Bytes times seconds distinguish a producer in the middle of a large
message from a peer that has sent half of one and stopped.
"""

import logging
from collections import Counter
from collections.abc import Callable, Set
from typing import Protocol

from mq.client.machine import clock
from mq.daemons.overload.busy_reply import BusyReply
from mq.protocol.command import Command

log = logging.getLogger(__name__)

CONNECTION_SETTING = "connectionMemoryMaxBytes"
CLIENTS_SETTING = "clientMemoryMaxBytes"
# Memory of a small Python object with bytes: a piece and its place in a list.
PIECE_COST = 64

_NO_LIMIT = 1 << 62
# Eviction continues until this fraction (1/8) of the limit is free, so that not every received
# piece requires a check.
_FREED = 8


def cost_of(command: Command) -> int:
    """Estimate the bytes of a request while it is kept."""
    fields = command.fields
    texts = sum(map(len, fields)) + sum(map(len, fields.values())) + len(command.remark or "")
    return texts + PIECE_COST * len(fields) + len(command.body)


class MemoryUser(Protocol):
    """The parts of a connection that the budget uses."""

    remote: str  # the peer, for the log

    @property
    def memory(self) -> int:
        """Bytes of memory that this peer uses."""

    def evict(self, reply: BusyReply) -> None:
        """Close at once; a peer that is in the middle of a request gets `reply`."""


class MemoryBudget:
    """Limits the memory of peers; limits are in bytes, and 0 means none.

    ``left`` is how much may be used before everything is added up again.
    """

    def __init__(
        self,
        of_connection: Callable[[], int] = lambda: 0,
        in_all: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._of_connection = of_connection
        self._in_all = in_all
        self._clock = clock
        self._watched: list[Set[MemoryUser]] = []
        self._since: dict[MemoryUser, float] = {}  # when its use was first seen
        self.left = 0
        self.evicted: Counter[str] = Counter()  # connections by the exceeded setting

    @property
    def in_all(self) -> int:
        """The limit of all connections together; 0 means none."""
        return self._in_all()

    @property
    def of_connection(self) -> int:
        """The limit of each connection; 0 means none."""
        return self._of_connection()

    def watch(self, channels: Set["MemoryUser"]) -> None:
        """Include these connections."""
        self._watched.append(channels)

    def connections(self) -> int:
        """The number of connections."""
        return sum(map(len, self._watched))

    def took(self, size: int) -> None:
        """Report that a peer uses so many more bytes."""
        self.left -= size
        if self.left < 0:
            self.look()

    def size(self) -> int:
        """The memory of all connections, in bytes."""
        return sum(channel.memory for channels in self._watched for channel in channels)

    def look(self) -> None:
        """Add up the memory of all connections, and evict those that use too much."""
        now = self._clock()
        used: dict[MemoryUser, int] = {}
        for channels in self._watched:
            for channel in channels:
                memory = channel.memory
                if memory:
                    used[channel] = memory
        self._since = {channel: self._since.get(channel, now) for channel in used}
        most = self._of_connection() or _NO_LIMIT
        for channel in [c for c, memory in used.items() if memory > most]:
            self._evict(channel, used.pop(channel), most, CONNECTION_SETTING)
        limit = self._in_all() or _NO_LIMIT
        total = sum(used.values())
        if total > limit:
            since = self._since
            goal = limit - limit // _FREED
            for channel in sorted(used, key=lambda c: used[c] * (1 + now - since[c]), reverse=True):
                if total <= goal:
                    break
                total -= used[channel]
                self._evict(channel, used[channel], limit, CLIENTS_SETTING)
        self.left = min(limit - total, most)

    def _evict(self, channel: "MemoryUser", used: int, limit: int, setting: str) -> None:
        self.evicted[setting] += 1
        whose = "its limit" if setting == CONNECTION_SETTING else "the limit of all"
        why = f"this connection makes the server hold {used} bytes; {whose} is {limit} ({setting})"
        log.warning("closing %s: %s", channel.remote, why, extra={"failure": "client memory"})
        channel.evict(BusyReply(f"[OVERLOAD]{why}; read the replies, and send whole requests"))
