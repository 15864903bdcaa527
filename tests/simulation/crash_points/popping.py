"""Popped messages: acknowledged, hidden for longer, or left until they are redelivered.

A stored message without acknowledgement is redelivered; one with an answered acknowledgement is
not. With asynchronous flush a power cut may take messages and acknowledgements, but no check point
alone: a surviving message is redelivered, or its acknowledgement survives, too.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace

from mq.client.machine import clock
from mq.client.transport.session import Session
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from mq.protocol.headers.schema import Header
from mq.protocol.message import StoredMessage, decode_records
from tests.simulation import seams
from tests.simulation.crash_points import model
from tests.simulation.crash_points.broker import ADDRESS, TOPIC, send, serving
from tests.simulation.crash_points.machine import NAME
from tests.simulation.crash_points.store import Ledger, read
from tests.simulation.crash_points.workloads import ALL, Crash, Judge, Main, Workload

GROUP = "G"
_SETTINGS = {"flushConsumerOffsetInterval": "700", "reviveQueueNum": "2"}
_UNSYNCED = {**_SETTINGS, "flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "20000"}
_INVISIBLE = 1500  # ms
# Seconds after which everything popped is redelivered.
_PATIENCE = 6.0
# A popped message is acknowledged this many ms before or after its redelivery.
_CLOSE = (-5.0, -4.0, -3.0, -2.0, -1.0, 0.0)


@dataclass(frozen=True)
class Popped:
    """A message with the values that identify it to the broker."""

    body: str
    topic: str
    receipt: tuple[str, ...]  # as in pop/receipt.py
    due: int  # ms: its redelivery

    @property
    def names(self) -> dict[str, object]:
        return {
            "consumer_group": GROUP,
            "topic": self.topic,
            "queue_id": int(self.receipt[6]),
            "extra_info": " ".join(self.receipt),
            "offset": int(self.receipt[7]),
        }


async def _ask(session: Session, header: Header) -> Command:
    return await session.invoke(ADDRESS, Command(header.REQUESTS[0], header.encode()))


async def pop(session: Session, most: int, invisible: int = _INVISIBLE) -> list[Popped]:
    """Pop the available messages."""
    header = PopMessageRequestHeader(
        consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=most, invisible_time=invisible,
        poll_time=0, born_time=clock.milliseconds(), init_mode=0,
    )  # fmt: skip
    reply = await _ask(session, header)
    if reply.code != ResponseCode.SUCCESS:
        return []
    fields = PopMessageResponseHeader.decode(reply.fields)
    parts = [part.split(" ") for part in (fields.start_offset_info or "").split(";") if part]
    starts = {(mark, int(queue)): start for mark, queue, start in parts}
    return [_popped(message, fields, starts) for message in decode_records(reply.body)]


def _popped(
    message: StoredMessage, fields: PopMessageResponseHeader, starts: dict[tuple[str, int], str]
) -> Popped:
    receipt = message.properties.get("POP_CK", "").split(" ")
    if len(receipt) == 1:
        mark = "1" if message.topic.startswith("%RETRY%") else "0"
        numbers = (fields.pop_time, fields.invisible_time, fields.revive_qid)
        receipt = [
            starts[mark, message.queue_id], *map(str, numbers), mark, "broker",
            str(message.queue_id), str(message.queue_offset),
        ]  # fmt: skip
    topic = f"%RETRY%{GROUP}_{TOPIC}" if receipt[4] == "1" else TOPIC
    due = int(receipt[1]) + int(receipt[2])
    return Popped(message.body.decode(), topic, tuple(receipt), due)


async def acknowledge(ledger: Ledger, session: Session, popped: Popped) -> None:
    ledger.note(model.MessageAcknowledging(popped.body))
    reply = await _ask(session, AckMessageRequestHeader(**popped.names))  # type: ignore[arg-type]
    is_taken = reply.code == ResponseCode.SUCCESS
    ledger.note(
        model.MessageAcknowledged(popped.body)
        if is_taken
        else model.AcknowledgementRefused(popped.body)
    )


async def _hide(session: Session, popped: Popped, milliseconds: int) -> Popped:
    header = ChangeInvisibleTimeRequestHeader(invisible_time=milliseconds, **popped.names)  # type: ignore[arg-type]
    reply = await _ask(session, header)
    assert reply.code == ResponseCode.SUCCESS, reply
    fields = ChangeInvisibleTimeResponseHeader.decode(reply.fields)
    times = (str(fields.pop_time), str(fields.invisible_time), str(fields.revive_qid))
    receipt = (popped.receipt[7], *times, *popped.receipt[4:])
    return replace(popped, receipt=receipt, due=fields.pop_time + fields.invisible_time)


async def _at(moment: float) -> None:
    await asyncio.sleep(max(moment - clock.time() * 1000, 0) / 1000)


def _popping(**changes: str) -> Main:
    async def main(ledger: Ledger, _: MessageStoreConfig) -> None:
        async with serving(ledger, **changes) as (broker, session):
            for number in range(12):
                await send(ledger, session, f"m{number}")
            await broker.stores.messages.flusher.drain()  # with asynchronous flush more survives
            first = await pop(session, 4)
            await acknowledge(ledger, session, first[0])
            hidden = await _hide(session, first[1], 2500)
            for early in _CLOSE:
                close = await pop(session, 1, 400)
                await _at(close[0].due + early)
                await acknowledge(ledger, session, close[0])
            await acknowledge(ledger, session, hidden)
            await asyncio.sleep(0.5)
            for again in await pop(session, 2):
                await acknowledge(ledger, session, again)
        async with serving(ledger, **changes) as (_broker, session):
            for popped in (await pop(session, 8))[::2]:
                await acknowledge(ledger, session, popped)
            await asyncio.sleep(0.8)

    return main


@contextlib.contextmanager
def _slow_syncs() -> Iterator[None]:
    """Operations that wait for no fsync finish before those that do."""
    disk = seams.disks[NAME]
    before = disk.faults
    disk.faults = replace(before, sync_seconds=(0.05, 0.06))
    try:
        yield
    finally:
        disk.faults = before


async def _pops_of_a_new_group(ledger: Ledger, _: MessageStoreConfig) -> None:
    async with serving(ledger, **_UNSYNCED) as (_broker, session):
        for number in range(3):
            await send(ledger, session, f"m{number}")
        with _slow_syncs():
            for popped in (await pop(session, 2))[:1]:
                await acknowledge(ledger, session, popped)


@dataclass
class Expectation:
    """By body."""

    begun: set[str] = field(default_factory=set)
    due: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, events: list[model.Event]) -> "Expectation":
        self = cls()
        for event in events:
            match event:
                case model.Begun(body):
                    self.begun.add(body)
                case model.Due(body):
                    self.due.add(body)
                case model.MessageAcknowledging(body):
                    self.leaving.add(body)
                case model.AcknowledgementRefused(body):
                    self.leaving.discard(body)
                case model.MessageAcknowledged(body):
                    self.left.add(body)
        return self

    @property
    def key(self) -> tuple[frozenset[str], ...]:
        return tuple(map(frozenset, (self.begun, self.due, self.leaving, self.left)))

    def problems(self, found: Counter[str], stored: set[str], *, may_have_lost: bool) -> list[str]:
        wrong = [f"{body!r} came, and was never sent" for body in sorted(found.keys() - self.begun)]
        if not may_have_lost:
            lost = sorted(self.due - stored)
            wrong += [f"{body!r} was acknowledged, and is not there" for body in lost]
            back = sorted(found.keys() & self.left)
            wrong += [f"{body!r} was consumed, and is redelivered" for body in back]
        missing = sorted((stored & self.begun) - self.leaving - found.keys())
        return wrong + [f"{body!r} was not consumed, and is not redelivered" for body in missing]


def _judge(**changes: str) -> Judge:
    may_lose = "flushDiskType" in changes

    def judge(
        ledger: Ledger, problems: list[str], crash: Crash
    ) -> tuple[object, Callable[[], Awaitable[None]]]:
        expected = Expectation.of(ledger.events)
        may_have_lost = may_lose and crash.has_lost_power

        async def look() -> None:
            async with serving(ledger, **changes) as (broker, session):
                bodies, wrong = read(broker.stores.messages)
                stored = {body.decode() for (name, *_), body in bodies.items() if name == TOPIC}
                found = await _consume(ledger, session)
                problems.extend(wrong)
                problems.extend(expected.problems(found, stored, may_have_lost=may_have_lost))

        return (expected.key, may_have_lost), look

    return judge


async def _consume(ledger: Ledger, session: Session) -> Counter[str]:
    """Pop and acknowledge everything for a while."""
    found: Counter[str] = Counter()
    until = clock.monotonic() + _PATIENCE
    while clock.monotonic() < until:
        popped = await pop(session, 32)
        for one in popped:
            found[one.body] += 1
            await acknowledge(ledger, session, one)
        if not popped:
            await asyncio.sleep(0.5)
    return found


_MAINS = {
    "popping": (_popping(**_SETTINGS), _SETTINGS),
    "popping-unsynced": (_popping(**_UNSYNCED), _UNSYNCED),
    "pops-of-a-new-group": (_pops_of_a_new_group, _UNSYNCED),
}
for _name, (_main, _changes) in _MAINS.items():
    ALL[_name] = Workload(_name, _main, judge=_judge(**_changes))
