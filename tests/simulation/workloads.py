"""What clients do in a simulation. Each workload tells the model what it did and was answered."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

from mq.client import ClientOptions, ConsumeOptions, Consumer, Producer, ProducerOptions
from mq.client.errors import MQError
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.message import Message
from mq.protocol.stored_message import StoredMessage
from tests.simulation.cluster import Cluster
from tests.simulation.model import Model, Place, Sent
from tests.simulation.world import START

# Clients that look often: what an hour would show happens in a minute.
CLIENT = ClientOptions(timeout=3.0)
TOPIC = "Orders"


@dataclass
class Context:
    """What every workload is given."""

    cluster: Cluster
    model: Model
    random: random.Random
    until: float  # when workloads stop to begin anything new
    numbers: "count[int]" = field(default_factory=count)

    @property
    def now(self) -> float:
        return self.cluster.world.now

    def tell(self, text: str) -> None:
        """A detail of the story, of the process that runs."""
        world = self.cluster.world
        world.detail("-" if world.current is None else world.current.name, text)

    @property
    def name_servers(self) -> str:
        return self.cluster.name_server_list


Workload = Callable[[Context], Awaitable[None]]


def choose(random: random.Random) -> dict[str, Workload]:
    """The clients of a scenario by their names, and what each does. `random` is of the seed."""
    return {
        "producer": produce(TOPIC, 0.2),
        "consumer-1": consume(TOPIC, "billing"),
        "consumer-2": consume(TOPIC, "billing"),
    }


async def look(context: Context) -> None:
    """At the end, when nothing is wrong any more: read all that is there, and tell the model."""
    if not any(sent.places for sent in context.model.sent.values()):
        return  # of the topic nobody was told that it is there
    found = await read_queues(context, TOPIC)
    context.model.check_stored(found)
    context.model.check_delivered("billing", found, once=False)


def produce(topic: str, pause: float) -> Workload:
    """Send single messages, one after the other."""

    async def run(context: Context) -> None:
        options = ProducerOptions(retries=2)
        async with Producer(
            context.name_servers, f"to-{topic}", options, client=CLIENT
        ) as producer:
            while context.now < context.until:
                number = next(context.numbers)
                sent = context.model.sent[number] = Sent(number, topic, context.now)
                # Each try of the client may store it once more.
                sent.tries = 1 + options.retries
                context.model.requests += 1
                context.tell(f"sends message {number}")
                try:
                    result = await producer.send(Message(topic, str(number).encode()))
                except MQError as error:
                    context.tell(f"message {number}: {type(error).__name__}: {error}")
                else:
                    if result.status.name == "SEND_OK":
                        queue = result.queue
                        place = Place(topic, queue.broker_name, queue.queue_id, result.queue_offset)
                        sent.places.append(place)
                        context.tell(f"message {number} is acknowledged at {place}")
                        sent.acknowledged_at = context.now
                await asyncio.sleep(context.random.uniform(0.2, 1.8) * pause)

    return run


def consume(topic: str, group: str) -> Workload:
    """A member of a group that consumes concurrently, until it is killed."""

    async def run(context: Context) -> None:
        counts = context.model.delivered[group]

        async def listen(message: StoredMessage) -> None:
            number = int(message.body)
            counts[number] += 1
            broker = message.broker_name or "?"
            place = Place(message.topic, broker, message.queue_id, message.queue_offset)
            context.model.given[group][place].add(number)
            context.tell(f"is given message {number}, the {counts[number]}. time")
            context.model.requests += 1

        options = ConsumeOptions(consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        async with Consumer(
            context.name_servers, group, {topic: "*"}, options, client=CLIENT, listener=listen
        ):
            await asyncio.Event().wait()

    return run


async def read_queues(context: Context, topic: str) -> dict[Place, int]:
    """All that can be read of a topic, by place."""
    from mq.client import PullConsumer

    found: dict[Place, int] = {}
    async with PullConsumer(context.name_servers, "reader", client=CLIENT) as reader:
        for queue in await reader.queues(topic):
            offset = await reader.min_offset(queue)
            end = await reader.max_offset(queue)
            while offset < end:
                result = await reader.pull(queue, offset)
                for message in result.messages:
                    place = Place(topic, queue.broker_name, queue.queue_id, message.queue_offset)
                    if place in found:
                        context.model.wrong(f"{place} was read twice")
                    found[place] = int(message.body)
                if result.next_offset <= offset:
                    context.model.wrong(f"a pull of {queue} at {offset} goes nowhere")
                    break
                offset = result.next_offset
    return found


def since_start(context: Context) -> float:
    return context.now - START
