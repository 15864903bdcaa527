"""The console's pages about messages, with Java brokers of both releases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.consumer.send_back import send_back
from mq.client.machine import clock
from mq.client.producer.producer import Producer
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from mq.protocol.message import Message
from mq.protocol.names import dead_letter_topic
from tests.client.scenarios import eventually
from tests.client.scripted import routed
from tests.daemons.console.pages.filled import Filled, assert_harmless, hostile_messages
from tests.daemons.console.site import Consoles
from tests.daemons.console.site import patient as patient  # a fixture
from tests.interop.conftest import JavaCluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOPIC = "ConsoleMessages"
GROUP = "console-messages"


@asynccontextmanager
async def opened(java_cluster: JavaCluster, folder: Path) -> AsyncIterator[Filled]:
    """A console with Java's name server and broker."""
    pair: Any = SimpleNamespace(
        name_server_address=java_cluster.namesrv,
        broker=SimpleNamespace(address=java_cluster.broker),
    )
    async with (
        Consoles(folder)(pair=pair) as site,
        Session(java_cluster.namesrv) as session,
        Producer(session, "console-fillers") as producer,
    ):
        config = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
        await Admin(session).create_topic(java_cluster.broker, config)
        group = SubscriptionGroupConfig(group_name=GROUP)
        await Admin(session).update_subscription_group(java_cluster.broker, group)
        await routed(session, TOPIC)
        yield Filled(site, session, producer)


async def unknown(question: TransactionCheck) -> TransactionState:
    return TransactionState.UNKNOWN


def test_each_page_works_with_java_brokers(java_cluster: JavaCluster, tmp_path: Path) -> None:
    broker = java_cluster.broker_name

    async def main() -> None:
        async with opened(java_cluster, tmp_path) as made:
            await send_and_find(made, broker)
            await look_whole(made, broker)
            await follow(made, broker)
            await resend_letters(made, broker)
            await wait(made, is_of_5=java_cluster.release.startswith("5"))
            await open_one(made)

    asyncio.run(main())


async def send_and_find(made: Filled, broker: str) -> None:
    fields = {
        "tag": "new", "keys": "k1", "properties": "colour=red", "body": '{"a":"needle"}',
        "queue": f"{broker}:1",
    }  # fmt: skip
    done = await made.site.change(f"/send/{TOPIC}", fields)
    assert "SEND_OK" in done.text, done.text
    messages = [
        Message(TOPIC, message.body, message.tags, message.keys, message.properties)
        for message in hostile_messages(TOPIC)
    ]
    for message in messages:
        await made.producer.send(message, MessageQueue(TOPIC, broker, 0))

    async def is_indexed() -> bool:
        return bool((await made.site.api(f"/messages/{TOPIC}?key=k1")).json["messages"])

    await eventually(is_indexed)
    for query in ("key=k1", "tag=new", "text=needle", "property=colour%3Dred"):
        answer = (await made.site.api(f"/messages/{TOPIC}?{query}")).json
        assert [row["tags"] for row in answer["messages"]] == ["new"], query
    page = await made.site.get(f"/messages/{TOPIC}")
    assert len(page.tables()[0]) == len(messages) + 1
    assert_harmless(page.soup)
    first = await made.site.get(f"/messages/{TOPIC}?size=20")
    assert first.soup.find("a", rel="next") is None


async def look_whole(made: Filled, broker: str) -> None:
    place = f"/messages/{TOPIC}/{broker}/1/0"
    page = await made.site.get(place)
    assert page.status == 200 and '"a": "needle"' in page.soup.get_text()
    answer = (await made.site.api(place)).json
    for word in (answer["message"]["messageId"], answer["message"]["offsetId"]):
        found = await made.site.get(f"/messages?id={word}")
        assert found.header("location") == f"/c/test{place}", found.text
    consumers = await made.site.get(f"{place}?view=consumers")
    assert consumers.status == 200
    done = await made.site.change(f"{place}/resend")
    assert "offset 1" in done.text, done.text

    async def exported() -> bool:  # Java's broker fills its queues after its responses
        lines = await made.site.get(f"/messages/{TOPIC}/export?tag=new")
        return len(lines.text.splitlines()) == 2

    await eventually(exported)
    traced = await made.site.get(f"/traces?id={answer['message']['messageId']}")
    assert traced.status == 200


async def follow(made: Filled, broker: str) -> None:
    async with made.site.stream(f"/tail/{TOPIC}/events?text=live") as events:
        await events.next()
        await made.producer.send(Message(TOPIC, b"live"), MessageQueue(TOPIC, broker, 0))
        async with asyncio.timeout(60):
            while not (await events.next())[1]["messages"]:
                pass


async def resend_letters(made: Filled, broker: str) -> None:
    consumer = PullConsumer(made.session)
    queue = MessageQueue(TOPIC, broker, 0)
    begin = await consumer.max_offset(queue)
    for body in (b"a", b"b"):
        await made.producer.send(Message(TOPIC, body), queue)

    async def readable() -> bool:  # Java's broker fills its queues after its responses
        return await consumer.max_offset(queue) == begin + 2

    await eventually(readable)
    async for message in consumer.read(queue, begin):
        await send_back(made.session, GROUP, queue, message, delay_level=-1, max_reconsume_times=0)
    await routed(made.session, dead_letter_topic(GROUP))

    async def both() -> bool:
        answer = await made.site.api(f"/dead-letters/{GROUP}")
        return answer.status == 200 and len(answer.json["letters"]) == 2

    await eventually(both, 120)

    async def listed() -> bool:  # once the console has collected the topic
        found = (await made.site.api("/dead-letters")).json["groups"]
        return (GROUP, 2) in [(row["group"], row["messages"]) for row in found]

    await eventually(listed, 120)
    page = await made.site.get(f"/dead-letters/{GROUP}")
    ids = [str(box["value"]) for box in page.soup.find_all("input", {"name": "ids"})]
    done = await made.site.submit(await made.site.submit(page, {"ids": ids[:1]}))
    assert "1 resent, 0 resent earlier, 0 failed" in done.text, done.text
    again = await made.site.change(f"/dead-letters/{GROUP}/resend", {"everything": "on"})
    assert "1 resent, 1 resent earlier, 0 failed" in again.text, again.text


async def wait(made: Filled, *, is_of_5: bool) -> None:
    await made.producer.send(Message(TOPIC, b"later", delay_level=18))
    if is_of_5:
        due = clock.milliseconds() + 3_600_000
        await made.producer.send(Message(TOPIC, b"timed", deliver_at=due))

    async def waits() -> bool:
        answer = (await made.site.api("/waiting")).json
        levels = {row["level"]: row for row in answer["delayed"]}
        timed = [row["waiting"] for row in answer["timed"]]
        return 18 in levels and levels[18]["waiting"] == 1 and timed == ([1] if is_of_5 else [])

    await eventually(waits, 120)
    page = await made.site.get("/waiting")
    assert page.status == 200 and TOPIC in page.soup.get_text()


async def open_one(made: Filled) -> None:
    async def execute(message: Message) -> TransactionState:
        return TransactionState.UNKNOWN if message.keys == ("open",) else TransactionState.COMMIT

    async with TransactionProducer(made.session, "console-payments", unknown) as producer:
        for key in ("done", "open"):
            await producer.send_in_transaction(Message(TOPIC, b"paid", keys=[key]), execute)

        async def is_open() -> bool:
            answer = (await made.site.api("/transactions")).json
            return [row["keys"] for row in answer["transactions"] if row["topic"] == TOPIC] == [
                "open"
            ]

        await eventually(is_open, 120)
    page = await made.site.get("/transactions")
    assert [TOPIC, "console-payments"] in [row[1:3] for row in page.tables()[1]]
