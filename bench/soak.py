"""A mixed load for a given time, and the proof that nothing was lost: python -m bench.soak

One broker process, ended repeatedly with SIGKILL and SIGTERM in turn, and a name server. Plain
messages, delayed, timed and transactional ones are sent; members of consumer groups come and go. At
the end:

- every message that was acknowledged (for transactions: committed) was consumed, and the group with
  a filter consumed exactly the matching ones;
- nothing was consumed that was never sent, or was rolled back;
- messages consumed twice were redelivered for a reason that at-least-once delivery declares: the
  broker was ended or the members of the group changed between the two, or the sender retried;
- the broker's own memory (RssAnon) does not grow from one run to the next.

Exit status 0 if all of that holds, else 1; the figures are one JSON object on standard output.
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from mq.client import (
    Consumer,
    MQError,
    Producer,
    Session,
    Sql92,
    TransactionCheck,
    TransactionProducer,
    TransactionState,
)
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.topic import CreateTopicRequestHeader
from mq.protocol.message import Message, StoredMessage
from tests.interop.ports import free_port
from tests.system.daemon import BrokerProcess

KINDS = ("plain", "delayed", "timed", "transactional")
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
# An offset is committed every 5 s: messages consumed within this time before an event may be
# redelivered.
COMMIT_SECONDS = 6.0
DRAIN_SECONDS = 90.0
MOST_GROWTH = 20.0  # MB of RssAnon from an early run of the broker to a late one
SETTINGS = {
    "enablePropertyFilter": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
    # After a kill a producer cannot be queried until its next heartbeat, up to 30 s later, which
    # counts as a check.
    "transactionCheckMax": "1000",
    "mappedFileSizeCommitLog": str(64 << 20),
}


@dataclass
class Ledger:
    """The messages sent, acknowledged and received."""

    sent: dict[str, int] = field(default_factory=dict)  # attempts by identity, a kind and a number
    acknowledged: set[str] = field(default_factory=set)
    rolled_back: set[str] = field(default_factory=set)
    # By group: identity -> (offset id, time) of each delivery.
    received: dict[str, dict[str, list[tuple[str, float]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    kills: list[float] = field(default_factory=list)
    changes: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    memory: list[list[float]] = field(default_factory=list)  # MB, of each run of the broker

    def due(self, group: str) -> set[str]:
        """Return the messages that a group must have received."""
        if group == "filtered":
            return {i for i in self.acknowledged if i.startswith("plain") and fits(i)}
        return set(self.acknowledged)

    def missing(self, group: str) -> set[str]:
        return self.due(group) - self.received[group].keys()

    def excuse(self, group: str, first: float, second: float) -> bool:
        """Whether an event occurred that may cause a redelivery."""
        events = (*self.kills, *self.changes[group])
        return any(first - COMMIT_SECONDS <= event <= second for event in events)


def fits(identity: str) -> bool:
    """Whether the filter of the filtering group matches a plain message."""
    return int(identity.rpartition("-")[2]) % 3 == 0


class Soak:
    """The load and its parts."""

    def __init__(
        self, folder: Path, seconds: float, kill_every: float, seed: int, kinds: Sequence[str]
    ) -> None:
        self.ledger = Ledger()
        self._kinds = kinds
        self._folder = folder
        self._seconds = seconds
        self._kill_every = kill_every
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self._broker: BrokerProcess
        self._name_server = ""
        self._stop = asyncio.Event()
        self._ends: dict[str, TransactionState] = {}

    async def run(self) -> None:
        """Run the load for the given time, then wait until everything has been consumed."""
        settings = NamesrvSettings.load(
            None, {"listenPort": "0", "kvConfigPath": str(self._folder / "kvConfig.json")}
        )
        async with AsyncExitStack() as parts:
            server = await parts.enter_async_context(NameServer(settings))
            self._name_server = server.address
            self._broker = BrokerProcess(
                self._folder / "store",
                {**SETTINGS, "namesrvAddr": server.address, "listenPort": str(free_port())},
            )
            await asyncio.to_thread(self._broker.start)
            parts.callback(self._broker.kill)
            await self._create_topics()
            async with asyncio.TaskGroup() as tasks:
                done = asyncio.Event()
                tasks.create_task(self._consume("all", dict.fromkeys(KINDS, "*"), done))
                expression: dict[str, str] = {"plain": Sql92("third = 0")}
                tasks.create_task(self._consume("filtered", expression, done))
                tasks.create_task(self._rebalance(done))
                tasks.create_task(self._watch_memory(done))
                async with asyncio.TaskGroup() as load:
                    for kind in self._kinds:
                        ended = asyncio.Event()
                        # It stays, to answer transaction checks.
                        tasks.create_task(self._send(kind, ended, done))
                        load.create_task(_until(ended))
                    load.create_task(self._kill())
                    load.create_task(self._end())
                await self._drained()
                done.set()

    async def _create_topics(self) -> None:
        async with Session(self._name_server) as session:
            for kind in KINDS:
                header = CreateTopicRequestHeader(
                    topic=kind,
                    default_topic="TBW102",
                    read_queue_nums=4,
                    write_queue_nums=4,
                    perm=6,
                    topic_filter_type="SINGLE_TAG",
                )
                command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())
                reply = await session.invoke(self._broker.address, command)
                assert reply.code == 0, reply

    async def _end(self) -> None:
        await asyncio.sleep(self._seconds)
        self._stop.set()

    # the load -------------------------------------------------------------------------------

    async def _send(self, kind: str, ended: asyncio.Event, done: asyncio.Event) -> None:
        producer: Producer
        if kind == "transactional":
            producer = TransactionProducer(self._name_server, "soak-tx", self._check)
        else:
            producer = Producer(self._name_server, f"soak-{kind}")
        async with producer:
            while not self._stop.is_set():
                await asyncio.gather(*(self._send_one(kind, producer) for _ in range(20)))
                await asyncio.sleep(0.05)
            ended.set()
            await done.wait()

    async def _send_one(self, kind: str, producer: Producer) -> None:
        ledger = self.ledger
        number = next(self._numbers)
        identity = f"{kind}-{number}"
        message = Message(kind, identity.encode(), keys=[identity], properties={
            "third": str(number % 3)
        })  # fmt: skip
        if kind == "delayed":
            message.delay_level = 1
        elif kind == "timed":
            message.deliver_at = int(time.time() * 1000) + self._chance.randrange(500, 3000)
        ledger.sent[identity] = 1
        try:
            if isinstance(producer, TransactionProducer):
                await self._transaction(identity, message, producer)
            else:
                await producer.send(message)
                ledger.acknowledged.add(identity)
        except MQError:
            pass  # not acknowledged: it may be delivered or not

    async def _transaction(
        self, identity: str, message: Message, producer: TransactionProducer
    ) -> None:
        state = self._chance.choice((TransactionState.COMMIT, TransactionState.ROLLBACK))
        unknown = self._chance.randrange(4) == 0  # the broker has to check

        async def execute(_: Message) -> TransactionState:
            self._ends[identity] = state
            known = self.ledger.acknowledged
            (known if state is TransactionState.COMMIT else self.ledger.rolled_back).add(identity)
            return TransactionState.UNKNOWN if unknown else state

        await producer.send_in_transaction(message, execute)

    async def _check(self, question: TransactionCheck) -> TransactionState:
        # A half message whose sender never learned of it has no decision: roll it back.
        return self._ends.get(question.message.body.decode(), TransactionState.ROLLBACK)

    async def _kill(self) -> None:
        while self._kill_every and not self._stop.is_set():
            try:
                async with asyncio.timeout(self._kill_every):
                    await self._stop.wait()
            except TimeoutError:
                if len(self.ledger.kills) % 4 == 0:  # each end has two times
                    self._broker.kill()
                else:
                    await asyncio.to_thread(self._broker.stop)
                self.ledger.kills.append(time.monotonic())
                await asyncio.to_thread(self._broker.start)
                self.ledger.kills.append(time.monotonic())

    # consuming ------------------------------------------------------------------------------

    def _listener(self, group: str) -> Callable[[StoredMessage], Awaitable[None]]:
        async def listen(message: StoredMessage) -> None:
            came = (message.offset_id, time.monotonic())
            self.ledger.received[group][message.body.decode()].append(came)

        return listen

    async def _consume(
        self, group: str, subscriptions: dict[str, str], done: asyncio.Event
    ) -> None:
        listener = self._listener(group)
        changes = self.ledger.changes[group]
        changes.append(time.monotonic())
        while not done.is_set():
            try:
                async with Consumer(
                    self._name_server, group, subscriptions, listener=listener, consume_from=FIRST
                ):
                    await done.wait()
            except MQError:  # it cannot start while the broker is down
                await _wait(done, 0.2)
            changes.append(time.monotonic())

    async def _rebalance(self, done: asyncio.Event) -> None:
        """Let a second member of the group that subscribes to everything come and go."""
        while not done.is_set():
            leave = asyncio.Event()
            member = asyncio.create_task(
                self._consume("all", dict.fromkeys(KINDS, "*"), leave), name="second member"
            )
            await _wait(done, min(30.0, self._seconds / 4))
            leave.set()
            await member
            self.ledger.changes["all"].append(time.monotonic())
            await _wait(done, min(30.0, self._seconds / 4))

    async def _drained(self) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while any(self.ledger.missing(group) for group in ("all", "filtered")):
            if time.monotonic() > deadline:
                return  # the report has the missing messages
            await asyncio.sleep(0.2)

    async def _watch_memory(self, done: asyncio.Event) -> None:
        life: list[float] = []
        watched = None
        while not done.is_set():
            process = self._broker._process
            if process is not None and process is not watched:
                watched, life = process, []
                self.ledger.memory.append(life)
            if process is not None and (used := anonymous_memory(process.pid)):
                life.append(used)
            await _wait(done, 0.5)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def anonymous_memory(pid: int) -> float:
    """Return the RssAnon of a process in MB; 0 for one that has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def report(ledger: Ledger) -> tuple[dict[str, object], list[str]]:
    """Return the figures, and the errors: none in a run that has passed."""
    wrong = []
    twice = declared = 0
    for group in ("all", "filtered"):
        if missing := sorted(ledger.missing(group)):
            wrong.append(f"{group}: {len(missing)} lost, such as {missing[:5]}")
        for identity, times in ledger.received[group].items():
            if identity not in ledger.sent:
                wrong.append(f"{group}: {identity} was never sent")
            if identity in ledger.rolled_back:
                wrong.append(f"{group}: {identity} was rolled back, and came")
            if group == "filtered" and not fits(identity):
                wrong.append(f"{group}: {identity} does not fit the filter")
            for (_, first), (_, second) in itertools.pairwise(times):
                twice += 1
                if ledger.excuse(group, first, second):
                    declared += 1
                else:
                    wrong.append(f"{group}: {identity} came again without a reason")
    peaks = [max(life) for life in ledger.memory if len(life) > 4]
    growth = round(peaks[-1] - peaks[0], 1) if len(peaks) > 1 else 0.0
    if growth > MOST_GROWTH:
        wrong.append(f"RssAnon grew by {growth} MB from the first life to the last: {peaks}")
    figures: dict[str, object] = {
        "sent": len(ledger.sent),
        "acknowledged": len(ledger.acknowledged),
        "rolled_back": len(ledger.rolled_back),
        "consumed": {group: len(ledger.received[group]) for group in ("all", "filtered")},
        "came_again": twice,
        "of_that_declared": declared,
        "kills": len(ledger.kills) // 2,
        "changes_of_members": len(ledger.changes["all"]),
        "rss_anon_mb_of_lives": [round(peak, 1) for peak in peaks],
        "wrong": wrong[:20],
    }
    return figures, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kill-every", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="mq-soak-") as folder:
        seconds = options.minutes * 60
        soak = Soak(Path(folder), seconds, options.kill_every, options.seed, options.kinds)
        asyncio.run(soak.run())
    figures, wrong = report(soak.ledger)
    print(json.dumps(figures, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
