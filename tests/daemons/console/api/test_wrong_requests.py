"""Invalid requests of programs: each is answered with its reason, and never with 500."""

import asyncio
import re
from typing import Any

import pytest

from mq.client.producer.producer import Producer
from mq.daemons.console.pages import all_routes
from mq.daemons.console.route import Change
from mq.protocol.message import Message
from tests.daemons.console.sample_pages import ROUTES
from tests.daemons.console.site import Consoles, Site


def of(route: Change) -> str:
    """Return the path of a change with parameters of missing subjects, numbers where required."""
    path = re.sub(r"\{(queue|offset|id)\}", "0", route.path)
    return re.sub(r"\{[a-z_]+(:path)?\}", "nothing", path)


@pytest.mark.parametrize("value", [{}, [None, None], [[]], {"a": 1}])
def test_a_wrong_value_of_any_change_is_refused_with_its_field(
    console: Consoles, value: Any
) -> None:
    async def main() -> None:
        async with console() as site:
            for route in all_routes():
                if not isinstance(route, Change) or not route.fields:
                    continue
                names = {field.name for field in route.fields}
                answer = await site.api(of(route), dict.fromkeys(names, value))
                assert answer.status == 400, (route.path, answer.text)
                assert answer.json["fields"].keys() == names, answer.text

    asyncio.run(main())


def test_a_missing_value_of_any_change_is_refused_with_its_field(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            for route in all_routes():
                if isinstance(route, Change):
                    answer = await site.api(of(route), {"surprise": "x"})
                    needed = {field.name for field in route.fields if field.required}
                    assert answer.status == 400, (route.path, answer.text)
                    assert answer.json["fields"].keys() == {"surprise", *needed}
                    assert answer.json["fields"]["surprise"] == "no such field"

    asyncio.run(main())


@pytest.mark.parametrize(
    "given",
    [
        {"topic": True},
        {"topic": ["T"]},
        {"topic": {}},
        {"confirm": 1},
        {"confirm": "x", "topic": 1},
        {"topic": "T", "typed": "T"},
        {"topic": "T", "csrf": "x"},
    ],
)
def test_a_value_of_another_type_is_no_text(console: Consoles, given: dict[str, Any]) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            answer = await site.api(f"/create/{site.pair.broker.address}", given)
            assert answer.status == 400, answer.text

    asyncio.run(main())


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize(
    "path",
    [
        "/messages/Absent/export?as={}",
        "/messages/Orders/export?as={}&broker=broker-a&queue=99",
        "/messages/Orders/export?as={}&broker=absent",
        "/dead-letters/absent/export?as={}",
    ],
)
def test_an_export_of_nothing_that_there_is_is_not_found(
    console: Consoles, path: str, form: str
) -> None:
    async def main() -> None:
        async with console() as site:
            async with Producer(site.pair.name_server_address, "p") as producer:
                await producer.send(Message("Orders", b"a lamp"))
            answer = await site.api(path.format(form))
            assert (answer.status, answer.json["id"] != "") == (404, True)
            assert (
                "Absent" in answer.text or "absent" in answer.text or "no such queue" in answer.text
            )

    asyncio.run(main())


async def export(site: Site, form: str) -> list[str]:
    answer = await site.api(f"/messages/Orders/export?as={form}&text=lamp")
    assert answer.status == 200
    return answer.text.splitlines()


def test_an_export_has_all_that_is_found(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            async with Producer(site.pair.name_server_address, "p") as producer:
                for body in (b"a lamp", b"a chair"):
                    await producer.send(Message("Orders", body))
            assert len(await export(site, "jsonl")) == 1
            assert len(await export(site, "csv")) == 2

    asyncio.run(main())


def test_another_method_is_answered_with_those_that_there_are(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            for path, allowed in (("/topics", {"GET", "HEAD"}), ("/new/topic", {"POST"})):
                for method in ("DELETE", "PUT", "OPTIONS"):
                    answer = await site.api(path, method=method)
                    assert answer.status == 405
                    assert set(answer.header("allow").split(", ")) == allowed

    asyncio.run(main())


@pytest.mark.parametrize("query", ["format=xml", "format=", "size=1&size=2"])
def test_a_format_that_there_is_not_and_a_parameter_given_twice_are_refused(
    console: Consoles, query: str
) -> None:
    async def main() -> None:
        async with console() as site:
            answer = await site.api(f"/topics?{query}")
            assert (answer.status, answer.json["error"].partition("=")[0][:4]) == (400, query[:4])

    asyncio.run(main())


def test_without_an_account_everything_asks_for_one(console: Consoles) -> None:
    async def main() -> None:
        async with console(users={"ann": "viewer"}) as site:
            for path, given in (("/topics", None), ("/news", None), ("/new/topic", {})):
                answer = await site.api(path, given)
                assert (answer.status, answer.header("content-type")) == (401, "application/json")

    asyncio.run(main())
