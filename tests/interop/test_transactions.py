"""Transactions, requests and replies between the Java clients and ours, with either broker."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from mq.client.producer.producer import Producer
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.stored import read
from tests.interop.tools import our_daemons

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

OFTEN = {"transactionCheckInterval": "1000", "transactionTimeOut": "500"}
_numbers = itertools.count()


@pytest.fixture(
    scope="module",
    params=["ours", "java-4.9.7", pytest.param("java-5.5.0", marks=pytest.mark.long)],
)
def cluster_kind(request: pytest.FixtureRequest) -> str:
    require_java()
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def namesrv(cluster_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a cluster whose broker checks transactions every second."""
    tmp = tmp_path_factory.mktemp("cluster")
    if cluster_kind == "ours":
        with our_daemons(tmp) as (address, broker):
            asyncio.run(set_up(address, broker))
            yield address
        return
    release = cluster_kind.removeprefix("java-")
    with (
        peers.JavaNameServer(release, tmp) as server,
        peers.JavaBroker(release, tmp, server.address, OFTEN),
    ):
        yield server.address


async def set_up(address: str, broker: str) -> None:
    async with Session(address) as session:
        text = "".join(f"{name}={value}\n" for name, value in OFTEN.items())
        update = Command(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())
        await session.call(broker, update)


@pytest.fixture(scope="module", params=peers.CLIENT_RELEASES)
def java(
    request: pytest.FixtureRequest, namesrv: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.JavaProgram]:
    """A Java client whose producers are in their own group."""
    tmp = tmp_path_factory.mktemp("client")
    group = f"java-producers-{next(_numbers)}"
    with peers.JavaProgram(request.param, "Converse.java", namesrv, group, tmp=tmp) as program:
        yield program


def new_topic() -> str:
    return f"conversation-{next(_numbers)}"


def ask(java: peers.JavaProgram, *words: str) -> list[list[str]]:
    """Run a command; returns the words of its output lines."""
    begin = len(java.lines)
    done = sum(line == "DONE" for line in java.lines)
    java.write_line("\t".join(words))
    java.wait_for_line("DONE", 60, done + 1)
    return [line.split("\t") for line in java.lines[begin:]]


def test_a_java_producer_commits_rolls_back_and_is_checked(
    namesrv: str, java: peers.JavaProgram, cluster_kind: str
) -> None:
    if cluster_kind != "ours":
        pytest.skip("Java with Java")  # 5.5 checks again before it has stored the outcome
    topic = new_topic()
    for body, state, checked in (
        ("yes", "COMMIT_MESSAGE", "ROLLBACK_MESSAGE"),
        ("no", "ROLLBACK_MESSAGE", "COMMIT_MESSAGE"),
        ("later-yes", "UNKNOW", "COMMIT_MESSAGE"),
        ("later-no", "UNKNOW", "ROLLBACK_MESSAGE"),
    ):
        lines = ask(java, "transaction", topic, f"{topic}-{body}", state, checked)
        sent = next(words for words in lines if words[0] == "SENT")
        assert sent[1] == state

    async def scenario() -> None:
        async with Session(namesrv) as session:
            found = await read(session, topic, 2)
            # The next check is due only after this one is answered and its message visible.
            java.wait_for_line(f"{topic}-later-no", 60)
            await asyncio.sleep(1.5)  # a further round, after which there must be no more messages
            found = await read(session, topic, 2)
            by_body = {message.body.decode(): message for message in found}
            assert set(by_body) == {f"{topic}-yes", f"{topic}-later-yes"}
            assert len(found) == 2
            for message in found:
                assert (message.tags, message.properties["own"]) == ("tag", "x")
            assert by_body[f"{topic}-yes"].flag == 7

    asyncio.run(scenario())
    checks = [line.split("\t") for line in java.lines if line.startswith("CHECK") and topic in line]
    assert {words[5] for words in checks} == {f"{topic}-later-yes", f"{topic}-later-no"}
    assert all(words[2] == topic for words in checks)
    first = next(words for words in checks if words[5].endswith("later-yes"))
    assert int(first[3]) >= 1


def test_our_producer_commits_rolls_back_and_is_checked(namesrv: str) -> None:
    topic, group = new_topic(), f"our-producers-{next(_numbers)}"
    asked: list[TransactionCheck] = []

    async def check(question: TransactionCheck) -> TransactionState:
        asked.append(question)
        late = question.message.body == b"later-yes"
        return TransactionState.COMMIT if late else TransactionState.ROLLBACK

    async def scenario() -> None:
        async with (
            Session(namesrv) as session,
            TransactionProducer(session, group, check, timeout=10) as producer,
        ):
            for body, state in (
                (b"yes", TransactionState.COMMIT),
                (b"no", TransactionState.ROLLBACK),
                (b"later-yes", TransactionState.UNKNOWN),
                (b"later-no", TransactionState.UNKNOWN),
            ):

                async def execute(
                    message: Message, state: TransactionState = state
                ) -> TransactionState:
                    return state

                message = Message(topic, body, "tag", ["k"], {"own": "x"})
                done = await producer.send_in_transaction(message, execute)
                assert done.confirmed == (state is not TransactionState.UNKNOWN)
            found = await read(session, topic, 2)
            async with asyncio.timeout(60):
                # 5.5 also checks others: it writes ends only every three seconds.
                while not {q.message.body for q in asked} >= {b"later-yes", b"later-no"}:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            assert {message.body for message in found} == {b"later-yes", b"yes"}
            assert all(message.properties["own"] == "x" for message in found)
            first = next(q for q in asked if q.message.body == b"later-yes")
            later = next(message for message in found if message.body == b"later-yes")
            assert (first.times, first.message.topic) == (1, topic)
            assert first.transaction_id == later.message_id

    asyncio.run(scenario())


def test_our_producer_is_checked_although_it_has_sent_nothing(namesrv: str) -> None:
    topic, group = new_topic(), f"our-producers-{next(_numbers)}"

    async def unknown(question: TransactionCheck) -> TransactionState:
        return TransactionState.UNKNOWN

    async def leave(message: Message) -> TransactionState:
        return TransactionState.UNKNOWN

    async def commit(question: TransactionCheck) -> TransactionState:
        return TransactionState.COMMIT

    async def scenario() -> None:
        async with TransactionProducer(namesrv, group, unknown, timeout=10) as gone:
            await gone.send_in_transaction(Message(topic, b"left"), leave)
        async with (
            TransactionProducer(namesrv, group, commit, timeout=10),
            Session(namesrv) as session,
        ):
            (found,) = await read(session, topic, 1)
            assert found.body == b"left"

    asyncio.run(scenario())


def test_we_reply_to_a_request_of_java(namesrv: str, java: peers.JavaProgram) -> None:
    topic = new_topic()

    async def scenario() -> None:
        async with Session(namesrv) as session, Producer(session, "our-repliers") as replier:
            asking = asyncio.create_task(
                asyncio.to_thread(ask, java, "request", topic, "ping", "60000")
            )
            (request,) = await read(session, topic, 1)
            body = b"re: " + request.body * 2000
            await replier.reply(request, body, properties={"own": "x"}, timeout=10)
            assert ["REPLY", body.decode(), "x"] in await asking

    asyncio.run(scenario())


def test_java_replies_to_our_request(namesrv: str, java: peers.JavaProgram) -> None:
    topic = new_topic()

    async def scenario() -> None:
        async with Producer(namesrv, "our-askers", timeout=10) as asker:
            await asker.send(Message(topic, b"first"))
            async with Session(namesrv) as session:
                await read(session, topic, 1)
            await asyncio.to_thread(ask, java, "serve", f"servers-{topic}", topic)
            reply = await asker.request(Message(topic, b"ping"), 60)
            assert reply.body == b"re: ping"
            assert "ARRIVE_TIME" in reply.properties

    asyncio.run(scenario())
