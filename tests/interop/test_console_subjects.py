"""The console's pages of topics, groups and accounts, with Java brokers of 4.9 and 5.x."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.credentials import AccessKey
from mq.client.options import ClientOptions
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.console.app import Console
from mq.daemons.console.clusters import ClusterSource
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.message import Message, StoredMessage
from tests.daemons.console.pages.state import seen
from tests.daemons.console.site import CLUSTER, Answer, Browser, settings_of
from tests.daemons.console.site import patient as patient  # a fixture
from tests.interop import peers
from tests.interop.authorized import KEYS, ROOT, SETTINGS
from tests.interop.conftest import JavaCluster
from tests.interop.jvm import require_java

pytestmark = pytest.mark.java

TOPIC, GROUP = "ConsoleOrders", "console-group"


@asynccontextmanager
async def console_at(
    namesrv: str, folder: Path, credentials: AccessKey | None = None
) -> AsyncIterator[tuple[Console, Browser]]:
    options = ClientOptions(timeout=30.0, credentials=credentials)
    source = ClusterSource(CLUSTER, namesrv, options)
    async with Console(settings_of(folder), [source]) as console:
        yield console, Browser("127.0.0.1", console.port)


def states(answer: Answer) -> list[str]:
    """The states of the results of a change."""
    assert answer.status == 200, answer.text
    return [row[1] for row in answer.tables()[-1]]


async def until(browser: Browser, path: str, condition: Any) -> Any:
    """Return the JSON data of a page once the condition holds."""
    async with asyncio.timeout(90):
        while True:
            answer = await browser.api(path)
            if answer.status == 200 and condition(answer.json):
                return answer.json
            await asyncio.sleep(0.2)


def test_the_pages_of_topics_and_groups_work_with_a_java_broker(
    java_cluster: JavaCluster, tmp_path: Path
) -> None:
    async def main() -> None:
        async with console_at(java_cluster.namesrv, tmp_path) as (console, browser):
            collector = console.clusters[CLUSTER].collector
            await seen(collector, lambda snapshot: any(b.alive for b in snapshot.brokers))
            assert states(
                await browser.change(
                    "/new/topic", {"topic": TOPIC, "read_queues": 2, "write_queues": 2}
                )
            ) == ["done"]
            assert states(await browser.change("/new/group", {"group": GROUP})) == ["done"]
            await until(browser, f"/topics/{TOPIC}", lambda data: len(data["queues"]) == 2)
            await topic_pages(browser, java_cluster)
            await group_pages(browser, java_cluster)
            page = await browser.get("/accounts")
            assert page.status == 200
            assert java_cluster.broker_name in page.tables()[0][0][0]
            await seen(collector, lambda snapshot: snapshot.topic(TOPIC) and snapshot.group(GROUP))
            for path in ("/topics", "/groups", "/producers", f"/search?q={TOPIC.lower()}"):
                assert (await browser.get(path)).status == 200, path
            (found,) = (await browser.api(f"/search?q={TOPIC.lower()}")).json["found"]
            assert found["name"] == TOPIC
            gone = await browser.change(f"/groups/{GROUP}/delete", typed=GROUP)
            assert set(states(gone)) == {"done"}
            gone = await browser.change(f"/topics/{TOPIC}/delete", typed=TOPIC)
            assert set(states(gone)) == {"done"}

    asyncio.run(main())


def test_users_and_policies_of_5_are_shown_created_and_deleted(tmp_path: Path) -> None:
    require_java()
    settings = {**SETTINGS, "authConfigPath": str(tmp_path / "auth")}
    root = AccessKey(KEYS["accessKey"], KEYS["secretKey"])

    async def main(namesrv: str) -> None:
        async with console_at(namesrv, tmp_path / "console", root) as (console, browser):
            collector = console.clusters[CLUSTER].collector
            await seen(collector, lambda snapshot: any(b.alive for b in snapshot.brokers))
            fields = {"username": "alice", "password": "alice_secret", "user_type": "normal"}
            made = await browser.change("/new/user", fields)
            assert states(made) == ["done"]
            assert "alice_secret" not in made.text
            fields = {"subject": "User:alice", "resources": "Topic:Orders", "actions": "Pub,Sub"}
            assert states(await browser.change("/new/policy", fields)) == ["done"]
            data = (await browser.api("/accounts")).json
            assert {row["name"] for row in data["users"]} == {"alice", ROOT["username"]}
            (policy,) = data["policies"]
            assert (policy["name"], policy["resource"]) == ("User:alice", "Topic:Orders")
            assert data["atBrokers"][0]["accounts"] is None
            page = await browser.get("/accounts")
            assert "_secret" not in page.text
            address = "/new/policy?subject=User:alice&resource=Topic:Orders"
            assert states(await browser.change(address, {"decision": "Deny"})) == ["done"]
            (policy,) = (await browser.api("/accounts")).json["policies"]
            assert ["decision", "Deny"] in policy["settings"]
            address = "/accounts/delete-policy?subject=User:alice&resource=Topic:Orders"
            assert states(await browser.change(address, typed="User:alice")) == ["done"]
            address = "/accounts/delete-user?username=alice"
            assert states(await browser.change(address, typed="alice")) == ["done"]
            data = (await browser.api("/accounts")).json
            assert [row["name"] for row in data["users"]] == [ROOT["username"]]
            assert data["policies"] == []

    with (
        peers.JavaNameServer("5.5.0", tmp_path) as namesrv,
        peers.JavaBroker("5.5.0", tmp_path, namesrv.address, settings),
    ):
        asyncio.run(main(namesrv.address))


def test_accounts_of_4_9_are_shown_created_and_deleted(tmp_path: Path) -> None:
    require_java()
    admin = {"accessKey": "administrator", "secretKey": "administrator_secret", "admin": True}
    document = {"globalWhiteRemoteAddresses": [], "accounts": [admin]}
    root = AccessKey(str(admin["accessKey"]), str(admin["secretKey"]))

    async def main(namesrv: str) -> None:
        async with console_at(namesrv, tmp_path / "console", root) as (console, browser):
            collector = console.clusters[CLUSTER].collector
            await seen(collector, lambda snapshot: any(b.alive for b in snapshot.brokers))
            fields = {
                **{"access_key": "alice-key", "secret_key": "alice_secret"},
                "topic_perms": "Orders=PUB|SUB",
            }
            made = await browser.change("/new/account", fields)
            assert states(made) == ["done"], made.tables()
            assert "_secret" not in made.text
            data = await until(browser, "/accounts", lambda found: len(found["accounts"]) == 2)
            alice = next(row for row in data["accounts"] if row["name"] == "alice-key")
            assert ["topic_perms", "Orders=PUB|SUB"] in alice["settings"]
            assert "_secret" not in (await browser.get("/accounts")).text
            form = await browser.get("/new/account?access_key=alice-key")
            preview = await browser.submit(form, {"topic_perms": "Orders=DENY"})
            changed = await browser.submit(preview)
            # the secret need not be given again
            assert states(changed) == ["done"], changed.tables()
            address = "/accounts/delete?access_key=alice-key"
            assert states(await browser.change(address, typed="alice-key")) == ["done"]
            await until(browser, "/accounts", lambda found: len(found["accounts"]) == 1)

    with peers.JavaNameServer("4.9.7", tmp_path) as namesrv:
        broker = peers.JavaBroker("4.9.7", tmp_path, namesrv.address, {"aclEnable": "true"})
        (broker.home / "conf" / "plain_acl.yml").write_text(json.dumps(document))  # JSON is YAML
        (broker.home / "conf" / "acl").mkdir()
        with broker:
            asyncio.run(main(namesrv.address))


async def topic_pages(browser: Browser, java: JavaCluster) -> None:
    async with Session(java.namesrv) as session, Producer(session, "console-senders") as producer:
        for number in range(8):
            await producer.send(Message(TOPIC, b"%d" % number))
        data = (await browser.api(f"/producers?group=console-senders&topic={TOPIC}")).json
        assert [row["clientId"] for row in data["rows"]] == [session.client_id]
    data = await until(
        browser,
        f"/topics/{TOPIC}",
        lambda found: [row["maxOffset"] for row in found["queues"]] == [4, 4],
    )
    assert data["silent"] == []
    assert data["brokers"] == [java.broker_name]
    assert {row["name"]: row["values"] for row in data["settings"]}["readQueueNums"] == ["2"]
    form = await browser.get(f"/topics/{TOPIC}/settings")
    preview = await browser.submit(form, {"read_queues": "3", "write_queues": "3"})
    assert [java.broker_name, "readQueueNums", "2", "3"] in preview.tables()[0]
    assert states(await browser.submit(preview)) == ["done"]
    data = (await browser.api(f"/topics/{TOPIC}")).json
    assert {row["name"]: row["values"] for row in data["settings"]}["readQueueNums"] == ["3"]


async def group_pages(browser: Browser, java: JavaCluster) -> None:
    consumed = asyncio.Event()
    count = 0

    async def listen(message: StoredMessage) -> None:
        nonlocal count
        count += 1
        if count >= 8:
            consumed.set()

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with Consumer(
        java.namesrv, GROUP, {TOPIC: "*"}, listener=listen, consume_from=first
    ) as consumer:
        async with asyncio.timeout(60):
            await consumed.wait()
        client = consumer.session.client_id
        data = await until(
            browser,
            f"/groups/{GROUP}",
            lambda found: any(row["client"] == client for row in found["queues"]),
        )
        assert [one["clientId"] for one in data["members"]] == [client]
        assert data["disagreements"] == []
        assert (await browser.get(f"/groups/{GROUP}")).status == 200
        assert (await browser.get(f"/groups/{GROUP}/stack?client={client}")).status == 200
    await until(browser, f"/groups/{GROUP}", lambda found: not found["members"])
    form = await browser.get(f"/groups/{GROUP}/reset?topic={TOPIC}")
    preview = await browser.submit(form, {"to": "earliest"})
    assert preview.status == 200, preview.text
    rows = [row for row in preview.tables()[0] if row[5] != "0"]
    assert [row[2:4] + row[6:] for row in rows] == [["4", "0", "0", "4"]] * 2
    assert set(states(await browser.submit(preview))) == {"done"}
    data = await until(browser, f"/groups/{GROUP}", lambda found: (found["lag"] or 0) >= 8)
    assert states(await browser.change(f"/groups/{GROUP}/pause")) == ["done"]
    assert (await browser.api(f"/groups/{GROUP}")).json["paused"] is True
    assert states(await browser.change(f"/groups/{GROUP}/resume")) == ["done"]
    assert (await browser.api(f"/groups/{GROUP}")).json["paused"] is False
