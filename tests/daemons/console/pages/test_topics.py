"""Pages of topics, against a real broker."""

import asyncio
from urllib.parse import quote

from mq.client.admin import Admin
from mq.client.producer import Producer
from mq.daemons.console.collector.snapshot import BrokerRow, TopicRow
from mq.protocol.bodies import TopicConfig
from mq.protocol.message import Message
from tests.daemons.console.pages.known import add, look, put
from tests.daemons.console.site import Consoles, Site
from tests.interop.ports import free_port


async def with_topic(site: Site, *topics: str, queues: int = 2, messages: int = 0) -> Admin:
    """Topics at the broker, the first with messages in its queues in turn."""
    admin = Admin(site.here.changing(lambda address, command: None))
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
            from dataclasses import replace

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
            assert "Queues that are not read any more" in text
            broker = site.pair.broker.settings.broker.broker_name
            assert [broker, "readQueueNums", "3", "2"] in preview.tables()[0]
            assert [broker, "perm", "RW-", "R--"] in preview.tables()[0]
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
