"""Offsets of groups: committed, set back, saved, and a broker that stops during a save.

A committed offset is in effect until the next one. A start finds one that was in effect between two
saves before the crash, or, after an orderly stop, the last one. It is never beyond the end of its
queue, because later messages would be skipped.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.protocol.codes import RequestCode
from tests.simulation import seams
from tests.simulation.crash_points import model
from tests.simulation.crash_points.broker import TOPIC, ask, send, serving
from tests.simulation.crash_points.store import Ledger
from tests.simulation.crash_points.workloads import ALL, Crash, Judge, Main, Workload

GROUP = "G"
_QUEUES = (0, 1)
_NONE = -1
_EVERY = {"flushConsumerOffsetInterval": "1000"}
_UNSYNCED = {**_EVERY, "flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "20000"}
# Longest time between two finished saves, in seconds: the interval and a save.
_BETWEEN_SAVES = 1.3


def _now() -> float:
    assert seams.world is not None
    return seams.world.now


async def _commit(ledger: Ledger, session: Session, queue_id: int, offset: int) -> None:
    ledger.note(model.OffsetCommitting(queue_id, offset, _now()))
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
    await ask(session, RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": str(offset)})
    ledger.note(model.OffsetCommitted(queue_id, offset, _now()))


async def _is_saving(broker: Broker) -> None:
    while not broker.stores.offsets._saving.locked():  # noqa: ASYNC110
        await asyncio.sleep(0.000_2)


def _offsets(**changes: str) -> Main:
    async def main(ledger: Ledger, _: MessageStoreConfig) -> None:
        async with serving(ledger, **changes) as (_broker, session):
            for number in range(6):
                await send(ledger, session, f"m{number}")
            await _commit(ledger, session, 1, 2)
            await _commit(ledger, session, 0, 0)
            await asyncio.sleep(1.1)  # it is saved
            await _commit(ledger, session, 1, 5)
            await asyncio.sleep(0.8)
            await _commit(ledger, session, 1, 1)  # set back
            await asyncio.sleep(0.3)
        ledger.note(model.Stopped())
        for turn, offset in enumerate((6, 3, 4, 2)):
            async with serving(ledger, **changes) as (broker, session):
                await send(ledger, session, f"n{turn}")  # a save flushes it first
                await _commit(ledger, session, 1, offset)
                await _is_saving(broker)
                await asyncio.sleep(0.001 * turn)
            ledger.note(model.Stopped())

    return main


@dataclass
class Expectation:
    """The possible offsets, by queue."""

    allowed: dict[int, set[int]] = field(default_factory=lambda: {q: {_NONE} for q in _QUEUES})

    @classmethod
    def of(cls, events: list[model.Event], now: float) -> "Expectation":
        self = cls()
        current = dict.fromkeys(_QUEUES, _NONE)
        ended: list[tuple[int, int, float]] = []  # offsets in effect, and until when
        moving: dict[int, int] = {}
        for event in events:
            match event:
                case model.OffsetCommitting(queue_id, offset):
                    moving[queue_id] = offset
                case model.OffsetCommitted(queue_id, offset, at):
                    ended.append((queue_id, current[queue_id], at))
                    current[queue_id] = offset
                    moving.clear()
                case model.Stopped():
                    ended.clear()
        for queue_id in _QUEUES:
            self.allowed[queue_id] = {current[queue_id], moving.get(queue_id, current[queue_id])}
        for queue_id, offset, at in ended:
            if at >= now - _BETWEEN_SAVES:
                self.allowed[queue_id].add(offset)
        return self

    def problems(self, found: dict[int, int], ends: dict[int, int]) -> list[str]:
        wrong = []
        for queue_id, offset in found.items():
            allowed = {min(one, ends[queue_id]) for one in self.allowed[queue_id]}
            if offset not in allowed:
                wrong.append(f"{GROUP} is at {offset} in queue {queue_id}, not at {allowed}")
        return wrong


def _judge(**changes: str) -> Judge:
    def judge(
        ledger: Ledger, problems: list[str], crash: Crash
    ) -> tuple[object, Callable[[], Awaitable[None]]]:
        expected = Expectation.of(ledger.events, crash.now)

        async def look() -> None:
            async with serving(ledger, **changes) as (broker, _):
                offsets, store = broker.stores.offsets, broker.stores.messages
                found = {q: offsets.query(GROUP, TOPIC, q) for q in _QUEUES}
                problems.extend(
                    expected.problems(found, {q: store.max_offset(TOPIC, q) for q in _QUEUES})
                )
            async with serving(ledger, **changes) as (broker, _):
                again = {q: broker.stores.offsets.query(GROUP, TOPIC, q) for q in _QUEUES}
                if again != found:
                    problems.append(f"after an orderly stop {GROUP} is at {again}, not at {found}")

        return tuple(frozenset(one) for one in expected.allowed.values()), look

    return judge


for _name, _changes in (("offsets", _EVERY), ("offsets-unsynced", _UNSYNCED)):
    ALL[_name] = Workload(_name, _offsets(**_changes), judge=_judge(**_changes))
