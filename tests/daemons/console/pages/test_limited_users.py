"""The pages for a user who may see only some topics and groups."""

import asyncio
from dataclasses import replace

from mq.client.admin import Admin
from mq.daemons.console.collector.snapshot import ProducerRow
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from tests.daemons.console.pages.known import add, look, put, unguarded
from tests.daemons.console.site import Consoles, Site, account

_BOTH = ("mine", "other")


async def filled(site: Site) -> Admin:
    admin = Admin(unguarded(site))
    address = site.pair.broker.address
    for topic in ("mine-orders", "other-orders"):
        config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
        await admin.create_topic(address, config)
    for group in ("mine-group", "other-group"):
        await admin.update_subscription_group(address, SubscriptionGroupConfig(group_name=group))
        for topic in ("mine-orders", "other-orders"):
            await admin.update_consumer_offset(address, group, topic, 0, 0)
    await look(site)
    return admin


def test_lists_search_and_details_leave_out_what_is_not_theirs(console: Consoles) -> None:
    limited = account("ann", "administrator", topics=("mine-*",), groups=("mine-*",))

    async def main() -> None:
        async with console(users={"ann": limited}, login="ann") as site:
            await filled(site)
            for path in ("/topics?size=500", "/groups", "/search?q=o", "/topics?format=csv"):
                answer = await site.get(path)
                assert answer.status == 200, answer.text
                assert "mine-" in answer.text
                assert "other-" not in answer.text, path
            topic = await site.get("/topics/mine-orders")
            assert "mine-group" in topic.text
            assert "other-group" not in topic.text
            group = await site.get("/groups/mine-group")
            assert group.status == 200
            assert "mine-orders" in group.text
            assert "other-orders" not in group.text
            assert (await site.get("/topics/other-orders")).status == 403
            assert (await site.get("/groups/other-group")).status == 403
            assert (await site.get("/producers?group=other-group")).status == 403

    asyncio.run(main())


def test_changes_of_what_is_not_theirs_are_refused_wherever_it_is_named(console: Consoles) -> None:
    limited = account("ann", "administrator", topics=("mine-*",), groups=("mine-*",))

    async def main() -> None:
        async with console(users={"ann": limited}, login="ann") as site:
            admin = await filled(site)
            for path, fields in (
                ("/new/topic", {"topic": "other"}),
                ("/new/group", {"group": "other"}),
                ("/topics/mine-orders/reset", {"group": "other-group", "to": "earliest"}),
                ("/topics/mine-orders/skip", {"group": "other-group"}),
                ("/groups/mine-group/reset", {"topic": "other-orders", "to": "earliest"}),
            ):
                answer = await site.submit(await site.get(path), fields)
                assert answer.status == 403, path
            assert "other" not in (await admin.topic_list()).topic_list
            allowed = await site.get("/groups/mine-group/reset")
            fine = await site.submit(allowed, {"topic": "mine-orders", "to": "earliest"})
            assert fine.status == 200, fine.text

    asyncio.run(main())


def test_producers_of_other_groups_are_not_among_the_clients(console: Consoles) -> None:
    limited = account("ann", "viewer", groups=("mine-*",))

    async def main() -> None:
        async with console(users={"ann": limited}, login="ann") as site:
            await filled(site)
            at = site.pair.broker.address
            rows = [ProducerRow(f"{x}-sellers", "id", at, "PYTHON", "5", (at,)) for x in _BOTH]
            add(site, producers=tuple(rows))
            for path in ("/clients", "/clients?format=csv", "/producers"):
                text = (await site.get(path)).text
                assert "mine-sellers" in text and "other-sellers" not in text, path

    asyncio.run(main())


def test_what_is_deleted_while_a_broker_is_away_is_said_to_stay_there(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            await filled(site)
            now = site.here.snapshot
            away = replace(now.brokers[0], name="broker-b", address="127.0.0.1:1", problem="gone")
            topics = tuple(
                replace(one, brokers=("broker-a", "broker-b")) if one.name == "mine-orders" else one
                for one in now.topics
            )
            groups = tuple(
                replace(one, brokers=("broker-a", "broker-b")) if one.name == "mine-group" else one
                for one in now.groups
            )
            put(site, replace(now, brokers=(*now.brokers, away), topics=topics, groups=groups))
            for path, name, everywhere in (
                ("/topics/mine-orders", "mine-orders", False),
                ("/topics/other-orders", "other-orders", True),
                ("/groups/mine-group", "mine-group", False),
                ("/groups/other-group", "other-group", True),
            ):
                preview = await site.submit(await site.get(f"{path}/delete"))
                assert "broker-b" in preview.text or everywhere
                done = await site.submit(preview, {"typed": name})
                (rows,) = done.tables()
                assert rows[0][:2] == [f"broker-a ({site.pair.broker.address})", "done"]
                left = [row[1] for row in rows if row[0] == "broker-b (127.0.0.1:1)"]
                assert left == ([] if everywhere else ["failed"]), path
            states = [line["state"] for line in site.audit if line["what"] == "change"]
            assert states == ["begins", "partly done", "begins", "done"] * 2

    asyncio.run(main())
