"""The memory that peers use of a daemon, and which of them have to go when it is too much.

A peer uses it for what it sends and we cannot serve yet (a part of a frame, requests behind
replies that it does not read), what it asked for and does not take, requests that wait for a
message, and what its heartbeats have said of it. Each connection knows its own part
(`Channel.memory`); one budget, shared by all ports of a daemon, adds them up.

Adding up costs a look at every connection, so it is done only when the sum may have reached the
limit: whoever uses more says so with `took`, nobody says when it is gone, and what
is `left` is set anew by each look. Between two looks the sum is therefore never above the limit.

When it is, connections are closed, as Redis does it (maxmemory-clients): first those that use most
for longest. Bytes times seconds tell a producer that is in the middle of a large message from a
peer that has left one half sent.
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
# What Python needs for a small object that carries bytes: a piece, its place in a list.
PIECE_COST = 64

_NO_LIMIT = 1 << 62
# Closing goes on until so much of the limit is free: a look for each piece that comes is too many.
_FREED = 8


def cost_of(command: Command) -> int:
    """About the bytes that a request takes for as long as somebody has it."""
    fields = command.fields
    texts = sum(map(len, fields)) + sum(map(len, fields.values())) + len(command.remark or "")
    return texts + PIECE_COST * len(fields) + len(command.body)


class MemoryUser(Protocol):
    """What the budget needs of a connection."""

    remote: str  # its peer, for the log

    @property
    def memory(self) -> int:
        """Bytes that this peer uses of ours."""

    def evict(self, reply: BusyReply) -> None:
        """Close at once; a peer that is in the middle of a request gets `reply`."""


class MemoryBudget:
    """How much memory peers may take; limits are in bytes, and 0 is none.

    ``left`` is what may be taken before everything is added up again.
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
        self._since: dict[MemoryUser, float] = {}  # when it was first seen to use some
        self.left = 0
        self.evicted: Counter[str] = Counter()  # connections, by the setting they were over

    @property
    def in_all(self) -> int:
        """The limit of all connections together; 0 is none."""
        return self._in_all()

    @property
    def of_connection(self) -> int:
        """The limit of each connection; 0 is none."""
        return self._of_connection()

    def watch(self, channels: Set["MemoryUser"]) -> None:
        """Add up these connections, too."""
        self._watched.append(channels)

    def connections(self) -> int:
        """How many there are."""
        return sum(map(len, self._watched))

    def took(self, size: int) -> None:
        """A peer uses so many bytes more."""
        self.left -= size
        if self.left < 0:
            self.look()

    def size(self) -> int:
        """What all connections use now, in bytes."""
        return sum(channel.memory for channels in self._watched for channel in channels)

    def look(self) -> None:
        """Add up what each connection uses, and close those that use too much."""
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
        whose = "its limit" if setting == CONNECTION_SETTING else "the limit of all is"
        why = f"this connection makes the server hold {used} bytes; {whose} {limit} ({setting})"
        log.warning("closing %s: %s", channel.remote, why, extra={"failure": "client memory"})
        channel.evict(BusyReply(f"[OVERLOAD]{why}; read the replies, and send whole requests"))
