import json

from mq.client.admin import Admin
from mq.client.pull_consumer import PullConsumer
from mq.client.send_back import send_back
from mq.daemons.console.pages import dead_letters
from mq.daemons.console.security.roles import User
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
    hostile_messages,
)
from tests.daemons.console.pages.test_messages import run
from tests.daemons.console.site import Consoles

GROUP = "billing"


async def bury(made: Filled, *messages: Message, group: str = GROUP) -> None:
    """Send messages that a group then gives up."""
    await Admin(made.session).update_subscription_group(
        made.site.pair.broker.address, SubscriptionGroupConfig(group_name=group)
    )
    consumer = PullConsumer(made.session)
    queue = MessageQueue(TOPIC, "broker-a", 0)
    begin = await consumer.max_offset(queue)
    await made.send(*messages)
    async for message in consumer.read(queue, begin):
        await send_back(made.session, group, queue, message, delay_level=-1, max_reconsume_times=0)
    await routed(made.session, dead_letter_topic(group))


def letters(*bodies: str) -> list[Message]:
    return [Message(TOPIC, body.encode(), "tag", [f"key-{body}"]) for body in bodies]


def test_groups_are_listed_with_counts_and_causes(console: Consoles) -> None:
    async def test(made: Filled) -> None:
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
            ["done", "2 sent, 0 sent before, 0 failed"],
            ["done", f"sent to {TOPIC}"],
            ["done", f"sent to {TOPIC}"],
        ]
        assert await stored(made) == 5
        again = await made.site.submit(
            await made.site.get(f"/dead-letters/{GROUP}/resend"), {"everything": "on"}
        )
        done = await made.site.submit(again)
        texts = [row[2] for row in done.tables()[0]]
        assert texts[0] == "1 sent, 2 sent before, 0 failed"
        assert sorted(texts[1:]) == [
            f"before: it was sent to {TOPIC} already",
            f"before: it was sent to {TOPIC} already",
            f"sent to {TOPIC}",
        ]
        assert await stored(made) == 6
        page = await made.site.get(f"/dead-letters/{GROUP}")
        assert [row[5] for row in page.tables()[0]] == ["yes", "yes", "yes"]

    run(console, test)


async def stored(made: Filled) -> int:
    """How many messages the topic has."""
    consumer = PullConsumer(made.session)
    return sum([await consumer.max_offset(queue) for queue in await consumer.queues(TOPIC)])


def test_what_is_chosen_wrongly_says_so(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await bury(made, *letters("a"))
        form = await made.site.get(f"/dead-letters/{GROUP}/resend")
        for fields, line in (
            ({}, "Choose some letters"),
            ({"ids": "x", "everything": "on"}, "Choose some letters"),
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
