"""The clients during faults: they send and consume all the time, and record the results."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from mq.client.consumer.consumer import Consumer
from mq.client.errors import MQError
from mq.client.options import Intervals
from mq.client.producer.producer import Producer, SendResult, SendStatus
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.protocol.bodies import ConsumeFromWhere, MessageQueue
from mq.protocol.message import Message, StoredMessage
from tests.interop.peers import JavaProgram
from tests.system.faults.book import JAVA_SETTLED, Book, Delivery, Group, Place, make_body
from tests.system.faults.cluster import OFFSETS_SECONDS, Cluster

TOPIC = "Faults"
QUEUES = 4  # at each broker
SEND_TIMEOUT = 2.0
# A program's setting, by which a consumer notices a dead connection. The suite uses ten times as
# much, for delays of a busy machine.
CONSUMER_TIMEOUT = 3.0
PAUSE = 0.1  # between two messages of a sender
JAVA_CLIENT = "4.9.8"
_INTERVALS = Intervals(routes=2.0, heartbeats=2.0, offsets=OFFSETS_SECONDS)
_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
# The delay of this process's event loop, which all clients share, that is not measured.
_LATE = 0.25


class Lag:
    """The recent delay of the event loop, by which everything measured in it is late."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []

    async def watch(self) -> None:
        while True:
            due = time.monotonic() + 0.05
            await asyncio.sleep(0.05)
            late = time.monotonic() - due
            if late > 0.02:
                self._late.append((time.time(), late))

    def since(self, begin: float) -> float:
        return sum(late for at, late in self._late[-200:] if at >= begin)


class OurClients:
    """Senders, one for each broker and two for any, and two groups of two. A context manager."""

    def __init__(self, cluster: Cluster, book: Book) -> None:
        self._cluster = cluster
        self._book = book
        self._sends = True
        self._senders: list[asyncio.Task[None]] = []
        self._others: list[asyncio.Task[None]] = []
        self._parts = AsyncExitStack()
        self._inside: dict[tuple[str, int], str] = {}  # queues of the ordered group's listeners
        self.lag = Lag()

    async def __aenter__(self) -> Self:
        names = self._cluster.names
        async with AsyncExitStack() as parts:
            for group, ordered in (("concurrent", False), ("ordered", True)):
                self._book.groups[group] = Group(group, ordered)
                for number in (1, 2):
                    consumer = self._consumer(group, f"{group}-{number}", ordered)
                    await parts.enter_async_context(consumer)
                    self._keep(self._others, consumer.wait_closed())
            once = await parts.enter_async_context(
                Producer(names, "once", retries=0, timeout=SEND_TIMEOUT, intervals=_INTERVALS)
            )
            again = await parts.enter_async_context(
                Producer(names, "again", timeout=SEND_TIMEOUT, intervals=_INTERVALS)
            )
            for broker in self._cluster.brokers:
                self._keep(self._senders, self._send(once, f"once.{broker}", broker))
            for number in (1, 2):
                self._keep(self._senders, self._send(again, f"again.{number}", None))
            self._keep(self._others, self.lag.watch())
            self._parts = parts.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._senders, *self._others]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self._parts.aclose()

    def _keep(self, where: list[asyncio.Task[None]], coroutine: Coroutine[Any, Any, None]) -> None:
        where.append(asyncio.create_task(coroutine))

    def check_alive(self) -> None:
        """Check that no client task has ended by itself."""
        for task in [*self._senders, *self._others]:
            if task.done() and (self._sends or task in self._others):
                self._book.blame(f"a client has ended: {task}")

    async def stop_sending(self) -> None:
        self._sends = False
        await asyncio.wait(self._senders)

    # sending --------------------------------------------------------------------------------

    async def _send(self, producer: Producer, name: str, broker: str | None) -> None:
        number = 0
        while self._sends:
            number += 1
            body = make_body(name, number)
            queue = None if broker is None else MessageQueue(TOPIC, broker, number % QUEUES)
            self._book.sending(body)
            began, clock = time.time(), time.monotonic()
            error: MQError | None = None
            try:
                result = await producer.send(Message(TOPIC, body.encode()), queue)
                self._acknowledged(body, result)
            except MQError as failure:
                error = failure
                self._book.sent[body].ended = time.time()
            self._judge(body, broker, began, time.monotonic() - clock, error)
            await asyncio.sleep(PAUSE)

    def _acknowledged(self, body: str, result: SendResult) -> None:
        if result.status is not SendStatus.SEND_OK:
            self._book.blame(f"{body}: {result.status}")
        queue = result.queue
        place = Place(queue.broker_name, queue.queue_id, result.queue_offset)
        self._book.acknowledged(body, place, time.time())

    def _judge(
        self, body: str, broker: str | None, began: float, took: float, error: MQError | None
    ) -> None:
        book = self._book
        late = _LATE + self.lag.since(began)
        if took > SEND_TIMEOUT + late:
            book.blame(f"{body} took {took:.2f} s, its time-out is {SEND_TIMEOUT:g} s: {error}")
        if broker is None or not book.was_healthy(broker, began, began + took):
            return
        book.longest_send = max(book.longest_send, took)
        if error is not None:
            book.blame(f"{body} was not sent to a healthy broker ({took:.2f} s): {error}")

    # consuming ------------------------------------------------------------------------------

    def _consumer(self, group: str, member: str, ordered: bool) -> Consumer:
        async def listen(message: StoredMessage) -> None:
            place = Place(message.broker_name, message.queue_id, message.queue_offset)
            queue = place.broker, place.queue
            if ordered:
                other = self._inside.get(queue)
                if other is not None:
                    self._book.blame(f"{member} and {other} consume {queue} at the same time")
                self._inside[queue] = member
            delivery = Delivery(time.time(), member, message.body.decode())
            self._book.got(group, place, delivery)
            await asyncio.sleep(0.002)
            if ordered:
                self._inside.pop(queue, None)

        def assigned(topic: str, _: list[MessageQueue], mine: list[MessageQueue]) -> None:
            if topic == TOPIC:
                queues = {(queue.broker_name, queue.queue_id) for queue in mine}
                self._book.share(group, member, queues, time.time())

        return Consumer(
            self._cluster.names,
            group,
            {TOPIC: "*"},
            listener=listen,
            ordered=ordered,
            timeout=CONSUMER_TIMEOUT,
            on_assigned=assigned,
            intervals=_INTERVALS,
            consume_from=_FIRST,
            instance=member,
        )


class JavaClients:
    """A Java producer and two Java consumers of one group. A context manager."""

    def __init__(self, cluster: Cluster, book: Book, folder: Path) -> None:
        self._book = book
        self._program = JavaProgram(
            JAVA_CLIENT,
            "Faults.java",
            *(cluster.names, TOPIC, "java", str(int(PAUSE * 1000))),
            tmp=folder,
        )
        self._reading: asyncio.Task[None]
        self._read = 0

    async def __aenter__(self) -> Self:
        self._book.groups["java"] = Group("java", settled=JAVA_SETTLED)
        await asyncio.to_thread(self._program.start)
        self._reading = asyncio.create_task(self._read_again())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        await asyncio.to_thread(self._program.kill)

    def check_alive(self) -> None:
        if self._reading.done() or self._program._ended:
            self._book.blame(f"the Java clients have ended: {self._program.lines[-5:]}")

    async def stop_sending(self) -> None:
        self._program.write_line("stop")
        await asyncio.sleep(3 * PAUSE)

    async def _read_again(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            lines = self._program.lines
            for line in lines[self._read : (end := len(lines))]:
                self._take(line.split("\t"))
            self._read = end

    def _take(self, words: list[str]) -> None:
        book = self._book
        match words:
            case ["TRY", at, body]:
                book.sending(body)
                book.sent[body].began = int(at) / 1000
            case ["SENT", at, body, status, broker, queue, offset]:
                if status != "SEND_OK":
                    book.blame(f"{body}: {status}")
                place = Place(broker, int(queue), int(offset))
                book.acknowledged(body, place, int(at) / 1000)
            case ["FAILED", at, body, _]:
                book.sent[body].ended = int(at) / 1000
            case ["GOT", member, at, broker, queue, offset, body]:
                place = Place(broker, int(queue), int(offset))
                book.got("java", place, Delivery(int(at) / 1000, member, body))
            case ["SHARE", member, at, *mine]:
                pairs = [queue.rpartition(":") for queue in " ".join(mine).split()]
                queues = {(broker, int(number)) for broker, _, number in pairs}
                book.share("java", member, queues, int(at) / 1000)
            case _:
                if words != ["READY"] and words[0]:
                    book.note(f"Java: {' '.join(words)[:200]}")


async def everything_stored(cluster: Cluster) -> list[tuple[Place, str]]:
    """Every message of the topic."""
    stored = []
    async with Session(cluster.names) as session, PullConsumer(session, "audit") as reader:
        for broker in cluster.brokers:
            for number in range(QUEUES):
                queue = MessageQueue(TOPIC, broker, number)
                async for message in reader.read(queue, 0):
                    place = Place(broker, number, message.queue_offset)
                    stored.append((place, message.body.decode()))
    return stored
