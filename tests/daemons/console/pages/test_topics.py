"""Pages of topics, against a real broker."""

import asyncio
from dataclasses import replace
from urllib.parse import quote

from mq.client.admin import Admin
from mq.client.producer.producer import Producer
from mq.daemons.channel import Channel
from mq.daemons.console.collector.snapshot import (
    BrokerRow,
    ClusterRow,
    ProducerRow,
    Snapshot,
    TopicRow,
)
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import (
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicOffset,
    TopicStatsTable,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.client.scripted import scripted
from tests.daemons.console.pages.known import AT, add, look, put, unguarded
from tests.daemons.console.site import Consoles, Site
from tests.interop.ports import free_port


async def with_topic(site: Site, *topics: str, queues: int = 2, messages: int = 0) -> Admin:
    """Topics at the broker, the first with messages in its queues in turn."""
    admin = Admin(unguarded(site))
    for topic in topics:
        config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
        await admin.create_topic(site.pair.broker.address, config)
    if messages:
        async with Producer(site.pair.name_server_address) as producer:
            for number in range(messages):
                await producer.send(Message(topics[0], b"%d" % number))
    await look(site)
    return admin


def names(rows: list[list[str]]) -> list[str]:
    return [row[0] for row in rows]


def test_the_list_is_filtered_sorted_and_cut_by_the_server(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            put(site, await look(site))
            rows = [
                TopicRow(
                    f"Orders{n}",
                    "fifo" if n % 2 else "normal",
                    n + 1,
                    1,
                    ("b",),
                    6,
                    in_rate=None if n == 0 else float(n),
                )
                for n in range(6)
            ]
            add(site, topics=tuple(rows))
            (table,) = (await site.get("/topics?q=orders")).tables()
            assert names(table) == [f"Orders{n}" for n in range(6)]
            page = await site.get("/topics?q=orders&sort=in&order=desc&size=2&page=2")
            assert names(page.tables()[0]) == ["Orders3", "Orders2"]
            last = await site.get("/topics?q=orders&sort=in&order=asc&size=2&page=9")
            assert names(last.tables()[0]) == ["Orders5", "Orders0"]  # unknown comes last
            assert last.tables()[0][1][4] == "?"
            (table,) = (await site.get("/topics?q=orders&kind=fifo")).tables()
            assert names(table) == ["Orders1", "Orders3", "Orders5"]
            sheet = (await site.get("/topics?q=orders&kind=fifo&format=csv")).text
            assert sheet.splitlines()[1].startswith("Orders1,fifo,2,1,b,6,1.0")
            found = (await site.api("/topics?q=orders&size=1")).json
            assert found["list"]["total"] == 6
            assert {box["kind"]: box["count"] for box in found["kinds"]}["fifo"] == 3
            assert (await site.get("/topics?sort=nothing")).status == 400
            assert (await site.get("/topics?kind=nothing")).status == 400

    asyncio.run(main())


def test_a_topic_shows_its_queues_route_settings_and_command(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            await with_topic(site, "Orders", messages=4)
            page = await site.get("/topics/Orders")
            assert page.status == 200, page.text
            assert page.title == "Orders"
            assert "mq topicStatus -t Orders" in page.soup.get_text()
            queues = page.tables()[0]
            broker = site.pair.broker.settings.broker.broker_name
            assert [row[:5] for row in queues] == [[broker, str(n), "0", "2", "2"] for n in (0, 1)]
            data = (await site.api("/topics/Orders")).json
            assert [row["maxOffset"] for row in data["queues"]] == [2, 2]
            assert data["route"][0]["brokerName"] == broker
            assert {row["name"] for row in data["settings"]} >= {"readQueueNums", "perm"}
            assert data["silent"] == []

    asyncio.run(main())


def test_a_topic_that_is_not_there_is_404_also_for_programs(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            await look(site)
            assert (await site.get("/topics/nothing")).status == 404
            assert (await site.api("/topics/nothing")).status == 404
            assert (await site.get("/topics/nothing/settings")).status == 404

    asyncio.run(main())


def test_a_dead_broker_is_one_line_and_the_rest_is_shown(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            await with_topic(site, "Orders", messages=2)
            dead = BrokerRow("DefaultCluster", "dead", 0, f"127.0.0.1:{free_port()}", "master")
            known = add(site, brokers=(dead,))
            topics = [row for row in known.topics if row.name != "Orders"]
            here = next(row for row in known.topics if row.name == "Orders")
            topics.append(replace(here, brokers=(*here.brokers, "dead")))
            put(site, replace(known, topics=tuple(sorted(topics, key=lambda row: row.name))))
            data = (await site.api("/topics/Orders")).json
            assert [one["subject"] for one in data["silent"]] == ["dead"]
            assert len(data["queues"]) == 2
            assert (await site.get("/topics/Orders")).status == 200

    asyncio.run(main())


def test_a_topic_is_created_changed_and_deleted(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            admin = await with_topic(site)
            done = await site.change("/new/topic", {"topic": "Orders", "read_queues": "3"})
            assert done.tables()[-1][0][1] == "done"
            address = site.pair.broker.address
            config = (await admin.topic_configs(address)).topic_config_table["Orders"]
            assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 8, 6)
            await look(site)
            form = await site.get("/topics/Orders/settings")
            preview = await site.submit(form, {"read_queues": "2", "perm": "4"})
            text = preview.soup.get_text(" ")
            assert "Queues that are no longer read" in text
            broker = site.pair.broker.settings.broker.broker_name
            assert [broker, "readQueueNums", "3", "2"] in preview.tables()[0]
            assert [broker, "perm", "RW-", "R--"] in preview.tables()[0]
            assert "updateTopic -c DefaultCluster -t Orders" in text
            await site.submit(preview)
            config = (await admin.topic_configs(address)).topic_config_table["Orders"]
            assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (2, 8, 4)
            preview = await site.submit(await site.get("/topics/Orders/delete"))
            refused = await site.submit(preview, {"typed": "other"})
            assert refused.status == 400
            assert "Orders" in (await admin.topic_configs(address)).topic_config_table
            gone = await site.submit(preview, {"typed": "Orders"})
            assert gone.status == 200, gone.text
            assert "Orders" not in (await admin.topic_configs(address)).topic_config_table
            states = [line["state"] for line in site.audit if line["what"] == "change"]
            assert states == ["begins", "done"] * 3

    asyncio.run(main())


def test_the_command_of_settings_for_one_broker_is_for_that_one(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            await with_topic(site, "Orders")
            await look(site)
            form = await site.get("/topics/Orders/settings")
            broker = site.pair.broker
            name = broker.settings.broker.broker_name
            preview = await site.submit(form, {"read_queues": "5", "broker": name})
            text = preview.soup.get_text(" ")
            assert f"updateTopic -b {broker.address} -t Orders -r 5" in text

    asyncio.run(main())


def test_what_a_broker_would_refuse_is_said_at_the_form(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            admin = await with_topic(site)
            form = await site.get("/new/topic")
            for given, complaint in (
                ({"topic": "a b"}, "a b"),
                ({"topic": "T", "read_queues": "0"}, "Expected 1 to"),
                ({"topic": "T", "cluster": "other"}, "expected one of"),
                ({"topic": "T", "attributes": "x"}, "attributes"),
            ):
                answer = await site.submit(form, given)
                assert answer.status == 400, given
                assert complaint in answer.soup.get_text(" ")
            table = (await admin.topic_configs(site.pair.broker.address)).topic_config_table
            assert "T" not in table

    asyncio.run(main())


def test_what_a_reset_will_do_is_shown_and_comes_about(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            admin = await with_topic(site, "Orders", messages=4)
            address = site.pair.broker.address
            for queue_id in range(2):
                await admin.update_consumer_offset(address, "g", "Orders", queue_id, 1)
            await look(site)
            form = await site.get("/topics/Orders/reset?group=g")
            preview = await site.submit(form, {"to": "earliest"})
            assert preview.status == 200, preview.text
            broker = site.pair.broker.settings.broker.broker_name
            assert [row[:4] + row[6:] for row in preview.tables()[0]] == [
                [broker, str(n), "1", "0", "0", "1"] for n in (0, 1)
            ]
            await site.submit(preview)
            offsets = [await admin.query_consumer_offset(address, "g", "Orders", n) for n in (0, 1)]
            assert offsets == [0, 0]
            done = await site.change("/topics/Orders/skip", {"group": "g"})
            assert [row[1] for row in done.tables()[-1]] == ["done", "done"]
            offsets = [await admin.query_consumer_offset(address, "g", "Orders", n) for n in (0, 1)]
            assert offsets == [2, 2]
            one = {"to": "offset", "broker": broker, "queue": "1", "offset": "1"}
            await site.change("/topics/Orders/reset", {"group": "g", **one})
            offsets = [await admin.query_consumer_offset(address, "g", "Orders", n) for n in (0, 1)]
            assert offsets == [2, 1]
            wrong = await site.submit(form, {"to": "offset", "offset": "1"})
            assert wrong.status == 400

    asyncio.run(main())


def test_hostile_names_are_text(console: Consoles) -> None:
    hostile = [
        '"><img src=x onerror=alert(1)>',
        "{{7*7}}",
        "a/b%2F..\u202eevil",
        "nul\0and\x1b[31m",
        "\U0001f4a9 four",
        "%RETRY%<script>alert(1)</script>",
    ]

    async def main() -> None:
        async with console() as site:
            await look(site)
            add(
                site,
                topics=tuple(
                    TopicRow(
                        name,
                        "normal",
                        1,
                        1,
                        ("<b>broker</b>",),
                        6,
                        problem="<i>p</i>",
                        groups=tuple(hostile),
                    )
                    for name in hostile
                ),
            )
            listed = await site.get("/topics?size=500")
            assert listed.soup.find(["img", "i", "b"]) is None
            assert len(listed.soup.find_all("script")) == 1  # the frame's own
            assert "49" not in names(listed.tables()[0])
            for name in hostile:
                page = await site.get(f"/topics/{quote(name, safe='')}")
                assert page.status == 200, (name, page.text)
                assert page.soup.find(["img", "i", "b"]) is None
                assert len(page.soup.find_all("script")) == 1
                assert "\u202e" not in page.text
                assert "\x1b" not in page.text
                assert "\0" not in page.text
            assert "'" not in (await site.get("/topics?format=csv")).text.splitlines()[0]

    asyncio.run(main())


def lying_broker(said: str) -> dict[int, Handler]:
    """A broker with the same text wherever possible."""

    def answer(body: bytes) -> Handler:
        return lambda request, channel: request.reply(0, None, body)

    queue = MessageQueue(said, said, 0)
    config = TopicConfig(topic_name=said, attributes={said: said}, perm=2**31 - 1)
    stats = TopicStatsTable(
        offset_table={queue: TopicOffset(min_offset=-(2**63), max_offset=2**63 - 1)}
    )
    return {
        int(RequestCode.GET_TOPIC_STATS_INFO): answer(stats.encode()),
        int(RequestCode.GET_TOPIC_CONFIG): answer(config.encode()),
        int(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO): answer(GroupList(group_list={said}).encode()),
    }


def test_what_a_lying_broker_says_of_a_topic_is_text(console: Consoles) -> None:
    said = '"><img src=x onerror=alert(1)>{{7*7}}\u202e\0\U0001f4a9'

    async def main() -> None:
        async with console() as site, scripted(lying_broker(said)) as lying:
            put(
                site,
                Snapshot(
                    at=AT,
                    clusters=(ClusterRow(said, (said,)),),
                    brokers=(BrokerRow(said, said, 0, lying, "master"),),
                    topics=(TopicRow(said, said, 1, 1, (said,), 6),),
                    producers=(ProducerRow(said, said, said, said, said, (lying,)),),
                ),
            )
            page = await site.get(f"/topics/{quote(said, safe='')}")
            assert page.status == 200, page.text
            assert page.soup.find("img") is None
            assert len(page.soup.find_all("script")) == 1
            assert not {"\u202e", "\0"} & set(page.text)
            assert page.soup.get_text().count("{{7*7}}") > 5
            data = (await site.api(f"/topics/{quote(said, safe='')}")).json
            assert data["queues"][0]["maxOffset"] == str(2**63 - 1)
            for form in ("settings", "delete", "reset", "skip"):
                answer = await site.get(f"/topics/{quote(said, safe='')}/{form}")
                assert answer.status == 200, form
                assert answer.soup.find("img") is None

    asyncio.run(main())


def test_a_broker_of_4_9_is_asked_nothing_that_it_lacks_without_falling_back(
    console: Consoles,
) -> None:
    lacked = []

    def every(request: Command, channel: Channel) -> Command:
        table = {"T": TopicConfig(topic_name="T", read_queue_nums=3)}
        return request.reply(
            0, None, TopicConfigSerializeWrapper(topic_config_table=table).encode()
        )

    def unknown(request: Command, channel: Channel) -> Command:
        lacked.append(request.code)
        return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not supported")

    answers: dict[int, Handler] = {
        **lying_broker("T"),
        int(RequestCode.GET_TOPIC_CONFIG): unknown,
        int(RequestCode.GET_ALL_TOPIC_CONFIG): every,
    }

    async def main() -> None:
        async with console() as site, scripted(answers) as old:
            put(
                site,
                Snapshot(
                    at=AT,
                    brokers=(BrokerRow("c", "old", 0, old, "master"),),
                    topics=(TopicRow("T", "normal", 3, 3, ("old",), 6),),
                ),
            )
            data = (await site.api("/topics/T")).json
            assert lacked == [RequestCode.GET_TOPIC_CONFIG]
            settings = {row["name"]: row["values"] for row in data["settings"]}
            assert settings["readQueueNums"] == ["3"]
            # No name server has a route: the rest of the page is there.
            assert [one["subject"] for one in data["silent"]] == ["T"]

    asyncio.run(main())


def test_settings_that_are_not_the_same_everywhere_are_marked(console: Consoles) -> None:
    def at(queues: int) -> dict[int, Handler]:
        config = TopicConfig(topic_name="T", read_queue_nums=queues)
        return {
            **lying_broker("T"),
            int(RequestCode.GET_TOPIC_CONFIG): lambda request, channel: request.reply(
                0, None, config.encode()
            ),
        }

    async def main() -> None:
        async with console() as site, scripted(at(4)) as one, scripted(at(8)) as other:
            put(
                site,
                Snapshot(
                    at=AT,
                    brokers=(
                        BrokerRow("c", "a", 0, one, "master"),
                        BrokerRow("c", "b", 0, other, "master"),
                    ),
                    topics=(TopicRow("T", "normal", 12, 12, ("a", "b"), 6),),
                ),
            )
            page = await site.get("/topics/T")
            (row,) = page.soup.find_all("tr", class_="differs")
            assert "readQueueNums" in row.get_text()
            data = (await site.api("/topics/T")).json
            assert data["drifts"] is True
            assert [r["name"] for r in data["settings"] if r["differs"]] == ["readQueueNums"]

    asyncio.run(main())
