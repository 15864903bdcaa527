"""What people come to a console for, done in a browser as they do it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mq.client import Producer
from mq.client.admin import Admin
from mq.client.session import Session
from mq.protocol.message import Message
from tests.daemons.console.browser.chromium import Chromium
from tests.daemons.console.browser.filled import (
    COUNT,
    GROUP,
    LETTERS,
    TOPIC,
    all_seen,
    filled,
)
from tests.daemons.console.pages.state import seen
from tests.daemons.console.site import PASSWORD, Consoles, Site

pytestmark = pytest.mark.timeout(600)

_RESUME = "return document.querySelector('[data-tail-pause]').textContent.trim()"
_IS_LIVE = "return document.querySelector('[data-live-state]').dataset.state === 'on'"
Journey = Callable[[Site, Session], Awaitable[None]]


def travel(console: Consoles, chromium: Chromium, journey: Journey) -> None:
    async def scenario() -> None:
        async with console() as site, filled(site.pair) as session:
            await all_seen(site)
            await chromium.open(f"{site.origin}/")
            await journey(site, session)
            assert await chromium.complaints() == []

    asyncio.run(scenario())


def test_a_topic_is_created_sent_to_searched_and_deleted(
    console: Consoles, chromium: Chromium
) -> None:
    async def journey(site: Site, session: Session) -> None:
        await chromium.follow("Topics")
        await chromium.follow("Create a topic")
        await chromium.fill({"topic": "Lamps"})
        await chromium.follow("Preview")
        assert "Lamps" in await chromium.text("main")
        await chromium.run("document.querySelector('main details').open = true")
        assert "UPDATE_AND_CREATE_TOPIC" in await chromium.text("main")
        await chromium.follow("Do it")
        assert "done" in await chromium.text("main")
        await seen(site.here.collector, lambda s: any(x.name == "Lamps" for x in s.topics))
        await chromium.open(f"{site.origin}/c/test/send/Lamps")
        await chromium.fill({"tag": "desk", "keys": "lamp-1", "body": '{"watt": 40}'})
        await chromium.follow("Preview")
        await chromium.follow("Do it")
        await chromium.open(f"{site.origin}/c/test/messages/Lamps?key=lamp-1")
        assert '{"watt": 40}' in await chromium.text("main table")
        await chromium.open(f"{site.origin}/c/test/topics/Lamps/delete")
        await chromium.follow("Preview")
        await chromium.fill({"typed": "Lamps"})
        await chromium.follow("Do it")
        topics = await Admin(session).topic_list()
        assert "Lamps" not in topics.topic_list

    travel(console, chromium, journey)


def test_a_reset_brings_about_what_its_preview_shows(console: Consoles, chromium: Chromium) -> None:
    async def journey(site: Site, session: Session) -> None:
        await chromium.open(f"{site.origin}/c/test/groups/{GROUP}/reset?topic={TOPIC}")
        await chromium.fill({"topic": TOPIC, "to": "earliest"})
        await chromium.follow("Preview")
        assert "again" in await chromium.text("main")
        await chromium.follow("Do it")
        assert "done" in await chromium.text("main")

    travel(console, chromium, journey)


def test_dead_letters_go_back_one_by_one_and_once(console: Consoles, chromium: Chromium) -> None:
    async def journey(site: Site, session: Session) -> None:
        await chromium.follow("Dead letters")
        await chromium.follow(LETTERS)
        await chromium.run("document.querySelectorAll('main input[type=checkbox]')[0].click()")
        await chromium.run("document.querySelectorAll('main input[type=checkbox]')[1].click()")
        await chromium.follow("Resend the chosen ones")
        await chromium.follow("Do it")
        assert "2 sent, 0 sent before, 0 failed" in await chromium.text("main")

    travel(console, chromium, journey)


def test_a_tail_shows_what_is_sent_and_pauses(console: Consoles, chromium: Chromium) -> None:
    async def journey(site: Site, session: Session) -> None:
        await chromium.open(f"{site.origin}/c/test/tail/{TOPIC}?tag=book")
        await chromium.until_true(_IS_LIVE)
        async with Producer(session, "shop") as producer:
            await producer.send(Message(TOPIC, b"not for this tail", "chair"))
            await producer.send(Message(TOPIC, b"a new book", "book"))
            text = await chromium.until(lambda text: "a new book" in text, "main")
            assert "not for this tail" not in text
            await chromium.follow_in_place("Pause")
            await chromium.follow_in_place(await chromium.run(_RESUME))
            await chromium.until_true(_IS_LIVE)
            await producer.send(Message(TOPIC, b"behind the pause", "book"))
            await chromium.until(lambda text: "behind the pause" in text, "main")

    travel(console, chromium, journey)


def test_who_logs_in_sees_what_was_asked_for_and_nothing_after_logging_out(
    console: Consoles, chromium: Chromium
) -> None:
    async def scenario() -> None:
        async with console(users={"ann": "operator"}) as site, filled(site.pair):
            asked = f"{site.origin}/c/test/topics?q=Ord&sort=messages"
            await chromium.open(asked)
            assert "Orders" not in await chromium.text()
            await chromium.fill({"name": "ann", "password": "wrong" * 4})
            await chromium.follow("Log in")
            assert "Orders" not in await chromium.text()
            await chromium.fill({"name": "ann", "password": PASSWORD})
            await chromium.follow("Log in")
            assert await chromium.run("return location.href") == asked
            await chromium.run("document.querySelector('details.preferences').open = true")
            await chromium.follow("Log out")
            await chromium.run("history.back()")
            await asyncio.sleep(0)
            await chromium.open(asked)
            assert "/login" in await chromium.run("return location.pathname")

    asyncio.run(scenario())


def test_all_is_read_and_changed_without_script(console: Consoles, chromium: Chromium) -> None:
    async def scenario() -> None:
        async with console() as site, filled(site.pair) as session:
            await all_seen(site)
            answer = await site.change(
                "/new/topic", {"topic": "Plain", "cluster": "DefaultCluster"}
            )
            assert answer.status == 200, answer.text
            assert "Plain" in (await Admin(session).topic_list()).topic_list
            page = await site.get(f"/messages/{TOPIC}")
            assert len(page.tables()[0]) == min(COUNT, 50)

    asyncio.run(scenario())


def test_keys_find_the_search_and_the_help(console: Consoles, chromium: Chromium) -> None:
    async def journey(site: Site, session: Session) -> None:
        await chromium.keys("/")
        assert await chromium.run("return document.activeElement.id") == "find"
        await chromium.keys(f"{GROUP}\n")
        await chromium.until(lambda text: GROUP in text, "main")
        await chromium.open(f"{site.origin}/c/test/")
        await chromium.keys("?")
        assert await chromium.run("return document.getElementById('help').open")

    travel(console, chromium, journey)


def test_pages_are_chinese_for_who_reads_it(console: Consoles) -> None:
    chromium = Chromium(language="zh-CN")

    async def journey(site: Site, session: Session) -> None:
        assert await chromium.run("return document.documentElement.lang") == "zh-CN"
        assert "主题" in await chromium.text("nav.side")

    try:
        travel(console, chromium, journey)
    finally:
        chromium.close()
