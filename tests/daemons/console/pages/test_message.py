import asyncio
import zlib

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.errors import MQError
from mq.client.operations.errors import NotFound
from mq.daemons.console.guarded_session import Forbidden
from mq.daemons.console.pages import message, messages
from mq.daemons.console.route import Page, Redirect
from mq.daemons.console.security.roles import User
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.message import Message, StoredMessage
from mq.protocol.message_id import decode_offset_id
from tests.client.compressed import said_to_be_compressed
from tests.client.scenarios import eventually
from tests.daemons.console.pages.filled import (
    HOSTILE,
    TOPIC,
    Filled,
    assert_harmless,
    call_of,
    hostile_messages,
    no_query,
    run,
)
from tests.daemons.console.site import Consoles

FIRST = f"/messages/{TOPIC}/broker-a/0/0"


def test_a_message_is_shown_whole(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        (sent,) = await made.send(
            Message(TOPIC, b'{"order":12345678901234567890}', "new", ["k"], {"colour": "red"}),
        )
        await made.send(Message(TOPIC, b"\xff\x00"))
        page = await made.site.get(FIRST)
        text = page.soup.get_text()
        assert page.title == f"Message {sent.message_id}"
        assert '"order": 12345678901234567890' in text and sent.offset_message_id in text
        assert [["colour", "red"]] in page.tables()
        assert "mq queryMsgByOffset -t Orders -b broker-a -i 0 -o 0" in text
        raw = await made.site.get(f"{FIRST}?as=text")
        assert raw.soup.pre is not None
        assert raw.soup.pre.get_text() == '{"order":12345678901234567890}'
        second = await made.site.get(str(page.soup.find("a", rel="next")["href"]))  # type: ignore[index]
        assert "ff 00" in second.soup.pre.get_text()  # type: ignore[union-attr]
        assert second.soup.find("a", rel="next") is None
        answer = (await made.site.api(FIRST)).json
        assert answer["message"]["tags"] == "new" and answer["body"]["form"] == "json"
        views = [(line["what"], line["target"]) for line in made.site.audit]
        assert ("body", "Orders:broker-a:0@0") in views

    run(console, test)


def test_what_is_not_there_says_what_is(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(Message(TOPIC, b"x"))
        for path, status, line in (
            (f"/messages/{TOPIC}/broker-a/0/7", 404, "holds 0 to 0"),
            (f"/messages/{TOPIC}/broker-a/1/0", 404, "is empty"),
            (f"/messages/{TOPIC}/nobody/0/0", 404, "nobody"),
            (f"/messages/{TOPIC}/broker-a/x/0", 400, "not a number"),
            (f"/messages/{TOPIC}/broker-a/0/-1", 400, "not a number"),
        ):
            page = await made.site.get(path)
            assert page.status == status and line in page.soup.get_text(), path

    run(console, test)


def test_large_bodies_are_cut_and_downloaded_whole(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        body = b"0123456789abcdef" * (4 * 1024 * 1024 // 16)
        await made.send(Message(TOPIC, body))
        page = await made.site.get(FIRST)
        assert "Truncated: the first 64.0\u00a0KB are shown." in page.soup.get_text()
        assert "stored zlib" in page.soup.get_text() and len(page.body) < 200_000
        hexed = await made.site.get(f"{FIRST}?as=hex")
        assert "Truncated" in hexed.soup.get_text() and len(hexed.body) < 200_000
        whole = await made.site.get(f"{FIRST}/body")
        assert whole.body == body
        assert whole.header("content-type") == "application/octet-stream"
        assert whole.header("content-disposition").startswith("attachment; filename=")

    run(console, test)


def test_a_bomb_is_shown_as_it_is_stored_and_not_sent_again(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        packed = zlib.compress(bytes(100_000_000))
        command = said_to_be_compressed(TOPIC, packed, queues=4)
        await made.session.call(made.site.pair.broker.address, command)
        page = await made.site.get(FIRST)
        assert "larger than 67108864 bytes when decompressed" in page.soup.get_text()
        assert (await made.site.get(f"{FIRST}/body")).body == packed
        found = await made.site.get(f"/messages/{TOPIC}?text=x")
        assert found.status == 200 and "Searched 1 of 1" in found.soup.get_text()
        refused = await made.site.submit(await made.site.get(f"{FIRST}/resend"))
        assert "is not sent again: the zlib body is larger" in refused.soup.get_text()
        assert (await made.site.get(f"/messages/{TOPIC}/broker-a/0/1")).status == 404

    run(console, test)


def test_who_consumed_it_is_said_by_group(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(Message(TOPIC, b"x"))
        empty = await made.site.get(f"{FIRST}?view=consumers")
        assert "knows no consumer group of it" in empty.text
        consumed = asyncio.Event()

        async def listen(_: StoredMessage) -> None:
            consumed.set()

        consumer = Consumer(
            made.site.pair.name_server_address,
            "readers",
            {TOPIC: "*"},
            listener=listen,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        async with consumer:
            await consumed.wait()

            async def is_said() -> bool:
                await consumer.commit()  # it does so only every five seconds
                answer = (await made.site.api(f"{FIRST}?view=consumers")).json
                return [item["type"] for item in answer["consumers"] or ()] == ["CONSUMED"]

            await eventually(is_said)
        page = await made.site.get(f"{FIRST}?view=consumers")
        assert page.tables()[0][0][0] == "readers"

    run(console, test)


def test_a_message_is_sent_again_after_a_preview(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        (sent,) = await made.send(Message(TOPIC, b"again", "tag", ["k"], {"a": "b"}))
        preview = await made.site.submit(await made.site.get(f"{FIRST}/resend"))
        assert "SEND_MESSAGE" in preview.text
        assert (await made.site.get(f"/messages/{TOPIC}/broker-a/0/1")).status == 404
        done = await made.site.submit(preview)
        ((target, state, text),) = done.tables()[0]
        assert (target, state) == (sent.message_id, "done") and "offset 1" in text
        copy = (await made.site.api(f"/messages/{TOPIC}/broker-a/0/1")).json
        assert copy["message"]["messageId"] == sent.message_id
        assert copy["body"]["text"] == "again" and copy["message"]["keys"] == "k"

    run(console, test)


def test_a_consumer_consumes_a_message_directly(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        seen: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen(taken: StoredMessage) -> None:
            seen.put_nowait(taken.body)

        (sent,) = await made.send(Message(TOPIC, b"directly"))
        assert decode_offset_id(sent.offset_message_id).port
        consumer = Consumer(
            made.site.pair.name_server_address, "readers", {TOPIC: "*"}, listener=listen
        )
        async with consumer:
            client = consumer.session.client_id

            async def online() -> bool:
                try:
                    await Admin(made.session).group_connection("readers")
                except MQError:
                    return False
                return True

            await eventually(online)
            done = await made.site.change(
                f"{FIRST}/consume", {"group": "readers", "client_id": client}
            )
            assert "CR_SUCCESS" in done.text, done.text
            async with asyncio.timeout(30):
                while await seen.get() != b"directly":
                    pass
            failed = await made.site.change(
                f"{FIRST}/consume", {"group": "readers", "client_id": "nobody"}
            )
            assert "failed" in failed.text

    run(console, test)


def test_hostile_messages_are_text_in_every_form(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(*hostile_messages())
        for offset in range(len(HOSTILE) + 1):
            for form in ("text", "json", "hex"):
                page = await made.site.get(f"/messages/{TOPIC}/broker-a/0/{offset}?as={form}")
                assert page.status == 200
                assert_harmless(page.soup)
            form_page = await made.site.get(f"/messages/{TOPIC}/broker-a/0/{offset}/resend")
            assert_harmless(form_page.soup)
        page = await made.site.get(f"/messages/{TOPIC}/broker-a/0/6")
        assert HOSTILE[6] in page.soup.get_text()

    run(console, test)


def test_who_may_not_see_bodies_sees_none(console: Consoles) -> None:
    """A viewer: no body, no property of the sender, no search in either, no file."""

    async def test(made: Filled) -> None:
        await made.send(Message(TOPIC, b"SECRET", "tag", ["k"], {"p": "HIDDEN"}))
        of_topic = {"topic": TOPIC}
        place = {**of_topic, "broker": "broker-a", "queue": "0", "offset": "0"}
        viewer = User("viewer", {"*": "viewer"})
        shown = await message.show(call_of(made.site, viewer, place, {"view": "body", "as": None}))
        assert shown.data.body is None and shown.data.message.body is None
        assert [item.name for item in shown.data.properties if not item.system] == []
        listed = await messages.search(call_of(made.site, viewer, of_topic, no_query()))
        assert isinstance(listed, Page)
        (row,) = listed.data.messages
        assert (row.tags, row.keys, row.body, row.size) == ("tag", "k", None, 6)
        for name, value in (("text", "SECRET"), ("property", "p=HIDDEN"), ("sql", "p = 'HIDDEN'")):
            with pytest.raises(Forbidden):
                await messages.search(
                    call_of(made.site, viewer, of_topic, {**no_query(), name: value})
                )
        reader = User("reader", {"*": "reader"}, topics=("Other*",))
        with pytest.raises(NotFound):
            sent = made.sent[0].offset_message_id
            await messages.choose(call_of(made.site, reader, {}, {"topic": None, "id": sent}))

    run(console, test)


def test_who_may_see_some_topics_sees_only_these(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.topic("Other")
        (mine,) = await made.send(Message(TOPIC, b"x"))
        (other,) = await made.send(Message("Other", b"y"))
        user = User("limited", {"*": "operator"}, topics=(TOPIC,), groups=("billing",))
        of_topic = {"topic": TOPIC}

        async def by_id(word: str) -> object:
            query = {**no_query(), "id": word}
            return await messages.search(call_of(made.site, user, of_topic, query))

        found = await by_id(mine.offset_message_id)
        assert isinstance(found, Redirect) and found.path == FIRST
        for word in (other.offset_message_id, other.message_id):
            with pytest.raises(NotFound):
                assert (await by_id(word)).data.messages == ()  # type: ignore[attr-defined]
                raise NotFound("as it is to be")
            with pytest.raises(NotFound):
                query = {"topic": None, "id": word}
                await messages.choose(call_of(made.site, user, {}, query))
        listed = await messages.search(call_of(made.site, user, of_topic, no_query()))
        assert isinstance(listed, Page) and len(listed.data.messages) == 1
        for group in ("billing", "hidden"):
            consumer = Consumer(made.site.pair.name_server_address, group, {TOPIC: "*"})
            async with consumer:
                await consumer.commit()
        place = {**of_topic, "broker": "broker-a", "queue": "0", "offset": "0"}
        shown = await message.show(
            call_of(made.site, user, place, {"view": "consumers", "as": None})
        )
        groups = {item.group for item in shown.data.consumers or ()}
        assert groups <= {"billing"} and shown.data.consumers_problem == ""

    run(console, test)


def test_no_other_message_is_sent_than_the_one_that_was_previewed(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(Message(TOPIC, b"looked at"))
        site, address = made.site, made.site.pair.broker.address
        previews = [
            await site.submit(await site.get(f"{FIRST}/resend")),
            await site.submit(await site.get(f"{FIRST}/resend")),
        ]
        done = await site.submit(previews[0])
        assert done.tables()[0][0][1] == "done"
        await made.admin.delete_topic_in_broker(address, TOPIC)
        await made.topic()

        async def sent() -> bool:
            try:
                await made.send(Message(TOPIC, b"another one"))
            except MQError:
                return False
            return True

        await eventually(sent)
        assert "another one" in (await site.get(FIRST)).text  # at the same position
        done = await site.submit(previews[1])
        ((row,),) = done.tables()
        assert row[1] == "failed" and "was not in the preview" in row[2]
        found = (await site.api(f"/messages/{TOPIC}")).json["messages"]
        assert [one["body"] for one in found] == ["another one"]

    run(console, test)
