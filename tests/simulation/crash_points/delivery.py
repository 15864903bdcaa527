"""Messages that are delivered later: delayed, timed and transactional ones; and a topic that is
created.

An acknowledged body is delivered once the broker has had the time, a rolled-back one never; one
without an answer may be delivered. A transaction ends once, even if its end is requested again
after the crash. With asynchronous flush a power cut may take acknowledged messages; waiting
messages that survive must be delivered.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mq.client.machine import clock
from mq.client.transport.session import Session
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.protocol import names
from mq.protocol.batch import encode_batch
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.transaction import ENDED, pack_halves
from mq.protocol.message import Message
from mq.protocol.message_id import decode_offset_id
from tests.simulation.crash_points import model
from tests.simulation.crash_points.broker import ADDRESS, TOPIC, ask, send, serving
from tests.simulation.crash_points.store import Ledger, read
from tests.simulation.crash_points.workloads import ALL, Crash, Judge, Workload

COMMIT, ROLLBACK = 8, 12
MADE = "Made"
# Everything that waits is due by then, in seconds.
_PATIENCE = 8.0
_WAITING = (names.SCHEDULE_TOPIC, names.TIMER_TOPIC)
_UNSYNCED = {
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": "20000",
    "flushDelayOffsetInterval": "700",
}


async def transact(ledger: Ledger, session: Session, body: str, how: int) -> None:
    """Send a half and end it."""
    half = await send(ledger, session, body, 4, TRAN_MSG="true", PGROUP="P", UNIQ_KEY=body)
    physical = decode_offset_id(half.fields["msgId"]).offset
    fields = _end(body, int(half.fields["queueOffset"]), physical, how)
    ledger.note(model.TransactionEnding(body, fields))
    await ask(session, RequestCode.END_TRANSACTION, fields)
    ledger.note(model.Due(body) if how == COMMIT else model.RolledBack(body))


async def transact_many(ledger: Ledger, session: Session, bodies: list[str], how: int) -> None:
    """Send halves in one batch, and end all of them by one request."""
    messages = [Message(TOPIC, body.encode()) for body in bodies]
    for each, body in zip(messages, bodies, strict=True):
        each.system["UNIQ_KEY"] = body
        ledger.note(model.Begun(body))
    fields = {"a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "1", "f": "4", "g": "7"}
    fields |= {
        "h": "0",
        "i": "TRAN_MSG\x01true\x02PGROUP\x01P",
        "j": "0",
        "k": "false",
        "m": "true",
    }
    command = Command(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(messages))
    halves = (await session.invoke(ADDRESS, command)).fields
    first = int(halves["queueOffset"])
    places = [decode_offset_id(each).offset for each in halves["msgId"].split(",")]
    ends = [_end(body, first + n, places[n], how) for n, body in enumerate(bodies)]
    for body, end in zip(bodies, ends, strict=True):
        ledger.note(model.TransactionEnding(body, end))
    more = pack_halves((place, first + n) for n, place in enumerate(places) if n)
    command = Command(RequestCode.END_TRANSACTION, ends[0], more)
    ended = await session.invoke(ADDRESS, command)
    assert ended.fields == {ENDED: str(len(bodies))}, ended
    for body in bodies:
        ledger.note(model.Due(body) if how == COMMIT else model.RolledBack(body))


def _end(body: str, offset: int, physical: int, how: int) -> dict[str, str]:
    return {
        "producerGroup": "P",
        "tranStateTableOffset": str(offset),
        "commitLogOffset": str(physical),
        "commitOrRollback": str(how),
        "fromTransactionCheck": "false",
        "msgId": body,
        "transactionId": body,
    }


async def make_topic(ledger: Ledger, session: Session) -> None:
    fields = {"topic": MADE, "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3"}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    await ask(session, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    ledger.note(model.Due(MADE))


def _delivery(**changes: str) -> Callable[[Ledger, MessageStoreConfig], Awaitable[None]]:
    async def main(ledger: Ledger, _: MessageStoreConfig) -> None:
        async with serving(ledger, **changes) as (broker, session):
            await send(ledger, session, "plain")
            await send(ledger, session, "delayed", DELAY="1")
            due = clock.milliseconds() + 1500
            await send(ledger, session, "timed", TIMER_DELIVER_MS=str(due))
            await send(ledger, session, "timed later", TIMER_DELIVER_MS=str(due + 2500))
            await make_topic(ledger, session)
            for size in (0, 100, 200):  # a write of each crosses the end of a sector
                await transact(ledger, session, "committed" + size * ".", COMMIT)
            await transact(ledger, session, "rolled back", ROLLBACK)
            await send(ledger, session, "half", 4, TRAN_MSG="true", PGROUP="P", UNIQ_KEY="half")
            await broker.stores.messages.flusher.drain()  # with asynchronous flush more survives
            await asyncio.sleep(0.3)
            await send(ledger, session, "delayed later", DELAY="1")
            await asyncio.sleep(2.7)

    return main


def _many(**changes: str) -> Callable[[Ledger, MessageStoreConfig], Awaitable[None]]:
    async def main(ledger: Ledger, _: MessageStoreConfig) -> None:
        async with serving(ledger, **changes) as (broker, session):
            await make_topic(ledger, session)
            await send(ledger, session, "plain")
            bodies = [f"committed {n}{n * 150 * '.'}" for n in range(4)]
            await transact_many(ledger, session, bodies, COMMIT)
            await transact_many(ledger, session, ["rolled back 0", "rolled back 1"], ROLLBACK)
            await transact_many(ledger, session, ["last 0", "last 1"], COMMIT)
            await broker.stores.messages.flusher.drain()

    return main


@dataclass
class Expectation:
    """By body."""

    begun: set[str] = field(default_factory=set)
    due: set[str] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)
    ends: dict[str, dict[str, str]] = field(default_factory=dict)  # of transactions: requests

    @classmethod
    def of(cls, events: list[model.Event]) -> "Expectation":
        self = cls()
        for event in events:
            match event:
                case model.Begun(body):
                    self.begun.add(body)
                case model.Due(body):
                    self.due.add(body)
                case model.RolledBack(body):
                    self.undone.add(body)
                case model.TransactionEnding(body, fields):
                    self.ends[body] = fields
        return self

    @property
    def key(self) -> tuple[frozenset[str], ...]:
        return tuple(map(frozenset, (self.begun, self.due, self.undone, self.ends)))

    def problems(self, found: Counter[str], topics: set[str]) -> list[str]:
        wrong = [f"{body!r} came, and was never sent" for body in sorted(found.keys() - self.begun)]
        wrong += [
            f"{body!r} came, and was rolled back" for body in sorted(found.keys() & self.undone)
        ]
        for body in sorted(self.due - {MADE}):
            if not found[body]:
                wrong.append(f"{body!r} was acknowledged, and did not come")
        for body in sorted(self.ends):
            if found[body] > 1:
                wrong.append(f"{body!r} was committed once, and came {found[body]} times")
        if MADE in self.due and MADE not in topics:
            wrong.append(f"topic {MADE} was made, and is not there")
        return wrong


async def _recover(
    ledger: Ledger,
    expected: Expectation,
    problems: list[str],
    crash: Crash,
    changes: dict[str, str],
) -> None:
    """Start after a crash, let everything become due, check, and stop."""
    async with serving(ledger, **changes) as (broker, session):
        if changes and crash.has_lost_power:
            stored, _ = read(broker.stores.messages)
            expected.due &= {MADE}
            expected.due |= {body.decode() for (name, *_), body in stored.items()
                             if name in _WAITING}  # fmt: skip
            expected.undone.clear()
        for fields in expected.ends.values():
            # It may have ended or be lost: it must not end twice.
            await session.invoke(ADDRESS, Command(RequestCode.END_TRANSACTION, fields))
        await asyncio.sleep(_PATIENCE)
        stored, wrong = read(broker.stores.messages)
        problems += wrong
        found = Counter(body.decode() for (name, _, _), body in stored.items() if name == TOPIC)
        problems += expected.problems(found, set(broker.stores.topics.table))
        await send(ledger, session, "one more")


def _judge(**changes: str) -> Judge:
    def judge(
        ledger: Ledger, problems: list[str], crash: Crash
    ) -> tuple[object, Callable[[], Awaitable[None]]]:
        expected = Expectation.of(ledger.events)
        lost = bool(changes) and crash.has_lost_power
        return (expected.key, lost), lambda: _recover(ledger, expected, problems, crash, changes)

    return judge


ALL["transactions"] = Workload("transactions", _many(), judge=_judge())
ALL["delivery"] = Workload("delivery", _delivery(), judge=_judge())
ALL["delivery-unsynced"] = Workload(
    "delivery-unsynced", _delivery(**_UNSYNCED), judge=_judge(**_UNSYNCED)
)
