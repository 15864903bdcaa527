import asyncio
import time

from mq.protocol.message import Message
from tests.client.scenarios import eventually
from tests.daemons.console.pages.filled import (
    HOSTILE,
    TOPIC,
    Filled,
    assert_harmless,
    hostile_messages,
    run,
)
from tests.daemons.console.site import Consoles, EventReader


async def messages_of(reader: EventReader, count: int) -> list[dict[str, str]]:
    """Return the events, until enough have matched."""
    found: list[dict[str, str]] = []
    async with asyncio.timeout(30):
        while True:
            name, data = await reader.next()
            assert name == "messages", (name, data)
            found += data["messages"]
            if data["matched"] >= count:
                return found


def test_messages_come_as_they_are_stored(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(Message(TOPIC, b"before"))
        async with made.site.stream(f"/tail/{TOPIC}/events") as reader:
            assert reader.status == 200
            first = (await reader.next())[1]
            assert first["begins"] is True and first["messages"] == []  # now it follows
            began = time.monotonic()
            await made.send(Message(TOPIC, b"one", "tag", ["k"]))
            (row,) = await messages_of(reader, 1)
            took = time.monotonic() - began
        assert (row["body"], row["tags"], row["keys"]) == ("one", "tag", "k")
        assert row["path"] == f"/messages/{TOPIC}/broker-a/0/1"
        assert took < 10
        assert [line["what"] for line in made.site.audit if line["what"] == "tail"] == ["tail"]

    run(console, test)


def test_a_stream_has_its_filters(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        async with made.site.stream(f"/tail/{TOPIC}/events?tag=yes&text=needle") as reader:
            await reader.next()
            await made.send(
                Message(TOPIC, b"needle", "no"),
                Message(TOPIC, b"hay", "yes"),
                Message(TOPIC, b"a needle", "yes"),
            )
            (row,) = await messages_of(reader, 1)
        assert row["body"] == "a needle"

    run(console, test)


def test_more_than_can_be_read_is_counted(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        async with made.site.stream(f"/tail/{TOPIC}/events") as reader:
            await reader.next()
            await asyncio.gather(
                *(made.producer.send(Message(TOPIC, b"%d" % number)) for number in range(2000))
            )
            seen = 0
            async with asyncio.timeout(60):
                while True:
                    _, data = await reader.next()
                    seen += len(data["messages"])
                    assert len(data["messages"]) <= 50
                    if data["matched"] >= 2000:
                        break
        assert seen + data["dropped"] == 2000 and data["dropped"] > 0

    run(console, test)


def test_who_leaves_leaves_nothing(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        def following() -> int:
            return len([one for one in asyncio.all_tasks() if "Follower" in repr(one.get_coro())])

        async with made.site.stream(f"/tail/{TOPIC}/events") as reader:
            await reader.next()
            assert following() > 0
        await made.send(Message(TOPIC, b"x"))

        async def closed() -> bool:
            return following() == 0

        await eventually(closed)
        table = await made.admin.all_consumer_offsets(made.site.pair.broker.address)
        assert [name for name in table if name.startswith(f"{TOPIC}@")] == []

    run(console, test)


def test_without_script_it_shows_the_newest(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(*hostile_messages())
        page = await made.site.get(f"/tail/{TOPIC}")
        assert page.status == 200
        assert_harmless(page.soup)
        assert len(page.tables()[0]) == len(HOSTILE) + 1
        live = page.soup.find(id="tail")
        assert live is not None
        assert live["data-live"] == f"/c/test/tail/{TOPIC}/events"
        filtered = await made.site.get(f"/tail/{TOPIC}?text=8191*8191")
        assert filtered.soup.find(id="tail")["data-live"].endswith("events?text=8191%2A8191")  # type: ignore
        assert len(filtered.tables()[0]) == 1
        assert (await made.site.get("/tail/NoSuchTopic")).status == 404

    run(console, test)


def test_events_mark_what_hides(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        async with made.site.stream(f"/tail/{TOPIC}/events") as reader:
            await reader.next()
            await made.send(*hostile_messages())
            found = await messages_of(reader, len(HOSTILE) + 1)
        for row in found:
            for text in (row["body"], row["tags"], row["keys"]):
                assert not {"\x00", "\x1b", "\u202e", "\u2066"} & set(text)

    run(console, test)
