"""The page of producers, against a real broker."""

import asyncio

from mq.client.producer.producer import Producer
from mq.daemons.console.collector.snapshot import ProducerRow
from mq.protocol.message import Message
from tests.daemons.console.pages.known import add, look
from tests.daemons.console.site import Consoles

HOSTILE = '"><img src=x onerror=alert(1)>\u202e\0'


def test_producers_are_listed_and_found_by_group_and_topic(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            async with Producer(site.pair.name_server_address, "senders") as producer:
                await producer.send(Message("Orders", b"1"))
                await look(site)
                client = producer.session.client_id
                (table,) = (await site.get("/producers")).tables()
                assert ["senders", client] in [row[:2] for row in table]
                (table,) = (await site.get("/producers?group=senders&topic=Orders")).tables()
                assert [row[:2] for row in table] == [["senders", client]]
                page = await site.get("/producers?group=senders&topic=Orders")
                assert "mq producerConnection -g senders -t Orders" in page.soup.get_text()
                assert (await site.api("/producers?group=nobody")).json["rows"] == []
                assert (await site.get("/producers?topic=nothing")).status == 404
                assert "not the topics" in page.soup.get_text()

    asyncio.run(main())


def test_hostile_producers_are_text(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            await look(site)
            add(site, producers=(ProducerRow(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, ()),))
            page = await site.get("/producers")
            assert page.status == 200
            assert page.soup.find("img") is None
            assert "\u202e" not in page.text
            assert "\0" not in page.text
            assert "onerror" in page.tables()[0][0][0]

    asyncio.run(main())
