"""Overview, brokers, name servers and clients, for a browser and a program."""

import asyncio

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.machine import clock
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.console.history.points import Key
from mq.protocol.message import Message
from tests.daemons.console.pages.state import seen
from tests.daemons.console.site import Consoles
from tests.daemons.tube.loops import in_loop


@in_loop
async def test_the_overview_says_what_there_is_and_how_old_it_is(console: Consoles) -> None:
    async with console() as site:
        snapshot = await seen(site.here.collector, lambda s: s.topics and s.groups)
        page = await site.get("/")
        assert page.status == 200
        assert "Data as of" in page.text
        assert [h.text for h in page.soup.find_all("h1")] == ["Cluster test"]
        data = (await site.api("/")).json
        assert data["counts"]["brokers"] == 1
        assert data["counts"]["silentBrokers"] == 0
        assert data["counts"]["topics"] == len(snapshot.topics)
        assert [disk["broker"] for disk in data["disks"]] == ["broker-a"]
        assert len(page.soup.find_all("figure", class_="chart")) == 2
        assert not page.soup.find_all(style=True)


@in_loop
async def test_a_page_that_is_followed_is_told_of_newer_figures(console: Consoles) -> None:
    async with console() as site:
        await seen(site.here.collector, lambda s: s.brokers)
        async with site.stream("/news") as events:
            assert events.status == 200
            name, data = await events.next()
        assert name == "changed"
        assert data["at"] > 0


@in_loop
async def test_brokers_are_listed_as_the_commands_list_them(console: Consoles) -> None:
    async with console() as site:
        await seen(site.here.collector, lambda s: s.brokers and s.brokers[0].alive)
        page = await site.get("/brokers")
        rows = page.soup.select("tbody tr")
        assert len(rows) == 1
        assert rows[0].select("th")[0].text == "broker-a (0)"
        assert site.pair.broker.address in rows[0].text
        found = (await site.api("/brokers")).json["brokers"]
        assert [(one["name"], one["id"], one["role"]) for one in found] == [
            ("broker-a", 0, "master")
        ]
        csv = await site.get("/brokers?format=csv")
        assert csv.text.splitlines()[0].startswith("cluster,brokerName,brokerId")


@in_loop
async def test_a_broker_has_status_settings_and_replication(console: Consoles) -> None:
    async with console(broker={"maxMessageSize": "1000000"}) as site:
        await seen(site.here.collector, lambda s: s.brokers and s.brokers[0].version)
        status = await site.get("/brokers/broker-a/0")
        assert "brokerVersionDesc" in status.text
        assert f"mq brokerStatus -b {site.pair.broker.address}" in status.text
        settings = (await site.api("/brokers/broker-a/0?part=settings")).json["settings"]
        by_key = {one["key"]: one for one in settings}
        assert by_key["maxMessageSize"]["value"] == "1000000"
        assert by_key["maxMessageSize"]["changed"]
        assert by_key["maxMessageSize"]["default"] == "4194304"
        assert not by_key["deleteWhen"]["changed"]
        replication = await site.get("/brokers/broker-a/0?part=replication")
        assert replication.status == 200
        assert (await site.get("/brokers/broker-z/0")).status == 404
        assert (await site.get("/brokers/broker-a/x")).status == 404


@in_loop
async def test_a_setting_is_changed_after_a_preview_of_old_and_new(console: Consoles) -> None:
    async with console() as site:
        await seen(site.here.collector, lambda s: s.brokers and s.brokers[0].alive)
        path = "/brokers/broker-a/0/setting"
        before = site.pair.broker.settings.store.file_reserved_time
        preview = await site.submit(
            await site.get(path), {"key": "fileReservedTime", "value": "33"}
        )
        assert f"fileReservedTime of broker broker-a (0): {before} → 33" in preview.text
        assert site.pair.broker.settings.store.file_reserved_time == before
        result = await site.submit(preview)
        assert "fileReservedTime changed" in result.text
        assert site.pair.broker.settings.store.file_reserved_time == 33


@in_loop
async def test_a_setting_of_two_lines_or_that_there_is_not_is_refused(console: Consoles) -> None:
    async with console() as site:
        await seen(site.here.collector, lambda s: s.brokers and s.brokers[0].alive)
        path = "/brokers/broker-a/0/setting"
        form = await site.get(path)
        two = await site.submit(form, {"key": "fileReservedTime", "value": "1\nx=2"})
        assert "expected one line" in two.text
        none = await site.submit(form, {"key": "noSuchSetting", "value": "1"})
        assert none.status == 404


@in_loop
async def test_producers_are_led_away_from_a_broker_and_back(console: Consoles) -> None:
    async with console() as site:
        await seen(site.here.collector, lambda s: s.brokers and s.brokers[0].alive)
        async with Session(site.pair.name_server_address) as session:
            for writing, perm in (("stop", 4), ("allow", 6)):
                result = await site.change("/broker-sets/broker-a/writing", {"writing": writing})
                assert "done" in result.text
                route = await Admin(session).topic_route("TBW102")
                assert [queue.perm & 6 for queue in route.queue_datas] == [perm]


@in_loop
async def test_name_servers_and_their_settings_are_shown_and_changed(console: Consoles) -> None:
    async with console() as site:
        await seen(site.here.collector, lambda s: s.name_servers and s.name_servers[0].seen)
        address = site.pair.name_server_address
        rows = (await site.api("/name-servers")).json["nameServers"]
        assert [(one["address"], one["brokers"]) for one in rows] == [(address, 1)]
        page = await site.get(f"/name-servers/{address}")
        assert page.status == 200
        keys = [th.text for th in page.soup.select("tbody th")]
        assert "listenPort" in keys
        assert (await site.get("/name-servers/127.0.0.1:1")).status == 404


@in_loop
async def test_producers_and_consumers_are_one_list(console: Consoles) -> None:
    async with console() as site:
        address = site.pair.name_server_address
        async with (
            Producer(address, "clerks") as producer,
            Consumer(address, "readers", {"orders": "*"}),
        ):
            await producer.send(Message("orders", b"x"))
            collector = site.here.collector
            await seen(collector, lambda s: s.producers and s.consumers)
            found = (await site.api("/clients")).json["clients"]
            assert {(one["kind"], one["group"]) for one in found} == {
                ("producer", "clerks"), ("consumer", "readers"),
            }  # fmt: skip
            only = (await site.api("/clients?kind=consumer&q=read")).json
            assert [one["group"] for one in only["clients"]] == ["readers"]
            assert only["total"] == 1
            page = await site.get("/clients")
            assert len(page.soup.select("#clients tbody tr")) == 2


@in_loop
async def test_a_broker_that_dies_is_shown_as_such_and_pages_go_on(console: Consoles) -> None:
    async with console() as site:
        collector = site.here.collector
        await seen(collector, lambda s: s.topics and s.brokers[0].alive)
        await site.pair.broker.__aexit__(None, None, None)
        await seen(collector, lambda s: s.brokers[0].problem)
        begin = asyncio.get_running_loop().time()
        for path in ("/", "/brokers", "/brokers/broker-a/0", "/name-servers", "/clients"):
            assert (await site.get(path)).status == 200
        settings = await site.get("/brokers/broker-a/0?part=settings")
        assert settings.status == 200
        assert "Its settings cannot be read now" in settings.text
        assert asyncio.get_running_loop().time() - begin < 10
        assert "cannot be reached" in (await site.get("/brokers")).text
        assert (await site.api("/")).json["counts"]["silentBrokers"] == 1


@in_loop
async def test_history_is_shown_as_charts_and_as_csv(console: Consoles) -> None:
    async with console() as site:
        await seen(site.here.collector, lambda s: s.brokers and s.brokers[0].version)
        now = clock.milliseconds() // 1000
        history = site.here.history._history
        for back in range(100):
            key = Key("test", "broker", "broker-a:0", "disk_used")
            history.add(key, 0.25, now - 1000 + back * 10)
        history.add(Key("test", "group", "readers", "lag"), 7.0, now - 10)
        page = await site.get("/history/broker/broker-a:0")
        assert page.status == 200
        assert len(page.soup.find_all("figure", class_="chart")) == 6
        (drawn,) = page.soup.find_all("svg", class_="chart")  # the others have nothing yet
        assert drawn.select("title")[0].text and drawn.select("desc")[0].text
        assert "last 25, at most 25" in page.text
        csv = (await site.get("/history/broker/broker-a:0?format=csv")).text.splitlines()
        assert csv[0].split(",")[4] == "Disk used (%)"
        assert [line.split(",")[4] for line in csv[1:101]] == ["25.0"] * 100
        data = (await site.api("/history/group/readers?span=24h")).json
        assert [row["values"] for row in data["charts"][1]["rows"]] == [[7.0]]
        assert (await site.get("/history/planet/earth")).status == 404
        assert (await site.get("/history/group/readers?span=1y")).status == 400
