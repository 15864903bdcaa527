import csv
import io
import json
from urllib.parse import quote

import pytest

from mq.client.operations.messages.finding import Reach
from mq.client.operations.messages.search import Budget
from mq.daemons.console.pages import messages
from mq.daemons.console.route import Page, Redirect
from mq.daemons.console.security.roles import User
from mq.protocol.message import Message
from tests.cli.pairs import DEAD, registration
from tests.client.compressed import said_to_be_compressed
from tests.client.scenarios import eventually
from tests.daemons.console.pages.filled import (
    HOSTILE,
    TOPIC,
    Filled,
    assert_harmless,
    call_of,
    hostile_messages,
    run,
)
from tests.daemons.console.site import Answer, Consoles


def bodies(page: Answer) -> list[str]:
    return [row[6] for row in page.tables()[0]] if page.tables() else []


def test_the_newest_messages_come_first_and_pages_repeat_nothing(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        for number in range(50):
            await made.send(Message(TOPIC, b"body %d" % number), queue=number % 2)
        seen: list[str] = []
        page = await made.site.get(f"/messages/{TOPIC}?size=20")
        for _ in range(3):
            assert page.status == 200, page.text
            seen += bodies(page)
            link = page.soup.find("a", rel="next")
            if link is None:
                break
            page = await made.site.get(str(link["href"]))
        assert sorted(seen) == sorted(f"body {number}" for number in range(50))
        assert seen[0] in ("body 49", "body 48")
        assert "Searched 50 of 50 messages." in page.text.replace("\u202f", "")

    run(console, test)


def test_each_filter_finds_what_it_says(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(
            Message(TOPIC, b"red needle", "red", ["k1"], {"colour": "red", "amount": "7"}),
            Message(TOPIC, b"blue hay", "blue", ["k2"], {"colour": "blue", "amount": "3"}),
        )

        async def found(query: str) -> list[str]:
            page = await made.site.get(f"/messages/{TOPIC}?{query}")
            assert page.status == 200, page.text
            return bodies(page)

        async def by_key() -> bool:
            return await found("key=k1") == ["red needle"]

        await eventually(by_key)
        for query in ("tag=red", "text=needle", "property=colour%3Dred", "sql=amount%20%3E%205",
                      "property=colour%3Dred%20%26%26%20amount%3D7", "key=k1&text=need",
                      "key=k1&sql=amount%20%3E%205", "from=-1h&tag=red"):  # fmt: skip
            assert await found(query) == ["red needle"], query
        for query in ("tag=green", "text=absent", "key=k1&tag=blue", "to=-1h", "queue=1"):
            assert await found(query) == [], query

    run(console, test, enablePropertyFilter="true")


def test_an_id_leads_to_the_page_of_its_message(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        (sent,) = await made.send(Message(TOPIC, b"wanted"))
        place = f"/c/test/messages/{TOPIC}/broker-a/0/0"

        async def is_found() -> bool:
            answer = await made.site.get(f"/messages?id={sent.message_id}")
            return answer.header("location") == place

        await eventually(is_found)
        for address in (
            f"/messages?id={sent.offset_message_id}",
            f"/messages/{TOPIC}?id={sent.message_id}",
            f"/messages/{TOPIC}?broker=broker-a&queue=0&offset=0",
        ):
            answer = await made.site.get(address)
            assert (answer.status, answer.header("location")) == (303, place)
        assert (await made.site.get("/messages?id=nothing")).status == 404
        chosen = await made.site.get(f"/messages?topic={TOPIC}")
        assert chosen.header("location") == f"/c/test/messages/{TOPIC}"

    run(console, test)


def test_what_a_broker_has_of_a_key_or_an_id_is_shown_though_another_one_is_away(
    console: Consoles,
) -> None:
    async def test(made: Filled) -> None:
        (sent,) = await made.send(Message(TOPIC, b"wanted", keys=["k1"]))

        async def by_key() -> bool:
            return bodies(await made.site.get(f"/messages/{TOPIC}?key=k1")) == ["wanted"]

        names = made.site.pair.name_server_address
        await made.session.call(names, registration(TOPIC))  # before the console knows the route
        await eventually(by_key)
        for query in ("key=k1", f"id={sent.message_id}"):
            page = await made.site.get(f"/messages/{TOPIC}?{query}")
            assert (page.status, bodies(page)) == (200, ["wanted"]), query
            assert f"topic {TOPIC}: {DEAD}: Connection refused" in page.soup.get_text()
        for query in ("key=none", "id=none"):
            page = await made.site.get(f"/messages/{TOPIC}?{query}")
            assert page.status == 502 and DEAD in page.soup.get_text(), query

    run(console, test)


def test_what_cannot_be_searched_for_says_why(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        for query, line in (
            ("sql=a%20%3E", "SQL92"),
            ("property=x", "name=value"),
            ("after=nonsense", "not a position of a search"),
            ("offset=3", "An offset belongs to a queue"),
            ("tag=a&sql=b%20%3D%201", "tags and sql"),
            ("from=-1h&to=-2h", "is not before"),
            ("size=7", "expected one of"),
            ("queue=x", "whole number"),
        ):
            page = await made.site.get(f"/messages/{TOPIC}?{query}")
            assert page.status == 400 and line in page.soup.get_text(), query
        assert (await made.site.get("/messages/NoSuchTopic")).status == 404
        assert (await made.site.get("/messages/SCHEDULE_TOPIC_XXXX")).status == 404

    run(console, test)


def test_empty_results_say_why(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        assert "has no messages" in (await made.site.get(f"/messages/{TOPIC}")).text
        await made.send(Message(TOPIC, b"x"))
        assert "in this time" in (await made.site.get(f"/messages/{TOPIC}?queue=1")).text
        assert "Remove a search" in (await made.site.get(f"/messages/{TOPIC}?text=y")).text
        assert "must match exactly" in (await made.site.get(f"/messages/{TOPIC}?key=y")).text

    run(console, test)


def test_a_spent_budget_is_shown_and_can_be_gone_on_from(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "BUDGET", Budget(messages=30, seconds=60))

    async def test(made: Filled) -> None:
        await made.send(Message(TOPIC, b"needle"), *[Message(TOPIC, b"hay")] * 100)
        page = await made.site.get(f"/messages/{TOPIC}?text=needle")
        assert "Nothing found so far" in page.text and "reached its limit of messages" in page.text
        for _ in range(20):
            if bodies(page):
                break
            page = await made.site.get(str(page.soup.find("a", rel="next")["href"]))  # type: ignore[index]
        assert bodies(page) == ["needle"]

    run(console, test)


def test_programs_get_what_people_see(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        (sent,) = await made.send(Message(TOPIC, b"body", "tag", ["a", "b"]))
        answer = (await made.site.api(f"/messages/{TOPIC}")).json
        (message,) = answer["messages"]
        assert message["messageId"] == sent.message_id
        assert (message["tags"], message["keys"], message["body"]) == ("tag", "a b", "body")
        assert (answer["looked"], answer["total"], answer["after"]) == (1, 1, None)

    run(console, test)


def test_a_search_is_saved_as_json_lines_or_csv(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        for number in range(250):
            await made.send(Message(TOPIC, b"=%d" % number, "odd" if number % 2 else "even"))
        lines = await made.site.get(f"/messages/{TOPIC}/export?tag=odd")
        assert lines.header("content-disposition") == f'attachment; filename="{TOPIC}.jsonl"'
        found = [json.loads(line)["body"] for line in lines.text.splitlines()]
        assert found == [f"={number}" for number in range(249, 0, -2)]
        table = await made.site.get(f"/messages/{TOPIC}/export?as=csv&limit=120")
        rows = list(csv.DictReader(io.StringIO(table.text)))
        assert [row["body"] for row in rows] == [f"'={number}" for number in range(249, 129, -1)]
        assert [line["what"] for line in made.site.audit if line["what"] == "export"]

    run(console, test)


def test_a_saved_body_that_is_as_it_is_stored_is_said_to_be_so(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(Message(TOPIC, b"whole"))
        damaged = said_to_be_compressed(TOPIC, b"no stream")
        await made.session.call(made.site.pair.broker.address, damaged)
        table = await made.site.get(f"/messages/{TOPIC}/export?as=csv&limit=9")
        lines = await made.site.get(f"/messages/{TOPIC}/export?as=jsonl&limit=9")
        saved = list(csv.DictReader(io.StringIO(table.text)))
        saved += [json.loads(line) for line in lines.text.splitlines()]
        said = {(item["queueOffset"] in (0, "0"), item.get("bodyError", "")[:8]) for item in saved}
        assert said == {(True, ""), (False, "the zlib")}

    run(console, test)


def test_what_messages_hold_is_text_whatever_it_is(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(*hostile_messages())
        page = await made.site.get(f"/messages/{TOPIC}")
        assert page.status == 200
        assert_harmless(page.soup)
        assert HOSTILE[0] in page.soup.get_text() and "{{8191*8191}}" in page.soup.get_text()
        for text in HOSTILE:
            for name in ("text", "tag", "key", "property", "id", "after", "sql"):
                wanted = f"user={text}" if name == "property" else text
                answer = await made.site.get(f"/messages/{TOPIC}?{name}={quote(wanted, safe='')}")
                assert answer.status in (200, 400, 404)
                assert_harmless(answer.soup)
            answer = await made.site.get(f"/messages/{quote(text, safe='')}")
            assert answer.status in (404, 502), answer.text
            assert_harmless(answer.soup)
            assert_harmless((await made.site.get(f"/messages?id={quote(text, safe='')}")).soup)

    run(console, test)


def test_several_messages_of_an_id_are_listed_and_their_bodies_audited(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        message = Message(TOPIC, b"sent twice")
        message.system["UNIQ_KEY"] = wanted = "AC11000100002A9F0000000000000001"
        await made.send(message, message)

        async def indexed() -> bool:
            return len(await made.admin.find_by_unique_id(TOPIC, wanted)) == 2

        await eventually(indexed)
        for number, address in enumerate(
            (f"/messages?id={wanted}", f"/messages/{TOPIC}?id={wanted}")
        ):
            page = await made.site.get(address, follow=True)
            assert bodies(page) == ["sent twice"] * 2
            lines = [line for line in made.site.audit if line["what"] == "bodies in a list"]
            assert len(lines) == number + 1

    run(console, test)


def test_an_id_that_several_topics_have_shows_all_that_the_user_may_see(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        wanted = "AC11000100002A9F0000000000000002"
        for topic in ("Copied", "Hidden", TOPIC):
            await made.topic(topic)
            message = Message(topic, topic.encode())
            message.system["UNIQ_KEY"] = wanted
            await made.send(message)

            async def indexed(topic: str = topic) -> bool:
                return len(await made.admin.find_by_unique_id(topic, wanted)) == 1

            await eventually(indexed)
        page = await made.site.get(f"/messages?id={wanted}")
        assert [(row[1], row[7]) for row in page.tables()[0]] == [
            (topic, topic) for topic in ("Copied", "Hidden", TOPIC)
        ]
        assert f"trace {wanted}" in page.text
        audited = [line for line in made.site.audit if line["what"] == "bodies in a list"]
        assert [line["target"] for line in audited] == ["Copied", "Hidden", TOPIC]
        limited = User("limited", {"*": "viewer"}, topics=(TOPIC, "Copied"))
        found = await messages.choose(
            call_of(made.site, limited, {}, {"topic": None, "id": wanted})
        )
        assert isinstance(found, Page)
        assert [(row.topic, row.body) for row in found.data.messages] == [
            ("Copied", None),
            (TOPIC, None),
        ]

    run(console, test)


def test_a_search_for_an_id_says_how_many_topics_it_has_not_looked_into(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(made: Filled) -> None:
        wanted = "AC11000100002A9F0000000000000004"
        await made.topic("Afirst")
        message = Message("Afirst", b"found")
        message.system["UNIQ_KEY"] = wanted
        await made.send(message)

        async def indexed() -> bool:
            return len(await made.admin.find_by_unique_id("Afirst", wanted)) == 1

        await eventually(indexed)
        assert (await made.site.get(f"/messages?id={wanted}")).status == 303  # to the message
        monkeypatch.setattr(messages, "REACH", Reach(requests=1))
        page = await made.site.get(f"/messages?id={wanted}")
        assert [row[1] for row in page.tables()[0]] == ["Afirst"]
        assert "topics were not searched" in page.text
        missing = await made.site.get("/messages?id=nothing")
        assert missing.status == 404
        assert "not searched: " in missing.text

    run(console, test)


def test_an_id_of_topics_that_the_user_may_not_see_hides_no_letter_that_he_may(
    console: Consoles,
) -> None:
    async def test(made: Filled) -> None:
        wanted = "AC11000100002A9F0000000000000003"
        for topic in ("Hidden", "%DLQ%readers"):
            await made.topic(topic)
            message = Message(topic, b"letter")
            message.system["UNIQ_KEY"] = wanted
            await made.send(message)

            async def indexed(topic: str = topic) -> bool:
                return len(await made.admin.find_by_unique_id(topic, wanted)) == 1

            await eventually(indexed)
        limited = User("limited", {"*": "viewer"}, topics=("%DLQ%readers",), groups=("readers",))
        query = {"topic": None, "id": wanted}
        found = await messages.choose(call_of(made.site, limited, {}, query))
        assert isinstance(found, Redirect)
        assert "readers" in found.path and "Hidden" not in found.path

    run(console, test)
