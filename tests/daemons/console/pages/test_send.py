from mq.protocol.message import Message
from tests.client.scenarios import eventually
from tests.daemons.console.pages.filled import (
    HOSTILE,
    TOPIC,
    Filled,
    assert_harmless,
    hostile_messages,
    run,
)
from tests.daemons.console.site import Consoles


def test_a_message_is_sent_with_all_that_was_written(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        fields = {
            "tag": "new", "keys": "k1 k2", "properties": "colour=red\namount=7", "body": "grüße",
            "queue": "broker-a:1",
        }  # fmt: skip
        preview = await made.site.submit(await made.site.get(f"/send/{TOPIC}"), fields)
        assert "Send a message of 7 bytes to topic Orders." in preview.soup.get_text()
        assert ["colour", "red"] in preview.tables()[0]
        assert (await made.site.get(f"/messages/{TOPIC}/broker-a/1/0")).status == 404
        done = await made.site.submit(preview)
        ((_, state, text),) = done.tables()[0]
        assert state == "done" and text.startswith("SEND_OK: broker-a:1, offset 0")
        link = done.soup.find("a", href=f"/c/test/messages/{TOPIC}/broker-a/1/0")
        assert link is not None
        sent = (await made.site.api(f"/messages/{TOPIC}/broker-a/1/0")).json
        assert (sent["message"]["tags"], sent["message"]["keys"]) == ("new", "k1 k2")
        assert sent["body"]["text"] == "grüße"
        assert {"name": "colour", "value": "red", "system": False} in sent["properties"]
        (entry,) = [line for line in made.site.audit if line.get("state") == "begins"]
        assert entry["parameters"]["body"]["bytes"] == 7 and "grüße" not in str(entry["parameters"])

    run(console, test)


def test_hex_ordering_and_delay(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        fields = {"body": "00 ff 10", "form": "hex", "ordering_key": "o-1"}
        await made.site.change(f"/send/{TOPIC}", fields)
        await made.site.change(f"/send/{TOPIC}", {**fields, "body": "01"})
        listed = (await made.site.api(f"/messages/{TOPIC}")).json["messages"]
        assert len({row["queueId"] for row in listed}) == 1 and len(listed) == 2
        later = await made.site.change(f"/send/{TOPIC}", {"body": "later", "delay_level": "18"})
        assert "to be delivered later" in later.text

        async def waits() -> bool:
            rows = (await made.site.api("/waiting")).json["delayed"]
            return [(row["level"], row["waiting"]) for row in rows] == [(18, 1)]

        await eventually(waits)

    run(console, test)


def test_what_cannot_be_sent_says_why_at_its_form(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        for fields, line in (
            ({"body": "0g", "form": "hex"}, "not in hex"),
            ({"properties": "novalue"}, "not name=value"),
            ({"properties": "KEYS=x"}, "used by RocketMQ"),
            ({"delay_level": "1", "deliver_at": "-1m"}, "cannot go together"),
            ({"queue": "nobody:0"}, "no queue nobody:0"),
        ):
            page = await made.site.submit(await made.site.get(f"/send/{TOPIC}"), fields)
            assert page.status in (400, 404) and line in page.soup.get_text(), line
        for topic in ("NoSuchTopic", "SCHEDULE_TOPIC_XXXX"):
            page = await made.site.submit(await made.site.get(f"/send/{topic}"), {"body": "x"})
            assert page.status in (400, 404)
        names = (await made.admin.topic_list()).topic_list
        assert "NoSuchTopic" not in names

    run(console, test)


def test_one_like_another_begins_with_what_that_has(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(Message(TOPIC, b"body", "tag", ["a", "b"], {"p": "1"}))
        await made.send(Message(TOPIC, b"\xff\x00"))
        await made.site.change(f"/send/{TOPIC}?like=broker-a:0:0", {"queue": "broker-a:1"})
        copy = (await made.site.api(f"/messages/{TOPIC}/broker-a/1/0")).json
        first = (await made.site.api(f"/messages/{TOPIC}/broker-a/0/0")).json
        for name in ("tags", "keys", "body"):
            assert copy["message"][name] == first["message"][name]
        assert {"name": "p", "value": "1", "system": False} in copy["properties"]
        assert copy["message"]["messageId"] != first["message"]["messageId"]
        form = await made.site.get(f"/send/{TOPIC}?like=broker-a:0:1")
        assert "ff00" in form.soup.get_text()
        assert (await made.site.get(f"/send/{TOPIC}?like=nonsense")).status == 400

    run(console, test)


def test_forms_and_previews_of_hostile_messages_are_text(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.send(*hostile_messages())
        for offset, text in enumerate(HOSTILE):
            form = await made.site.get(f"/send/{TOPIC}?like=broker-a:0:{offset}")
            assert form.status == 200
            assert [tag.name for tag in form.soup.main.find_all(["img", "script"])] == []  # type: ignore[union-attr]
            preview = await made.site.submit(
                await made.site.get(f"/send/{TOPIC}"),
                {"body": text, "tag": text, "properties": f"user={text}", "keys": text},
            )
            assert_harmless(preview.soup)

    run(console, test)


def test_the_entry_asks_for_a_topic(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        page = await made.site.get("/send")
        assert page.title == "Send a message"
        found = await made.site.get(f"/send?topic={TOPIC}")
        assert found.header("location") == f"/c/test/send/{TOPIC}"

    run(console, test)
