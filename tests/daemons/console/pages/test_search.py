"""The results for `/`."""

import asyncio
from urllib.parse import quote

from mq.daemons.console.collector.snapshot import BrokerRow, GroupRow, Snapshot, TopicRow
from tests.daemons.console.pages.known import AT, put
from tests.daemons.console.site import Consoles, Site

HOSTILE = '"><img src=x onerror=alert(1)>\u202e\0'


def filled(site: Site) -> None:
    def topic(name: str, kind: str = "normal") -> TopicRow:
        return TopicRow(name, kind, 1, 1, ("b",), 6)

    names = ("Orders", "MyOrders", "old-orders", "OrdersArchive", HOSTILE)
    put(
        site,
        Snapshot(
            at=AT,
            brokers=(BrokerRow("c", "orders-broker", 0, "10.0.0.1:10911", "master"),),
            topics=tuple(
                sorted(
                    (*map(topic, names), topic("%RETRY%orders", "retry")), key=lambda row: row.name
                )
            ),
            groups=(GroupRow("orders"), GroupRow("ordersAudit")),
        ),
    )


def test_the_likeliest_comes_first(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            filled(site)
            found = (await site.api("/search?q=ORDERS")).json["found"]
            assert [(one["kind"], one["name"]) for one in found] == [
                ("topic", "Orders"),
                ("group", "orders"),
                ("topic", "OrdersArchive"),
                ("group", "ordersAudit"),
                ("broker", "orders-broker"),
                ("topic", "old-orders"),
                ("topic", "MyOrders"),
                ("topic", "%RETRY%orders"),
            ]
            page = await site.get("/search?q=orders")
            links = [str(a["href"]) for a in page.soup.find_all("tbody")[0].find_all("a")]
            assert links[0] == "/c/test/topics/Orders"
            assert "/c/test/topics/%25RETRY%25orders" in links
            assert (await site.api("/search?q=10.0.0.1")).json["found"][0]["kind"] == "broker"

    asyncio.run(main())


def test_a_message_id_leads_to_the_message(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            filled(site)
            for given in ("0A00000100002A9F0000000000000000", "7F0000010B0418B4AAC2" + "0" * 12):
                (found,) = (await site.api(f"/search?q={given}")).json["found"]
                assert (found["kind"], found["path"]) == ("message", f"/messages?id={given}")

    asyncio.run(main())


def test_nothing_and_hostile_texts_are_text(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            filled(site)
            assert (await site.api("/search")).json["found"] == []
            nothing = await site.get("/search?q=nothing")
            assert "No match." in nothing.soup.get_text()
            page = await site.get(f"/search?q={quote(HOSTILE)}")
            assert page.status == 200
            assert page.soup.find("img") is None
            ((row,),) = page.tables()
            assert "onerror" in row[0]
            assert not {"\u202e", "\0"} & set(row[0])  # the field has the input

    asyncio.run(main())
