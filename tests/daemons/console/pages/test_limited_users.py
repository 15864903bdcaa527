"""What a user who may see some topics and groups alone finds on the pages of all."""

import asyncio

from mq.client.admin import Admin
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from tests.daemons.console.pages.known import look, unguarded
from tests.daemons.console.site import Consoles, Site, account


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
