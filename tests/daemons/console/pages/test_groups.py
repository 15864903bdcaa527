"""Pages of consumer groups, against a real broker and real consumers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import quote

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.producer.producer import Producer
from mq.daemons.channel import Channel
from mq.daemons.console.collector.snapshot import BrokerRow, ClusterRow, GroupRow, Snapshot
from mq.protocol.bodies import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    MessageQueue,
    OffsetWrapper,
    ProcessQueueInfo,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import retry_topic
from tests.client.scripted import routed, scripted
from tests.daemons.console.pages.known import AT, add, look, put, unguarded
from tests.daemons.console.site import Consoles, Site
from tests.interop.ports import free_port

HOSTILE = '"><img src=x onerror=alert(1)>{{7*7}}\u202e\0\U0001f4a9'


async def administrator(site: Site, group: str | None = "g") -> Admin:
    """Calls that may change the broker, with a topic of two queues and a group at it."""
    admin = Admin(unguarded(site))
    config = TopicConfig(topic_name="Orders", read_queue_nums=2, write_queue_nums=2)
    await admin.create_topic(site.pair.broker.address, config)
    if group is not None:
        made = SubscriptionGroupConfig(group_name=group)
        await admin.update_subscription_group(site.pair.broker.address, made)
    return admin


@asynccontextmanager
async def member(site: Site, tags: str = "*") -> AsyncIterator[str]:
    """Wait for the member of group g; return its client id."""

    async def listen(message: StoredMessage) -> None:
        pass

    async with Consumer(
        site.pair.name_server_address, "g", {"Orders": tags}, listener=listen
    ) as consumer:
        await routed(consumer.session, retry_topic("g"))
        yield consumer.session.client_id


def test_the_list_shows_what_is_unknown_as_such_and_never_as_0(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            await look(site)
            add(
                site,
                groups=(
                    GroupRow(
                        "a", state="online", lag=7, members=2, oldest_age_ms=61_000, lag_rate=1.5
                    ),
                    GroupRow("b", problem="no answer"),
                    GroupRow("c", state="offline", lag=0, members=0, system=True),
                ),
            )
            (table,) = (await site.get("/groups?q=&sort=lag&order=desc")).tables()
            rows = {row[0].split()[0]: row for row in table}
            assert rows["a"][1:7] == [
                *("online", "2", "7", "1\u00a0min\u00a01\u00a0s", "?", "↗ grows by 1.5/s")
            ]
            assert rows["b"][2:7] == ["?"] * 5
            assert "c" not in rows
            assert next(iter(rows)) == "a"
            (table,) = (await site.get("/groups?system=on&state=offline")).tables()
            assert [row[0] for row in table] == ["c"]
            assert (await site.api("/groups?state=online")).json["list"]["total"] == 1

    asyncio.run(main())


def test_a_group_shows_who_holds_each_queue_and_what_waits(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            await administrator(site)
            async with Producer(site.pair.name_server_address) as producer:
                for number in range(4):
                    await producer.send(Message("Orders", b"%d" % number))
            async with member(site) as client_id:
                await look(site)
                async with asyncio.timeout(30):
                    while True:  # until the member has committed what it consumed
                        data = (await site.api("/groups/g")).json
                        held = [row for row in data["queues"] if row["topic"] == "Orders"]
                        if len(held) == 2 and all(row["client"] == client_id for row in held):
                            break
                        await asyncio.sleep(0.05)
                (one,) = data["members"]
                assert one["clientId"] == client_id
                assert one["queues"] == 3  # two of the topic, one of its retry topic
                assert data["disagreements"] == []
                assert data["messageModel"] == "CLUSTERING"
                assert {row["topic"] for row in data["subscriptions"]} >= {"Orders"}
                page = await site.get("/groups/g")
                assert page.status == 200, page.text
                assert "mq consumerProgress -g g" in page.soup.get_text()
                stack = await site.get(f"/groups/g/stack?client={quote(client_id)}")
                assert stack.status == 200, stack.text
                assert (await site.get("/groups/g/stack?client=nobody")).status == 404
                assert (await site.get("/groups/g/stack")).status == 400

    asyncio.run(main())


def test_members_that_disagree_are_named_line_by_line(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            await administrator(site)
            async with member(site, "TagA") as one, member(site, "TagB") as other:
                await look(site)
                async with asyncio.timeout(30):
                    while len((data := (await site.api("/groups/g")).json)["disagreements"]) < 2:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
            assert sorted(data["disagreements"]) == sorted(
                [f"Orders: {one} subscribes to TagA", f"Orders: {other} subscribes to TagB"]
            )

    asyncio.run(main())


def test_a_group_that_is_not_there_is_404(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            await look(site)
            assert (await site.get("/groups/nothing")).status == 404
            assert (await site.get("/groups/nothing/settings")).status == 404

    asyncio.run(main())


def test_a_group_is_created_paused_resumed_changed_and_deleted(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            admin = await administrator(site, None)
            address = site.pair.broker.address
            await look(site)
            done = await site.change("/new/group", {"group": "g", "retry_max_times": "5"})
            assert done.tables()[-1][0][1] == "done"

            async def now() -> SubscriptionGroupConfig:
                found = await admin.subscription_group(address, "g")
                assert found is not None
                return found

            made = await now()
            assert (made.retry_max_times, made.consume_enable) == (5, True)
            await look(site)
            await site.change("/groups/g/pause")
            paused = await now()
            assert (paused.retry_max_times, paused.consume_enable) == (5, False)
            assert "paused" in (await site.get("/groups/g")).soup.get_text()
            await site.change("/groups/g/resume")
            assert (await now()).consume_enable
            preview = await site.submit(
                await site.get("/groups/g/settings"), {"retry_max_times": "7"}
            )
            broker = site.pair.broker.settings.broker.broker_name
            assert preview.tables()[0] == [[broker, "retryMaxTimes", "5", "7"]]
            await site.submit(preview)
            assert (await now()).retry_max_times == 7
            gone = await site.change("/groups/g/delete", typed="g")
            assert gone.status == 200
            assert "g" not in site.pair.broker.stores.groups.table

    asyncio.run(main())


def test_a_delete_stays_in_the_cluster_that_is_chosen(console: Consoles) -> None:
    deleted = []

    def gone(request: Command, channel: Channel) -> Command:
        deleted.append(request.code)
        return request.reply(0)

    async def main() -> None:
        answers = {
            int(RequestCode.DELETE_SUBSCRIPTIONGROUP): gone,
            int(RequestCode.DELETE_TOPIC_IN_BROKER): gone,
        }
        async with console() as site, scripted(answers) as elsewhere:
            await administrator(site)
            known = await look(site)
            cluster = known.clusters[0].name
            add(
                site,
                clusters=(ClusterRow("other", ("there",)),),
                brokers=(BrokerRow("other", "there", 0, elsewhere, "master"),),
            )
            done = await site.change("/groups/g/delete", {"cluster": cluster}, typed="g")
            assert done.status == 200, done.text
            assert "g" not in site.pair.broker.stores.groups.table
            await site.change("/topics/Orders/delete", {"cluster": cluster}, typed="Orders")
            assert deleted == []

    asyncio.run(main())


def lying_broker(group: str, client: str) -> dict[int, object]:
    """A broker and members with hostile texts only."""

    def answer(body: bytes) -> object:
        return lambda request, channel: request.reply(0, None, body)

    queue = MessageQueue(HOSTILE, HOSTILE, 0)
    data = SubscriptionData(topic=HOSTILE, sub_string=HOSTILE)
    connection = Connection(client_id=client, client_addr=HOSTILE)
    info = ConsumerRunningInfo(
        properties={HOSTILE: HOSTILE, "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        subscription_set=[data],
        mq_table={queue: ProcessQueueInfo(cached_msg_count=1)},
        jstack=f"{HOSTILE}\n<script>alert(1)</script>",
    )
    stats = ConsumeStats(
        offset_table={queue: OffsetWrapper(broker_offset=2**63 - 1, consumer_offset=0)}
    )
    return {
        int(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG): answer(
            SubscriptionGroupConfig(group_name=group, attributes={HOSTILE: HOSTILE}).encode()
        ),
        int(RequestCode.GET_CONSUMER_CONNECTION_LIST): answer(
            ConsumerConnection(
                connection_set=[connection], subscription_table={HOSTILE: data}
            ).encode()
        ),
        int(RequestCode.GET_CONSUMER_RUNNING_INFO): answer(info.encode()),
        int(RequestCode.GET_CONSUME_STATS): answer(stats.encode()),
    }


@pytest.mark.parametrize("path", ["/groups", "/groups/{}", "/groups/{}/stack?client={}"])
def test_what_a_lying_broker_says_is_text(console: Consoles, path: str) -> None:
    async def main() -> None:
        async with console() as site, scripted(lying_broker(HOSTILE, HOSTILE)) as lying:  # type: ignore[arg-type]
            put(
                site,
                Snapshot(
                    at=AT,
                    clusters=(ClusterRow(HOSTILE, (HOSTILE,)),),
                    brokers=(BrokerRow(HOSTILE, HOSTILE, 0, lying, "master", version=HOSTILE),),
                    groups=(GroupRow(HOSTILE, brokers=(HOSTILE,), problem=HOSTILE, model=HOSTILE),),
                ),
            )
            name = quote(HOSTILE, safe="")
            page = await site.get(path.format(name, name))
            assert page.status == 200, page.text
            assert page.soup.find("img") is None
            assert len(page.soup.find_all("script")) == 1  # the frame's own
            assert "onerror=alert(1)" in page.soup.get_text()
            assert "{{7*7}}" in page.soup.get_text()
            for sign in "\u202e\0":
                assert sign not in page.text
            if path == "/groups/{}":
                data = (await site.api(path.format(name))).json
                assert data["queues"][0]["diff"] == str(2**63 - 1)
                assert (await site.get(path.format(name) + "?format=csv")).status == 200

    asyncio.run(main())


def test_a_broker_that_hangs_and_one_that_is_dead_are_told_of(console: Consoles) -> None:
    async def silent(request: Command, channel: Channel) -> Command:
        await asyncio.Event().wait()
        raise AssertionError

    codes = (
        *(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_CONSUMER_CONNECTION_LIST),
        RequestCode.GET_CONSUME_STATS,
    )

    async def main() -> None:
        async with console() as site, scripted(dict.fromkeys(map(int, codes), silent)) as hung:
            await administrator(site)
            known = await look(site)
            more = (
                BrokerRow("c", "hung", 0, hung, "master"),
                BrokerRow("c", "dead", 0, f"127.0.0.1:{free_port()}", "master"),
            )
            group = next(row for row in known.groups if row.name == "g")
            add(site, brokers=more)
            now = site.here.snapshot
            rows = [row for row in now.groups if row.name != "g"]
            rows.append(replace(group, brokers=(*group.brokers, "hung", "dead")))
            put(site, replace(now, groups=tuple(sorted(rows, key=lambda row: row.name))))
            data = (await site.api("/groups/g")).json
            assert {one["subject"] for one in data["silent"]} == {"hung", "dead"}
            assert data["brokers"] == [site.pair.broker.settings.broker.broker_name]

    asyncio.run(main())
