import asyncio
import json
import tracemalloc

from mq.client.admin import Admin
from mq.client.consumer.send_back import send_back
from mq.client.pull.pull_consumer import PullConsumer
from mq.daemons.console.collector.snapshot import Snapshot
from mq.daemons.console.pages import dead_letters
from mq.daemons.console.pages import message as message_page
from mq.daemons.console.security.roles import LOCAL, User
from mq.protocol.bodies import MessageQueue, SubscriptionGroupConfig
from mq.protocol.message import Message
from mq.protocol.names import dead_letter_topic
from tests.client.scripted import routed
from tests.daemons.console.pages.filled import (
    HOSTILE,
    TOPIC,
    Filled,
    assert_harmless,
    call_of,
    filled,
    hostile_messages,
    run,
)
from tests.daemons.console.pages.known import put
from tests.daemons.console.site import Consoles, account

GROUP = "billing"


async def bury(made: Filled, *messages: Message, group: str = GROUP, topic: str = TOPIC) -> None:
    """Send messages that become dead letters of a group."""
    await Admin(made.session).update_subscription_group(
        made.site.pair.broker.address, SubscriptionGroupConfig(group_name=group)
    )
    consumer = PullConsumer(made.session)
    queue = MessageQueue(topic, "broker-a", 0)
    begin = await consumer.max_offset(queue)
    await made.send(*messages)
    async for message in consumer.read(queue, begin):
        await send_back(made.session, group, queue, message, delay_level=-1, max_reconsume_times=0)
    await routed(made.session, dead_letter_topic(group))


def letters(*bodies: str) -> list[Message]:
    return [Message(TOPIC, body.encode(), "tag", [f"key-{body}"]) for body in bodies]


def test_groups_are_listed_with_counts_and_causes(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        put(made.site, Snapshot())  # brokers are queried before the first snapshot
        assert "No group has dead letters" in (await made.site.get("/dead-letters")).text
        await bury(made, *letters("1", "2"))
        await bury(made, *letters("3"), group="other")
        page = await made.site.get("/dead-letters")
        assert [row[:5] for row in page.tables()[0]] == [
            ["billing", "2", "0", "2", "Orders (2)"],
            ["other", "1", "0", "1", "Orders (1)"],
        ]
        (row,) = (await made.site.api("/dead-letters?q=oth")).json["groups"]
        assert (row["group"], row["messages"], row["givenUpEarly"]) == ("other", 1, 1)

    run(console, test)


def test_letters_are_resent_once_with_a_result_for_each(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await bury(made, *letters("a", "b", "c"))
        page = await made.site.get(f"/dead-letters/{GROUP}")
        assert [row[-1] for row in page.tables()[0]] == ["c", "b", "a"]
        ids = [str(box["value"]) for box in page.soup.find_all("input", {"name": "ids"})]
        preview = await made.site.submit(page, {"ids": ids[:2]})
        assert preview.status == 200, preview.text
        assert "Send 2 dead letters of group billing" in preview.soup.get_text()
        assert "SEND_MESSAGE" in preview.text
        assert await stored(made) == 3  # a preview sends nothing
        done = await made.site.submit(preview)
        assert [row[1:] for row in done.tables()[0]] == [
            ["done", "2 resent, 0 resent earlier, 0 failed"],
            ["done", f"sent to {TOPIC}"],
            ["done", f"sent to {TOPIC}"],
        ]
        assert await stored(made) == 5
        again = await made.site.submit(
            await made.site.get(f"/dead-letters/{GROUP}/resend"), {"everything": "on"}
        )
        done = await made.site.submit(again)
        texts = [row[2] for row in done.tables()[0]]
        assert texts[0] == "1 resent, 2 resent earlier, 0 failed"
        assert sorted(texts[1:]) == [
            f"resent earlier: it was already sent to {TOPIC}",
            f"resent earlier: it was already sent to {TOPIC}",
            f"sent to {TOPIC}",
        ]
        assert await stored(made) == 6
        page = await made.site.get(f"/dead-letters/{GROUP}")
        assert [row[5] for row in page.tables()[0]] == ["yes", "yes", "yes"]

    run(console, test)


async def stored(made: Filled, topic: str = TOPIC) -> int:
    """Return the number of messages of the topic."""
    consumer = PullConsumer(made.session)
    return sum([await consumer.max_offset(queue) for queue in await consumer.queues(topic)])


def test_what_is_chosen_wrongly_says_so(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await bury(made, *letters("a"))
        form = await made.site.get(f"/dead-letters/{GROUP}/resend")
        for fields, line in (
            ({}, "Select dead letters"),
            ({"ids": "x", "everything": "on"}, "Select dead letters"),
            ({"ids": "nothing"}, "no dead letter has the id nothing"),
            ({"everything": "on", "limit": "0"}, "limit: 1 to 500"),
        ):
            page = await made.site.submit(form, fields)
            assert page.status in (400, 404) and line in page.soup.get_text(), fields
        assert (await made.site.get("/dead-letters/nobody")).status == 404
        assert (await made.site.get(f"/dead-letters/{GROUP}?limit=0")).status == 400

    run(console, test)


def test_letters_are_saved_as_lines(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await bury(made, *letters("a", "b"))
        saved = await made.site.get(f"/dead-letters/{GROUP}/export")
        lines = [json.loads(line) for line in saved.text.splitlines()]
        assert [line["body"] for line in lines] == ["b", "a"]
        assert lines[0]["topic"] == "%DLQ%billing"

    run(console, test)


def test_hostile_letters_are_text(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await bury(made, *hostile_messages())
        page = await made.site.get(f"/dead-letters/{GROUP}")
        assert page.status == 200 and len(page.tables()[0]) == len(HOSTILE) + 1
        assert_harmless(page.soup)
        ids = [str(box["value"]) for box in page.soup.find_all("input", {"name": "ids"})]
        preview = await made.site.submit(page, {"ids": ids})
        assert_harmless(preview.soup)
        assert_harmless((await made.site.submit(preview)).soup)
        message = await made.site.get("/messages/%25DLQ%25billing/broker-a/0/0")
        assert_harmless(message.soup)
        assert "Dead letters of billing" in message.soup.get_text()

    run(console, test)


def test_who_may_see_a_group_only_sees_its_letters_and_no_other_topic(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await bury(made, *letters("a"))
        await bury(made, *letters("b"), group="hidden")
        user = User("limited", {"*": "viewer"}, topics=("Else",), groups=(GROUP,))
        listed = await dead_letters.groups(call_of(made.site, user, {}, {"q": None, "page": 1}))
        assert [(row.group, row.topics) for row in listed.data.groups] == [(GROUP, ())]
        shown = await dead_letters.show(call_of(made.site, user, {"group": GROUP}, {"limit": 50}))
        (letter,) = shown.data.letters
        assert (letter.origin_topic, letter.body, letter.resent_as) == (None, None, None)

    run(console, test)


def test_the_page_of_a_letter_names_no_topic_that_its_user_may_not_see(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await bury(made, *letters("a"))
        user = User("limited", {"*": "reader"}, topics=("Else",), groups=(GROUP,))
        path = {"topic": dead_letter_topic(GROUP), "broker": "broker-a", "queue": "0"}
        call = call_of(made.site, user, {**path, "offset": "0"}, {"view": "body", "as": None})
        page = await message_page.show(call)
        assert page.data.body.text == "a"
        assert page.data.origin_topic is None and TOPIC not in repr(page.data)
        call = call_of(made.site, user, {"group": GROUP}, {"limit": 10, "as": "jsonl"})
        saved = b"".join([chunk async for chunk in (await dead_letters.save(call)).content])  # type: ignore[union-attr]
        assert json.loads(saved)["body"] == "a" and TOPIC.encode() not in saved
        (whole,) = (await made.site.get(f"/dead-letters/{GROUP}/export")).text.splitlines()
        assert json.loads(whole)["properties"]["RETRY_TOPIC"] == TOPIC

    run(console, test)


def test_a_letter_of_a_topic_that_is_not_theirs_fails_by_itself(console: Consoles) -> None:
    limited = account("ann", "operator", topics=("Mine",), groups=(GROUP,))

    async def test(made: Filled) -> None:
        await made.topic("Mine", 1)
        await bury(made, *letters("a"))
        await bury(made, Message("Mine", b"b"), topic="Mine")
        form = await made.site.get(f"/dead-letters/{GROUP}/resend")
        preview = await made.site.submit(form, {"everything": "on"})
        assert preview.status == 200 and TOPIC not in preview.text, preview.text
        done = await made.site.submit(preview)
        texts = [row[2] for row in done.tables()[0]]
        assert texts[0] == "1 resent, 0 resent earlier, 1 failed"
        assert sorted(texts[1:]) == [
            "It comes from a topic to which you may not send.",
            "sent to Mine",
        ]
        assert (await stored(made), await stored(made, "Mine")) == (1, 2)
        assert TOPIC not in done.text

    async def main() -> None:
        async with filled(console, users={"ann": limited}, login="ann") as made:
            await test(made)

    asyncio.run(main())


def test_large_letters_are_listed_and_saved_in_little_memory(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        size, count = 2_000_000, 24
        await bury(made, *(Message(TOPIC, bytes(size)) for _ in range(count)))
        call = call_of(made.site, LOCAL, {"group": GROUP}, {"limit": count, "as": "jsonl"})
        tracemalloc.start()
        try:
            page = await dead_letters.show(call)
            listed = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            length = 0
            async for chunk in (await dead_letters.save(call)).content:  # type: ignore[union-attr]
                length += len(chunk)
            saved = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert [item.message.size for item in page.data.letters] == [size] * count
        assert length > size * count
        assert listed < size * count / 4
        # One body at a time, as in JSON lines: six characters for each NUL, twice.
        assert saved < size * count

    run(console, test)


def test_a_letter_that_came_after_the_preview_is_not_resent_by_it(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await bury(made, *letters("a"))
        form = await made.site.get(f"/dead-letters/{GROUP}/resend")
        preview = await made.site.submit(form, {"everything": "on"})
        await bury(made, *letters("b"))
        before = await stored(made)
        done = await made.site.submit(preview)
        texts = [row[2] for row in done.tables()[0]]
        assert texts[0] == "1 resent, 0 resent earlier, 1 failed"
        assert texts[1] == f"sent to {TOPIC}"
        assert "was not in the preview" in texts[2]
        assert await stored(made) == before + 1

    run(console, test)
