"""The tasks of users in a console, done in a browser."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from mq.client import Producer
from mq.client.admin import Admin
from mq.client.credentials import AccessKey
from mq.client.transport.session import Session
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.client.scenarios import eventually
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
_FIRST_CELL = "return document.querySelector('main tbody a').textContent.trim()"
# The page as it is, and what is written into its fields.
_SOURCE = """return document.documentElement.outerHTML
    + [...document.querySelectorAll('input, textarea')].map((one) => one.value).join('\\n')"""
_IS_BACK = """return document.readyState === 'complete'
    && !location.pathname.includes('/results/')"""
Journey = Callable[[Site, Session], Awaitable[None]]


def travel(
    console: Consoles,
    chromium: Chromium,
    journey: Journey,
    broker: Mapping[str, str] | None = None,
) -> None:
    async def scenario() -> None:
        # Filled before the console starts: later data is visible only after ten seconds.
        async with (
            Standalone(name_server_port=0, broker_port=0, properties=broker) as pair,
            filled(pair) as session,
            console(pair=pair) as site,
        ):
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
        await chromium.follow("Run")
        assert "done" in await chromium.text("main")
        await seen(site.here.collector, lambda s: any(x.name == "Lamps" for x in s.topics))
        await chromium.open(f"{site.origin}/c/test/send/Lamps")
        await chromium.fill({"tag": "desk", "keys": "lamp-1", "body": '{"watt": 40}'})
        await chromium.follow("Preview")
        await chromium.follow("Run")
        await chromium.open(f"{site.origin}/c/test/messages/Lamps?key=lamp-1")
        assert '{"watt": 40}' in await chromium.text("main table")
        await chromium.open(f"{site.origin}/c/test/topics/Lamps/delete")
        await chromium.follow("Preview")
        await chromium.fill({"typed": "Lamps"})
        await chromium.follow("Run")
        topics = await Admin(session).topic_list()
        assert "Lamps" not in topics.topic_list

    travel(console, chromium, journey)


def test_a_reset_brings_about_what_its_preview_shows(console: Consoles, chromium: Chromium) -> None:
    async def journey(site: Site, session: Session) -> None:
        await chromium.open(f"{site.origin}/c/test/groups/{GROUP}/reset?topic={TOPIC}")
        await chromium.fill({"topic": TOPIC, "to": "earliest"})
        await chromium.follow("Preview")
        assert "again" in await chromium.text("main")
        await chromium.follow("Run")
        assert "done" in await chromium.text("main")

    travel(console, chromium, journey)


def test_dead_letters_go_back_one_by_one_and_once(console: Consoles, chromium: Chromium) -> None:
    async def journey(site: Site, session: Session) -> None:
        await chromium.follow("Dead letters")
        await chromium.follow(LETTERS)
        await chromium.run("document.querySelectorAll('main input[type=checkbox]')[0].click()")
        await chromium.run("document.querySelectorAll('main input[type=checkbox]')[1].click()")
        await chromium.follow("Resend the selected ones")
        await chromium.follow("Run")
        assert "2 resent, 0 resent earlier, 0 failed" in await chromium.text("main")

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
            await chromium.back()
            assert "Orders" not in await chromium.text()
            await chromium.open(asked)
            assert "/login" in await chromium.run("return location.pathname")

    asyncio.run(scenario())


def test_all_is_read_and_changed_without_script(console: Consoles) -> None:
    async def scenario() -> None:
        async with (
            Standalone(name_server_port=0, broker_port=0) as pair,
            filled(pair) as session,
            console(pair=pair) as site,
        ):
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


def test_pages_are_chinese_for_who_reads_it(console: Consoles, chromium: Chromium) -> None:
    async def journey(site: Site, session: Session) -> None:
        assert await chromium.run("return document.documentElement.lang") == "en"
        await chromium.language("zh-CN")
        try:
            await chromium.open(f"{site.origin}/")
            assert await chromium.run("return document.documentElement.lang") == "zh-CN"
            assert "主题" in await chromium.text("nav.side")
        finally:
            await chromium.language("")

    travel(console, chromium, journey)


def test_a_group_is_paused_goes_on_and_is_deleted(console: Consoles, chromium: Chromium) -> None:
    async def enabled(session: Session, site: Site) -> bool | None:
        at = site.pair.broker.address
        groups = (await Admin(session).subscription_groups(at)).subscription_group_table
        return groups[LETTERS].consume_enable if LETTERS in groups else None

    async def journey(site: Site, session: Session) -> None:
        address = f"{site.origin}/c/test/groups/{LETTERS}"
        for button, line, after in (
            ("Pause", "receives no more messages; its offsets stay", False),
            ("Continue", "continues where it stopped", True),
        ):
            await chromium.open(address)
            await chromium.follow(button)
            await chromium.follow("Preview")
            assert line in await chromium.text("main")
            assert await enabled(session, site) is not after  # a preview changes nothing
            await chromium.follow("Run")
            assert "done" in await chromium.text("main")
            assert await enabled(session, site) is after
        await chromium.open(address)
        await chromium.follow("Delete")
        await chromium.follow("Preview")
        await chromium.fill({"typed": "another"})
        await chromium.follow("Run")
        assert f"Type {LETTERS} to confirm." in await chromium.text("main")
        assert await enabled(session, site) is True
        await chromium.open(f"{address}/delete")
        await chromium.follow("Preview")
        assert f"messages of %DLQ%{LETTERS} are lost" in await chromium.text("main")
        await chromium.fill({"typed": LETTERS})
        await chromium.follow("Run")
        assert "done" in await chromium.text("main")
        assert await enabled(session, site) is None
        assert f"%DLQ%{LETTERS}" not in (await Admin(session).topic_list()).topic_list

    travel(console, chromium, journey)


def test_the_settings_of_a_topic_are_changed_as_previewed(
    console: Consoles, chromium: Chromium
) -> None:
    async def journey(site: Site, session: Session) -> None:
        await chromium.open(f"{site.origin}/c/test/topics/{TOPIC}")
        await chromium.follow("Settings")
        await chromium.fill({"read_queues": "1", "perm": "4"})
        await chromium.follow("Preview")
        text = await chromium.text("main")
        assert "readQueueNums 2 1" in text and "perm RW- R--" in text
        assert "Queues that are no longer read keep their unconsumed messages" in text
        await chromium.follow("Run")
        configs = await Admin(session).topic_configs(site.pair.broker.address)
        config = configs.topic_config_table[TOPIC]
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 2, 4)

    travel(console, chromium, journey)


def test_a_message_is_looked_at_sent_again_consumed_and_traced(
    console: Consoles, chromium: Chromium
) -> None:
    async def journey(site: Site, session: Session) -> None:
        async with Producer(site.pair.name_server_address, "traced", trace=True) as producer:
            sent = await producer.send(Message(TOPIC, b"look at me", "book", ["the-one"]))

        async def indexed() -> bool:
            by_key = (await site.api(f"/messages/{TOPIC}?key=the-one")).json["messages"]
            traced = (await site.api(f"/traces?id={sent.message_id}")).json["messages"]
            return bool(by_key and traced)

        await eventually(indexed)
        await chromium.open(f"{site.origin}/c/test/messages/{TOPIC}?key=the-one")
        await chromium.follow(await chromium.run(_FIRST_CELL))
        assert "look at me" in await chromium.text("pre")
        await chromium.follow("Its trace")
        assert "traced" in await chromium.text("main table")
        assert sent.message_id in await chromium.run("return location.search")
        await chromium.run("history.back()")
        await chromium.until(lambda text: "Send again" in text, "main")
        await chromium.follow("Send again")
        await chromium.follow("Preview")
        text = await chromium.text("main")
        assert "a new message, which every group of the topic receives" in text
        await chromium.follow("Run")
        assert "SEND_OK" in await chromium.text("main")

        async def both() -> bool:
            found = await site.api(f"/messages/{TOPIC}?id={sent.message_id}")
            return found.status == 200 and len(found.json["messages"]) == 2

        await eventually(both)
        await chromium.open(f"{site.origin}/c/test/messages?id={sent.message_id}")
        await chromium.until(lambda text: text.count("look at me") == 2, "main table")
        await chromium.follow(await chromium.run(_FIRST_CELL))
        await chromium.follow("Let a consumer consume it")
        await chromium.fill({"group": GROUP, "client_id": "nobody"})
        await chromium.follow("Preview")
        assert "even if the group consumed it before" in await chromium.text("main")
        await chromium.follow("Run")
        assert "failed" in await chromium.text("main")  # that client is not there
        assert "nobody" in await chromium.text("main")

    travel(console, chromium, journey, {"traceTopicEnable": "true"})


def test_accounts_of_a_secured_broker_are_made_and_deleted_and_secrets_stay_unseen(
    console: Consoles, chromium: Chromium, tmp_path: Path
) -> None:
    secret, key = "never-to-be-seen", AccessKey("administrator", "rules-them-all")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(
        f"accounts:\n- accessKey: {key.access_key}\n  secretKey: {key.secret_key}\n  admin: true\n"
    )
    secured = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}

    async def scenario() -> None:
        async with console(broker=secured, credentials=key) as site:
            await seen(site.here.collector, lambda s: s.brokers and s.brokers[0].alive)
            await chromium.open(f"{site.origin}/c/test/accounts")
            assert "administrator" in await chromium.text("main")
            pages = [await chromium.run(_SOURCE)]
            await chromium.open(f"{site.origin}/c/test/new/account")
            await chromium.fill(
                {"access_key": "clerk-one", "secret_key": secret, "topic_perms": "Orders=ALL"}
            )
            await chromium.follow("Preview")  # refused: that is no permission
            assert "expected NAME=PERMISSION" in await chromium.text("main")
            pages.append(await chromium.run(_SOURCE))
            await chromium.fill({"secret_key": secret, "topic_perms": "Orders=PUB"})
            await chromium.follow("Preview")
            assert "secretKey set" in await chromium.text("main")
            pages.append(await chromium.run(_SOURCE))
            await chromium.follow("Run")
            assert "done" in await chromium.text("main")
            pages.append(await chromium.run(_SOURCE))
            # to the form: its value is entered again, or empty
            await chromium.run("history.go(-2)")
            await chromium.until_true(_IS_BACK)
            pages.append(await chromium.run(_SOURCE))
            await chromium.open(f"{site.origin}/c/test/accounts")
            assert "clerk-one" in await chromium.text("main")
            pages.append(await chromium.run(_SOURCE))
            await chromium.open(f"{site.origin}/c/test/accounts/delete?access_key=clerk-one")
            await chromium.follow("Preview")
            await chromium.fill({"typed": "clerk-one"})
            await chromium.follow("Run")
            assert "done" in await chromium.text("main")
            written = site.console.settings.console.audit_path.read_text()
            for text in (*pages, written):
                assert secret not in text and key.secret_key not in text
            assert "clerk-one" in written

    asyncio.run(scenario())
