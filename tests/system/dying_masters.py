"""Rounds in each of which the master of a set is killed (kill -9), while others send and a group
reads.

Whatever the moment of the kill: in the end every member has the acknowledged messages, once, in the
order of their senders' lanes, and nothing else; the group received all of them, each after all
earlier ones of its queue, and no message that was truncated later.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.errors import MQError
from mq.client.options import Intervals
from mq.client.transport.session import Session
from mq.protocol.bodies import ConsumeFromWhere, ReplicasInfo
from mq.protocol.message import StoredMessage
from tests.system.controlled_set import PATIENCE, point_to, until_all_show_the_same
from tests.system.ledger import TOPIC, Place, SenderProcess, audit, identity_of

SENDERS = 2
PAUSE = 0.05  # of each of their lanes: the set is to be busy, but not the machine
MESSAGES = 100  # at least, from one kill to the next
LOOK_SECONDS = 0.02
GROUP = "ledger-readers"


class Member(Protocol):
    """A broker of the set, of this project or of Java."""

    address: str

    def start(self) -> None: ...

    def kill(self) -> None: ...


@dataclass
class Readings:
    """The messages that the group received, and the errors in them."""

    given: dict[Place, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    _next: dict[int, int] = field(default_factory=dict)

    def take(self, place: Place, identity: str) -> None:
        expected = self._next.get(place.queue, 0)
        if place.offset > expected:
            self.wrong.append(f"{place} was given when {expected} was next")
        before = self.given.setdefault(place, identity)
        if before != identity:
            self.wrong.append(f"{place} was {before}, and is {identity} now")
        self._next[place.queue] = max(expected, place.offset + 1)
        self.more.set()


@dataclass
class Figures:
    """Seconds from each kill to the next acknowledged message; and the number of messages."""

    gaps: list[float] = field(default_factory=list)
    messages: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{len(self.gaps)} masters killed in {self.seconds:.0f} s, {self.messages} messages "
            f"acknowledged; until the next one {statistics.median(self.gaps):.2f} s (median), "
            f"{max(self.gaps):.2f} s (longest)"
        )


class Rounds:
    """A set whose masters are killed. ``controllers`` report the master of ``name``."""

    def __init__(
        self, folder: Path, name: str, members: Sequence[Member], controllers: Sequence[str]
    ) -> None:
        self.figures = Figures()
        self._folder = folder
        self._name = name
        self._members = members
        self._controllers = list(controllers)
        self._address_file = folder / "address"
        self._senders = [
            SenderProcess(folder, number, self._address_file, pause=PAUSE)
            for number in range(SENDERS)
        ]
        self._readings = Readings()
        self._session = Session("127.0.0.1:1", timeout=2)

    async def play(
        self, count: int, names: str, besides: Callable[[int], Awaitable[None]] | None = None
    ) -> None:
        """Kill this many masters, one after the other, and check the messages. ``besides`` is
        called with the number of each round when its master is dead. Raises AssertionError.
        """
        began = time.monotonic()
        async with self._session:
            everybody = len(self._members)
            state = await self.until(lambda found: len(found.in_sync_replicas) == everybody)
            point_to(self._address_file, state.master_address or "")
            for sender in self._senders:
                await asyncio.to_thread(sender.start)
            try:
                await self._until_more(MESSAGES)
                async with self._reader(names):
                    for number in range(count):
                        await self._round(number, besides)
                    await asyncio.to_thread(self._stop_senders)
                    await self.until(lambda found: len(found.in_sync_replicas) == everybody)
                    await self._look()
            finally:
                await asyncio.to_thread(self._stop_senders)
        self.figures.seconds = time.monotonic() - began

    async def _round(
        self, number: int, besides: Callable[[int], Awaitable[None]] | None = None
    ) -> None:
        state = await self.until(lambda found: len(found.in_sync_replicas) >= 2)
        await self._until_more(MESSAGES)
        master = next(one for one in self._members if one.address == state.master_address)
        epoch = state.master_epoch or 0
        await asyncio.to_thread(master.kill)
        began = time.monotonic()
        if besides is not None:
            await besides(number)
        state = await self.until(
            lambda found: bool(found.master_address) and (found.master_epoch or 0) > epoch
        )
        assert state.master_address != master.address
        point_to(self._address_file, state.master_address or "")
        await self._until_more(1)
        self.figures.gaps.append(time.monotonic() - began)
        await asyncio.to_thread(master.start)

    async def until(self, holds: Callable[[ReplicasInfo], bool]) -> ReplicasInfo:
        """Ask the controllers until a condition on the set holds."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = await self._ask()
            if found is not None and holds(found):
                return found
            assert time.monotonic() < deadline, found
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask(self) -> ReplicasInfo | None:
        for address in self._controllers:
            try:
                found = await Admin(self._session).sync_state(address, [self._name])
            except MQError:
                continue
            return found.replicas_info_table.get(self._name)
        return None

    # senders ------------------------------------------------------------------------------------

    @property
    def acknowledged(self) -> int:
        return sum(sender.acknowledged for sender in self._senders)

    async def _until_more(self, count: int) -> None:
        """Wait until this many more messages are acknowledged, as files show; there is no event."""
        wanted = self.acknowledged + count
        async with asyncio.timeout(PATIENCE):
            while self.acknowledged < wanted:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS / 2)

    def _stop_senders(self) -> None:
        for sender in self._senders:
            sender.stop()

    # the group ----------------------------------------------------------------------------------

    def _reader(self, names: str) -> Consumer:
        async def handle(message: StoredMessage) -> None:
            place = Place(message.queue_id, message.queue_offset)
            self._readings.take(place, identity_of(message.body))

        return Consumer(
            names,
            GROUP,
            {TOPIC: "*"},
            listener=handle,
            concurrency=1,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            intervals=Intervals(routes=1.0, heartbeats=2.0, offsets=0.5),
        )

    # stored messages ------------------------------------------------------------------------------

    async def _look(self) -> None:
        addresses = [one.address for one in self._members]
        await asyncio.to_thread(until_all_show_the_same, addresses)
        for address in addresses:
            found = await asyncio.to_thread(audit, self._folder, address)
            found.check()
        self.figures.messages = len(found.acknowledged)
        readings = self._readings
        async with asyncio.timeout(PATIENCE):
            while readings.given.keys() < found.places.keys():
                readings.more.clear()
                await readings.more.wait()
        assert readings.wrong == []
        assert readings.given == found.places
