"""Which of the listener and the watch over slow listeners sends a message back when both try."""

import asyncio

import pytest

from mq.client.consumer.push.concurrent import ConcurrentConsumption
from mq.client.consumer.push.listener import Call
from mq.client.errors import MQError
from mq.client.pull.process_queue import ConsumeCounts, ProcessQueue
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import StoredMessage
from tests.waiting import until

TIMEOUT = 0.02


@pytest.mark.parametrize("fails", [False, True])
def test_a_listener_that_fails_while_its_message_is_sent_back_does_not_send_it_too(
    fails: bool,
) -> None:
    levels: list[int] = []
    asked, answered, raise_now = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def send_back(held: ProcessQueue, message: StoredMessage, level: int) -> None:
        levels.append(level)
        asked.set()
        await answered.wait()
        if fails and len(levels) == 1:
            raise MQError("the broker is away")

    async def listen(message: StoredMessage) -> None:
        await raise_now.wait()
        raise ValueError("too late to matter")

    async def scenario() -> None:
        held = ProcessQueue(MessageQueue("Orders", "broker-a", 0), 0)
        message = StoredMessage("Orders", b"slow")
        held.add([message])
        counts = {"Orders": ConsumeCounts()}
        consumption = ConcurrentConsumption("group", counts, send_back, timeout=TIMEOUT)
        consumption.enqueue(held, [message])
        work = asyncio.create_task(consumption.work(Call(listen, batch=False, threads=1)))
        watch = asyncio.create_task(consumption.expire())
        await asked.wait()
        raise_now.set()
        await until(lambda: bool(counts["Orders"].failed))  # the listener has raised
        await asyncio.sleep(0)
        assert levels == [3]
        answered.set()
        await until(lambda: not held.holds(message))
        consumption.close()
        await work
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    asyncio.run(scenario())
    assert levels == ([3, 0] if fails else [3])


def test_a_message_that_cannot_be_sent_back_does_not_keep_others_with_slow_listeners() -> None:
    async def send_back(held: ProcessQueue, message: StoredMessage, level: int) -> None:
        if message.queue_offset == 0:
            raise ValueError("properties of 32800 bytes are over the limit")  # of a retry's copy

    async def listen(message: StoredMessage) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        held = ProcessQueue(MessageQueue("Orders", "broker-a", 0), 0)
        messages = [StoredMessage("Orders", b"slow", queue_offset=number) for number in (0, 1)]
        held.add(messages)
        counts = {"Orders": ConsumeCounts()}
        consumption = ConcurrentConsumption("group", counts, send_back, timeout=TIMEOUT)
        consumption.enqueue(held, messages)
        call = Call(listen, batch=False, threads=1)
        tasks = [asyncio.create_task(consumption.work(call)) for _ in messages]
        tasks.append(asyncio.create_task(consumption.expire()))
        await until(lambda: not held.holds(messages[1]))
        assert held.holds(messages[0])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
