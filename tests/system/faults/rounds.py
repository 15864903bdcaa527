"""Rounds of faults in a cluster with clients, and the conditions that must hold after each."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.protocol.bodies import TopicConfig
from tests.system.faults.book import SENDERS, Book
from tests.system.faults.clients import (
    QUEUES,
    TOPIC,
    JavaClients,
    OurClients,
    everything_stored,
)
from tests.system.faults.cluster import Cluster, Daemon, Inside
from tests.system.faults.plan import Fault, Kind, Plan, Round

ROUTED = 2.0  # seconds from a fault's end until every topic has a route everywhere
# A Java broker registers at most every ten seconds, notices a dead connection only then, and waits
# for silent name servers one after the other.
JAVA_ROUTED = 45.0
# Until every broker has accepted a message since the fault, and every group has received one of it.
ONWARD = 10.0
# A Java consumer notices only after 30 s that a request on a dead connection gets no answer. Only
# some rounds wait for that; otherwise it must not take longer than this.
JAVA_ONWARD = 90.0
JAVA_ROUNDS = 25
# The time of the test's own work on a busy machine: starting processes, querying routes.
SLACK = 1.0
PATIENCE = 60.0  # in the end, until everything has been consumed


@dataclass
class Figures:
    """The longest times of a run, in seconds."""

    rounds: int = 0
    routed: float = 0.0
    java_routed: float = 0.0
    onward: dict[str, float] = field(default_factory=dict)
    ended: float = 0.0


class Rounds:
    """A cluster with its clients, in which rounds are run. An async context manager."""

    def __init__(self, folder: Path, seed: int, *, java_servers: bool, java_clients: bool) -> None:
        self.book = Book()
        self.figures = Figures()
        self.cluster = Cluster(folder, java=java_servers)
        self._plan = Plan(self.cluster, seed)
        self._inside = Inside(self.cluster)
        self._admin = Session("127.0.0.1:1", timeout=3)
        self._ours = OurClients(self.cluster, self.book)
        self._java = JavaClients(self.cluster, self.book, folder) if java_clients else None
        self._parts = AsyncExitStack()
        self._before_last = 0.0
        self._last = 0.0

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as parts:
            await parts.enter_async_context(self.cluster)
            await parts.enter_async_context(self._inside)
            await parts.enter_async_context(self._admin)
            for broker in self.cluster.brokers:
                await self._make_topic(broker, TOPIC, QUEUES)
            await self._wait_for_routes(time.time() + PATIENCE)
            await parts.enter_async_context(self._ours)
            if self._java is not None:
                await parts.enter_async_context(self._java)
            await self._wait_until_onward(time.time(), [SENDERS, *self.book.groups])
            self._parts = parts.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    async def _make_topic(self, broker: str, topic: str, queues: int) -> None:
        config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
        await Admin(self._admin).create_topic(self.cluster.address(broker), config)

    # a round --------------------------------------------------------------------------------

    async def run(self) -> str:
        """One round; returns a line with its events."""
        self.figures.rounds += 1
        number, book = self.figures.rounds, self.book
        planned = self._plan.next()
        text = f"round {number}: {' AND '.join(map(str, planned.faults))}"
        book.note(text)
        began = time.time()
        faults = [self._strike(fault) for fault in planned.faults]
        ends, _ = await asyncio.gather(asyncio.gather(*faults), self._create(number, planned))
        ended = max(ends)
        routed = await self._check_routes(ended)
        onward = await self._check_onward(ended)
        book.settle()
        book.check_repeats()
        self._check_nothing_is_missing(began)
        self._ours.check_alive()
        if self._java is not None:
            self._java.check_alive()
        return f"{text}: {ended - began:.1f} s, routes after {routed:.2f}, onward after {onward}"

    async def _strike(self, fault: Fault) -> float:
        """Inject a fault; returns the time of its end."""
        book, cluster = self.book, self.cluster
        await asyncio.sleep(fault.delay)
        if fault.target in cluster.brokers:
            book.disturb(fault.target)
            daemon = cluster.brokers[fault.target]
        else:
            daemon = cluster.name_servers[fault.target]
        book.note(f"begins: {fault}")
        if fault.kind is Kind.CUT_OFF:
            for door in fault.doors:
                await door.shut(fault.cut)
            await asyncio.sleep(fault.seconds)
            for door in fault.doors:
                await door.reopen(fault.after)
        else:
            await self._strike_process(daemon, fault)
        book.note(f"over: {fault.target} {fault.kind.value}")
        if fault.target in cluster.brokers:
            book.over(fault.target)
        return time.time()

    async def _strike_process(self, daemon: Daemon, fault: Fault) -> None:
        process = daemon.process
        if fault.kind is Kind.STAND_STILL:
            process.pause()
            await asyncio.sleep(fault.seconds)
            process.go_on()
            return
        began = time.time()
        await asyncio.to_thread(process.kill if fault.kind is Kind.KILL else process.stop)
        if not daemon.java:
            self.figures.ended = max(self.figures.ended, time.time() - began)
        self.book.note(f"{daemon.name} is gone")
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(process.start)

    async def _create(self, number: int, planned: Round) -> None:
        if planned.created is None:
            return
        broker, delay = planned.created
        topic = f"made-in-round-{number}"
        await asyncio.sleep(delay)
        try:
            await self._make_topic(broker, topic, 2)
            self.book.note(f"{topic} made at {broker}")
        # the topic may have been created nevertheless: the broker shows it
        except MQError as error:
            self.book.note(f"{topic} not made at {broker}: {error}")

    # conditions
    # --------------------------------------------------------------------------------------

    async def _check_routes(self, ended: float) -> float:
        """Wait until every name server has every topic of every broker; returns the time for this
        project's.
        """
        took = await self._wait_for_routes(ended)
        ours = max(
            (seconds for pair, seconds in took.items() if not self._is_java(pair)), default=0.0
        )
        self.figures.routed = max(self.figures.routed, ours)
        self.figures.java_routed = max(self.figures.java_routed, *took.values())
        return ours

    def _is_java(self, pair: tuple[str, str]) -> bool:
        return self.cluster.brokers[pair[1]].java

    async def _wait_for_routes(self, ended: float) -> dict[tuple[str, str], float]:
        """The time until each name server had the topics of each broker."""
        took: dict[tuple[str, str], float] = {}
        pairs = [(names, broker) for names in self.cluster.name_servers
                 for broker in self.cluster.brokers]  # fmt: skip
        topics = {broker: await self._inside.topics(broker) for broker in self.cluster.brokers}
        waits = {pair: self._wait_for_pair(*pair, topics[pair[1]], ended) for pair in pairs}
        for pair, seconds in zip(waits, await asyncio.gather(*waits.values()), strict=True):
            took[pair] = seconds
        return took

    async def _wait_for_pair(
        self, name_server: str, broker: str, topics: set[str], ended: float
    ) -> float:
        limit = JAVA_ROUTED if self._is_java((name_server, broker)) else ROUTED
        left = {(topic, broker) for topic in topics}
        while True:
            asked = time.time()
            left = await self._inside.without_route(name_server, left)
            if not left:
                return max(0.0, asked - ended)
            if asked > ended + limit + SLACK:
                names = sorted(topic for topic, _ in left)
                self.book.blame(
                    f"{name_server} gives no route to {len(names)} of {len(topics)} topics of "
                    f"{broker} {asked - ended:.2f} s after the end: {names[:5]}"
                )
                return asked - ended
            await asyncio.sleep(0.05)

    async def _check_onward(self, ended: float) -> str:
        groups = [SENDERS, *self.book.groups]
        if self._java is not None and self.figures.rounds % JAVA_ROUNDS:
            groups.remove("java")
            for broker, newest in self.book.groups["java"].newest.items():
                if newest < time.time() - JAVA_ONWARD:
                    self.book.blame(f"java gets nothing of {broker} for {JAVA_ONWARD:.0f} s")
        took = await self._wait_until_onward(ended, groups)
        for group, seconds in took.items():
            self.figures.onward[group] = max(self.figures.onward.get(group, 0.0), seconds)
        return ", ".join(f"{seconds:.2f} ({group})" for group, seconds in took.items())

    async def _wait_until_onward(self, since: float, groups: list[str]) -> dict[str, float]:
        """Wait until each group has received a message of each broker that was sent since then."""

        async def wait(group: str) -> float:
            newest = self.book.newest(group)

            def behind(of_java: bool) -> list[str]:
                return [
                    name
                    for name, broker in self.cluster.brokers.items()
                    if newest[name] <= since and broker.java in (False, of_java)
                ]

            for of_java in (group == "java", True):
                seconds = JAVA_ONWARD if of_java else ONWARD
                if not await until(lambda: not behind(of_java), since + seconds):  # noqa: B023
                    self.book.blame(
                        f"{group} gets nothing of {', '.join(behind(of_java))} "
                        f"{seconds:.0f} s after the end of the fault"
                    )
                    break
            return time.time() - since

        return dict(zip(groups, await asyncio.gather(*map(wait, groups)), strict=True))

    def _check_nothing_is_missing(self, began: float) -> None:
        """Check that all groups have received the messages acknowledged before the round before the
        last.
        """
        for group in self.book.groups:
            before = began - JAVA_ONWARD if group == "java" else self._before_last
            missing = self.book.missing(group, before)
            if missing:
                self.book.blame(f"{group} has not got {len(missing)}, so {missing[:3]}")
        self._before_last, self._last = self._last, began

    # the end --------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Stop sending, and compare the messages sent, stored and consumed."""
        await self._ours.stop_sending()
        if self._java is not None:
            await self._java.stop_sending()
        book = self.book
        await until(lambda: not any(map(book.missing, book.groups)), time.time() + PATIENCE)
        await asyncio.sleep(1)
        self.book.check_stored(await everything_stored(self.cluster))
        self.book.check_repeats()

    def report(self) -> str:
        book, figures = self.book, self.figures
        acknowledged = sum(sending.place is not None for sending in book.sent.values())
        consumed = {name: group.deliveries for name, group in book.groups.items()}
        onward = {name: round(seconds, 2) for name, seconds in figures.onward.items()}
        return (
            f"{figures.rounds} rounds; {len(book.sent)} messages sent, {acknowledged} "
            f"acknowledged, {book.sent_again} stored twice by a retry; consumed {consumed}, of "
            f"which again, and declared, {dict(book.declared)}; longest until every topic was "
            f"routed {figures.routed:.2f} s (Java brokers {figures.java_routed:.2f} s), until a "
            f"group went on {onward}, to send to a healthy broker {book.longest_send:.2f} s, to "
            f"end a daemon {figures.ended:.2f} s"
        )


async def until(condition: Callable[[], object], deadline: float) -> bool:
    """Whether a condition holds in time; for conditions without an event."""
    while not condition():
        if time.time() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True
