from mq.client.machine import clock
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.protocol.message import Message
from tests.client.scenarios import eventually
from tests.daemons.console.pages.filled import HOSTILE, TOPIC, Filled, assert_harmless, run
from tests.daemons.console.site import Consoles


def test_where_nothing_waits_it_says_so(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        page = await made.site.get("/waiting")
        assert page.status == 200
        assert "has had a delayed message" in page.text and "a timed message" in page.text
        page = await made.site.get("/transactions")
        assert page.tables() == [[["broker-a", "0", "none is open", "0"]]]

    run(console, test)


def test_what_waits_is_counted_with_when_it_is_due(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        await made.producer.send(Message(TOPIC, b"x", delay_level=18))
        due = clock.milliseconds() + 3_600_000
        await made.producer.send(Message(TOPIC, b"x", deliver_at=due))

        async def waits() -> bool:
            answer = (await made.site.api("/waiting")).json
            timed = [item["waiting"] for item in answer["timed"]]
            return bool([item["waiting"] for item in answer["delayed"]] == timed == [1])

        await eventually(waits)
        delayed, timed = (await made.site.get("/waiting")).tables()
        assert delayed[0][:4] == ["broker-a", "18", "2\u00a0h", "1"] and delayed[0][5] == TOPIC
        assert timed[0][:2] == ["broker-a", "1"] and timed[0][3] == TOPIC

    run(console, test)


async def unknown(question: TransactionCheck) -> TransactionState:
    return TransactionState.UNKNOWN


def test_open_transactions_are_listed_and_hostile_keys_are_text(console: Consoles) -> None:
    async def test(made: Filled) -> None:
        async def execute(message: Message) -> TransactionState:
            return TransactionState.UNKNOWN

        async with TransactionProducer(made.session, "payments", unknown) as producer:
            for text in HOSTILE:
                message = Message(TOPIC, b"x")
                message.system["KEYS"] = text
                await producer.send_in_transaction(message, execute)

        async def listed() -> bool:
            answer = (await made.site.api("/transactions")).json
            return bool(answer["shown"] == len(HOSTILE))

        await eventually(listed)
        page = await made.site.get("/transactions")
        brokers, rows = page.tables()
        assert brokers[0][:2] == ["broker-a", str(len(HOSTILE))]
        assert {(row[1], row[2], row[3]) for row in rows} == {(TOPIC, "payments", "0")}
        assert_harmless(page.soup)

    run(console, test)
