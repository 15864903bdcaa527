"""The frame, end to end: from a socket to a page, and to a change at a broker."""

import asyncio
from urllib.parse import quote

from mq.client.admin import Admin
from tests.daemons.console.pages.state import seen
from tests.daemons.console.sample_pages import ROUTES
from tests.daemons.console.site import Consoles


def test_the_first_address_leads_to_the_first_page_of_the_cluster(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            page = await site.request("GET", "/", follow=True)
            assert page.status == 200
            assert page.url == "/c/test/"
            assert page.title == "Cluster test"
            assert page.soup.find("nav")

    asyncio.run(main())


def test_a_page_is_html_json_and_csv(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            address = site.pair.name_server_address
            await seen(site.here.collector, lambda s: s.name_servers)
            for answer in (await site.get("/name-servers?format=json"),
                           await site.api("/name-servers")):  # fmt: skip
                assert [one["address"] for one in answer.json["nameServers"]] == [address]
            table = await site.get("/name-servers?format=csv")
            assert [line.split(",")[0] for line in table.text.splitlines()] == [
                "namesrvAddr", address,
            ]  # fmt: skip
            assert table.header("content-disposition").startswith("attachment")

    asyncio.run(main())


def test_a_change_is_previewed_and_made_once(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            address = site.pair.broker.address
            page = await site.get(f"/create/{address}")
            preview = await site.submit(page, {"topic": "Orders"})
            assert preview.status == 200
            assert "create topic Orders" in preview.text
            assert "UPDATE_AND_CREATE_TOPIC" in preview.text
            admin = Admin(site.here.session)
            assert "Orders" not in (await admin.topic_list()).topic_list
            done = await site.submit(preview)
            assert done.tables() == [[[address, "done", "created"]]]
            again = await site.submit(preview)
            assert again.status == 409

    asyncio.run(main())


def test_what_destroys_asks_for_the_name(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            address = site.pair.broker.address
            await site.change(f"/create/{address}", {"topic": "Orders"})
            preview = await site.submit(await site.get(f"/delete/{address}"), {"topic": "Orders"})
            refused = await site.submit(preview, {"typed": "orders"})
            assert refused.status == 400
            done = await site.submit(preview, {"typed": "Orders"})
            assert done.tables() == [[["broker", "done", "deleted"]]]
            states = [line["state"] for line in site.audit if line["what"] == "change"]
            assert states == ["begins", "done", "begins", "done"]

    asyncio.run(main())


def test_a_program_makes_the_same_change_in_two_steps(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            address = site.pair.broker.address
            plan = await site.api(f"/create/{address}", {"topic": "Orders"})
            assert plan.json["plan"]["lines"] == ["create topic Orders"]
            done = await site.api(f"/create/{address}", {"confirm": plan.json["confirm"]})
            assert done.json["outcomes"] == [
                {"target": address, "ok": True, "text": "created", "link": ""}
            ]

    asyncio.run(main())


def test_a_name_in_a_path_may_hold_anything(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            for name in ("%RETRY%g", "a/b", "x\u202ey", "?&#", "a\x00b", "名"):
                found = await site.api(f"/named/{quote(name, safe='')}")
                assert found.json == {"name": name, "nameServers": [], "large": str(2**63 - 1)}

    asyncio.run(main())
