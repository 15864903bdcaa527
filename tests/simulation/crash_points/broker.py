"""A whole broker on the machine: delayed, timed and transactional messages, topics that are made.

What is known is simple: a body that was acknowledged comes, once the broker has had the time;
one that was rolled back never does; what was begun and not answered may come or not.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mq.client.machine import clock
from mq.client.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.daemons.broker.timer import service, wheel
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message_id import decode_offset_id
from tests.simulation.crash_points import model
from tests.simulation.crash_points.machine import ROOT
from tests.simulation.crash_points.store import Ledger, read
from tests.simulation.crash_points.workloads import ALL, Workload

# A wheel of an hour and not of weeks, which would be copied at each point.
_WHEEL = 4096
setattr(wheel, "SLOTS", _WHEEL)  # noqa: B010
setattr(service, "SLOTS", _WHEEL)  # noqa: B010

ADDRESS = "10.0.0.1:10911"
COMMIT, ROLLBACK = 8, 12
TOPIC, MADE = "Orders", "Made"
# All that waits is due by then, in seconds.
_PATIENCE = 8.0
_SETTINGS = {
    "listenPort": "10911",
    "bindAddress": "10.0.0.1",
    "brokerIP1": "10.0.0.1",
    "storePathRootDir": ROOT,
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "400",
    "mappedFileSizeTimerLog": "200",
    "maxHashSlotNum": "10",
    "maxIndexNum": "20",
}


@asynccontextmanager
async def serving(ledger: Ledger) -> AsyncIterator[tuple[Broker, Session]]:
    async with Broker(BrokerSettings.load(None, _SETTINGS)) as broker:
        ledger.store = broker.stores.messages
        async with Session("10.0.0.1:1", timeout=10) as session:
            yield broker, session
    ledger.store = None


async def send(
    ledger: Ledger, session: Session, body: str, flags: int = 0, /, **properties: str
) -> Command:
    """Send a message, and note that it has to come, unless it is one of a transaction."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    fields = {"a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "1", "f": str(flags), "g": "7"}
    fields |= {"h": "0", "i": text, "j": "0", "k": "false", "m": "false"}
    ledger.note(model.Begun(body))
    command = Command(RequestCode.SEND_MESSAGE_V2, fields, body.encode())
    reply = await session.invoke(ADDRESS, command)
    assert reply.code == ResponseCode.SUCCESS, reply
    if not flags:
        ledger.note(model.Due(body))
    return reply


async def transact(ledger: Ledger, session: Session, body: str, how: int) -> None:
    """Send a half, and end it one way or the other."""
    half = await send(ledger, session, body, 4, TRAN_MSG="true", PGROUP="P", UNIQ_KEY=body)
    fields = {
        "producerGroup": "P",
        "tranStateTableOffset": half.fields["queueOffset"],
        "commitLogOffset": str(decode_offset_id(half.fields["msgId"]).offset),
        "commitOrRollback": str(how),
        "fromTransactionCheck": "false",
        "msgId": body,
        "transactionId": body,
    }
    reply = await session.invoke(ADDRESS, Command(RequestCode.END_TRANSACTION, fields))
    assert reply.code == ResponseCode.SUCCESS, reply
    ledger.note(model.Due(body) if how == COMMIT else model.Undone(body))


async def make_topic(ledger: Ledger, session: Session) -> None:
    fields = {"topic": MADE, "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3"}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    reply = await session.invoke(ADDRESS, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
    assert reply.code == ResponseCode.SUCCESS, reply
    ledger.note(model.Due(MADE))


async def _delivery(ledger: Ledger, _: MessageStoreConfig) -> None:
    async with serving(ledger) as (_broker, session):
        await send(ledger, session, "plain")
        await send(ledger, session, "delayed", DELAY="1")
        due = clock.milliseconds() + 1500
        await send(ledger, session, "timed", TIMER_DELIVER_MS=str(due))
        await send(ledger, session, "timed later", TIMER_DELIVER_MS=str(due + 2500))
        await make_topic(ledger, session)
        await transact(ledger, session, "committed", COMMIT)
        await transact(ledger, session, "rolled back", ROLLBACK)
        await send(ledger, session, "half", 4, TRAN_MSG="true", PGROUP="P", UNIQ_KEY="half")
        await asyncio.sleep(3.0)


@dataclass
class Expectation:
    """By body."""

    begun: set[str] = field(default_factory=set)
    due: set[str] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, events: list[model.Event]) -> "Expectation":
        self = cls()
        for event in events:
            match event:
                case model.Begun(body):
                    self.begun.add(body)
                case model.Due(body):
                    self.due.add(body)
                case model.Undone(body):
                    self.undone.add(body)
        return self

    @property
    def key(self) -> tuple[frozenset[str], ...]:
        return frozenset(self.begun), frozenset(self.due), frozenset(self.undone)

    def problems(self, found: Counter[str], topics: set[str]) -> list[str]:
        wrong = [f"{body!r} came, and was never sent" for body in sorted(found.keys() - self.begun)]
        wrong += [f"{body!r} came, and was rolled back" for body in sorted(found & self._undone())]
        for body in sorted(self.due - {MADE}):
            if not found[body]:
                wrong.append(f"{body!r} was acknowledged, and did not come")
        if MADE in self.due and MADE not in topics:
            wrong.append(f"topic {MADE} was made, and is not there")
        return wrong

    def _undone(self) -> Counter[str]:
        return Counter(self.undone)


async def recover(ledger: Ledger, expected: Expectation, problems: list[str]) -> None:
    """Start behind a crash, let everything become due, look, and stop."""
    async with serving(ledger) as (broker, session):
        await asyncio.sleep(_PATIENCE)
        stored, wrong = read(broker.stores.messages)
        problems += wrong
        found = Counter(body.decode() for (topic, _, _), body in stored.items() if topic == TOPIC)
        problems += expected.problems(found, set(broker.stores.topics.table))
        await send(ledger, session, "one more")


ALL["delivery"] = Workload("delivery", _delivery, is_broker=True)
