from urllib.parse import quote

import pytest

from mq.client.operations.messages.traces import Step
from mq.client.producer.producer import Producer
from mq.daemons.console.guarded_session import Forbidden
from mq.daemons.console.pages import traces
from mq.daemons.console.pages.traces import WIDTH, bars
from mq.daemons.console.security.roles import LOCAL, User
from mq.protocol.message import Message
from tests.client.scenarios import eventually
from tests.daemons.console.pages.filled import (
    HOSTILE,
    TOPIC,
    Filled,
    assert_harmless,
    call_of,
    run,
)
from tests.daemons.console.site import Consoles


def test_a_trace_is_a_table_and_a_picture(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        name_server = made.site.pair.name_server_address
        async with Producer(name_server, "senders", trace=True) as producer:
            sent = await producer.send(Message(TOPIC, b"x", keys=["order-7"]))

        async def found() -> bool:
            answer = (await made.site.api(f"/traces?id={sent.message_id}")).json
            return bool(answer["state"] == "found")

        await eventually(found)
        for word in (sent.message_id, "order-7"):
            page = await made.site.get(f"/traces?id={word}")
            ((row,),) = page.tables()
            assert row[1:3] == ["sent", "senders"] and row[5:7] == ["success", TOPIC]
            picture = page.soup.find("svg")
            assert picture is not None and len(picture.find_all("rect")) == 1
            assert_harmless(page.soup)
        assert (
            f"mq queryMsgTraceById -i {sent.message_id}"
            in (await made.site.get(f"/traces?id={sent.message_id}")).soup.get_text()
        )

    run(console, test)


def test_why_there_is_none_is_said(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        assert "Enter the id" in (await made.site.get("/traces")).text
        page = await made.site.get("/traces?id=none")
        assert "No broker has the topic RMQ_SYS_TRACE_TOPIC" in page.soup.get_text()
        page = await made.site.get(f"/traces?id=none&topic={TOPIC}")
        assert "No trace of it" in page.text

    run(console, test)


def test_hostile_keys_and_words_are_text(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        async with Producer(made.site.pair.name_server_address, "senders", trace=True) as producer:
            message = Message(TOPIC, b"x")
            message.system["KEYS"] = f"{HOSTILE[0]} k"
            message.system["TAGS"] = HOSTILE[1]
            sent = await producer.send(message)

        async def found() -> bool:
            answer = (await made.site.api(f"/traces?id={sent.message_id}")).json
            return bool(answer["state"] == "found")

        await eventually(found)
        assert_harmless((await made.site.get(f"/traces?id={sent.message_id}")).soup)
        for text in HOSTILE:
            assert_harmless((await made.site.get(f"/traces?id={quote(text, safe='')}")).soup)

    run(console, test)


def test_bars_are_on_one_scale_and_within_the_picture() -> None:
    steps = tuple(
        Step("consumed", "g", "h", begin, end, result)
        for begin, end, result in (
            (1000, 1000, "success"),
            (1500, 2000, "failed"),
            (0, 5, "success"),
        )
    )
    first, second = bars(steps)
    assert (first.left, first.width, first.kind) == (0, 3, "consumed")
    assert (second.left, second.width, second.kind) == (WIDTH // 2, WIDTH // 2, "failed")
    assert bars(steps[2:]) == ()
    (only,) = bars(steps[:1])
    assert only.left + only.width <= WIDTH


def test_no_topic_is_read_as_traces_by_who_may_not_see_its_messages(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        (sent,) = await made.send(Message(TOPIC, b"\xff", keys=["k"]))

        async def indexed() -> bool:
            return bool(await made.admin.find_by_key(TOPIC, "k"))

        await eventually(indexed)
        query = {"id": "k", "topic": TOPIC, "from": None, "to": None}
        page = await traces.show(call_of(made.site, LOCAL, {}, query))
        assert sent.message_id in page.data.failures[0]
        for user in (
            User("viewer", {"*": "viewer"}),
            User("limited", {"*": "operator"}, topics=("Else",)),
        ):
            with pytest.raises(Forbidden):
                await traces.show(call_of(made.site, user, {}, query))

    run(console, test)
