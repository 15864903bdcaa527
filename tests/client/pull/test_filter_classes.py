"""Consumers that subscribe by a class: the upload of the class, and the delivered messages."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mq.client import ClassFilter, Consumer, LitePullConsumer
from mq.client.errors import ClientError
from mq.client.options import Intervals
from mq.client.pull.subscription import Subscriptions
from mq.client.routing.replica_choice import choose_filter_server
from mq.daemons.filtersrv.app import FilterServer
from mq.daemons.filtersrv.classes import Key
from mq.protocol.bodies import ConsumeFromWhere, TopicRouteData
from mq.protocol.message import StoredMessage
from tests.daemons.filtersrv.servers import (
    EVEN,
    GROUP,
    TOPIC,
    Servers,
    filter_settings,
    servers,
)

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
KEY = Key(TOPIC, GROUP)
OFTEN = Intervals(heartbeats=0.1, routes=0.1)


class Even:
    """A filter as a user writes it."""

    def match(self, message: StoredMessage) -> bool:
        return int(message.body) % 2 == 0


def consumer(at: Servers, what: str, **options: object) -> Consumer:
    address = at.pair.name_server_address
    settings = {"consume_from": FIRST, "intervals": OFTEN, **options}
    return Consumer(address, GROUP, {TOPIC: what}, **settings)  # type: ignore[arg-type]


async def take(consumer: Consumer, count: int) -> list[bytes]:
    got: list[bytes] = []
    async with asyncio.timeout(60):
        async for message in consumer:
            got.append(message.body)
            if len(got) == count:
                break
    return got


def test_a_class_and_its_source_make_a_subscription() -> None:
    chosen = ClassFilter(Even)
    assert chosen == "Even"
    assert chosen.source.startswith("class Even:\n") and "return int(message.body)" in chosen.source
    data = Subscriptions(GROUP, {TOPIC: chosen}).data[TOPIC]
    assert (data.sub_string, data.class_filter_mode, data.tags_set) == ("Even", True, set())
    assert data.filter_class_source is None  # heartbeats do not carry it
    assert ClassFilter("on.the.server.Even").source == ""


@pytest.mark.parametrize(
    "name, source, error",
    [
        ("Even", "class Even:\n  def match(self, message):\n    return (\n", "line 3: '(' was"),
        ("Odd", EVEN.decode(), "there is no class Odd in the source of Odd"),
        ("Even", "\0", "null bytes"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused_before_it_is_sent(
    name: str, source: str, error: str
) -> None:
    with pytest.raises(ClientError, match=error.replace("(", r"\(")):
        ClassFilter(name, source)


def test_a_class_without_match_or_without_source_is_refused() -> None:
    with pytest.raises(ClientError, match="class int has no match"):
        ClassFilter(int)
    with pytest.raises(ClientError, match="the source of class Made cannot be found"):
        ClassFilter(type("Made", (), {"match": lambda self, message: True, "__module__": "none"}))


def test_a_filter_server_is_chosen_among_those_not_tried() -> None:
    route = TopicRouteData(
        queue_datas=[], broker_datas=[], filter_server_table={"b:1": ["x:1", "y:1"]}
    )
    assert {choose_filter_server(route, "b:1") for _ in range(100)} == {"x:1", "y:1"}
    assert choose_filter_server(route, "b:1", ["x:1"]) == "y:1"
    assert choose_filter_server(route, "b:1", ["x:1", "y:1"]) is None
    assert choose_filter_server(route, "c:1") is None


def test_a_consumer_gets_the_messages_that_its_class_accepts_and_commits() -> None:
    async def main() -> None:
        async with servers(queues=2) as at:
            await at.send(*(b"%d" % number for number in range(20)))
            async with consumer(at, ClassFilter(Even)) as reading:
                assert sorted(await take(reading, 10), key=int) == [
                    b"%d" % number for number in range(0, 20, 2)
                ]
            await at.send(b"21", b"22")
            again = []
            async with asyncio.timeout(60), consumer(at, ClassFilter(Even)) as reading:
                async for message in reading:
                    again.append(message.body)
                    if message.body == b"22":
                        break
            assert len(again) < 10  # committed messages are not redelivered

    asyncio.run(main())


def test_a_lite_pull_consumer_can_subscribe_by_a_class() -> None:
    async def main() -> None:
        async with servers() as at:
            await at.send(*(b"%d" % number for number in range(6)))
            async with LitePullConsumer(
                at.pair.name_server_address, GROUP, {TOPIC: ClassFilter(Even)}, consume_from=FIRST
            ) as reading:
                got: list[bytes] = []
                while len(got) < 3:
                    got += [message.body for message in await reading.poll(timeout=5)]
            assert got == [b"0", b"2", b"4"]

    asyncio.run(main())


@asynccontextmanager
async def another(at: Servers) -> AsyncIterator[FilterServer]:
    async with FilterServer(filter_settings(at.pair.broker.address)) as filters:
        await filters.broker.registered.wait()
        await at.pair.broker.registration.announced()
        yield filters


def test_every_filter_server_gets_the_class_even_if_it_starts_later() -> None:
    async def main() -> None:
        async with servers() as at, consumer(at, ClassFilter(Even)):
            assert KEY in at.filters.classes.table
            async with another(at) as late, asyncio.timeout(60):
                while KEY not in late.classes.table:  # noqa: ASYNC110 - a table has no event
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_consumer_forgets_filter_servers_that_left_the_route() -> None:
    async def main() -> None:
        async with servers() as at, consumer(at, ClassFilter(Even)) as reading:
            async with another(at) as late, asyncio.timeout(60):
                gone = late.address
                while (TOPIC, gone) not in reading._member._uploads._taken:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            async with asyncio.timeout(60):
                while (TOPIC, gone) in reading._member._uploads._taken:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert (TOPIC, at.filters.address) in reading._member._uploads._taken

    asyncio.run(main())


def test_a_consumer_continues_with_another_filter_server_when_one_stops() -> None:
    async def main() -> None:
        async with servers() as at:
            async with another(at), consumer(at, ClassFilter(Even)) as reading:
                await at.send(b"2")
                assert await take(reading, 1) == [b"2"]
                await at.filters.__aexit__()
                await at.send(b"3", b"4")
                async with asyncio.timeout(60):
                    async for message in reading:  # the first message may be redelivered
                        if message.body == b"4":
                            break

    asyncio.run(main())


def test_a_refused_class_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with servers(filterMaxClasses="1", filterClassMaxBytes="10") as at:
            async with consumer(at, ClassFilter(Even)) as reading:
                for _ in range(3):
                    await reading._member._uploads.upload()

    with caplog.at_level(logging.ERROR, "mq.client.pull.filter_classes"):
        asyncio.run(main())
    (text,) = [record.getMessage() for record in caplog.records]
    assert text.startswith(f"group {GROUP}: class Even is not in force: topic {TOPIC}: ")
    assert "10 are allowed (filterClassMaxBytes)" in text


def test_a_consumer_without_filter_servers_logs_an_error_and_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with servers() as at:
            await at.filters.__aexit__()
            async with asyncio.timeout(60):
                while at.pair.broker.filters.servers.addresses:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await at.pair.broker.registration.announced()
            async with consumer(at, ClassFilter(Even)) as reading:
                await at.send(b"2")
                async with another(at):
                    assert await take(reading, 1) == [b"2"]

    with caplog.at_level(logging.ERROR, "mq.client.pull.filter_classes"):
        asyncio.run(main())
    assert f"topic {TOPIC} has no filter server" in caplog.text
