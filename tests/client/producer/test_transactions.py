"""The transaction producer, with a real broker."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.errors import BrokerError, ClientError
from mq.client.producer.producer import Producer, SendStatus
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.protocol.bodies import TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.message import Message
from tests import answered
from tests.client.brokers import Served, served
from tests.daemons.broker.running import now

COMMIT, ROLLBACK = TransactionState.COMMIT, TransactionState.ROLLBACK
UNKNOWN = TransactionState.UNKNOWN
OFTEN = {"transactionCheckInterval": "50", "transactionTimeOut": "50"}


def ending(state: TransactionState) -> Callable[[Message], Awaitable[TransactionState]]:
    async def execute(message: Message) -> TransactionState:
        return state

    return execute


class Answers:
    """Answers checks with the given states in turn, and repeats the last one."""

    def __init__(self, *states: TransactionState | Exception) -> None:
        self._states = list(states)
        self.asked: list[TransactionCheck] = []
        self.at_the_end = asyncio.Event()

    async def __call__(self, question: TransactionCheck) -> TransactionState:
        self.asked.append(question)
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if len(self._states) == 1 and len(self.asked) > 1:
            self.at_the_end.set()
        if isinstance(state, Exception):
            raise state
        return state


async def consumed(at: Served, topic: str = "T") -> list[bytes]:
    async with Session(at.namesrv) as session:
        puller = PullConsumer(session)
        return [
            message.body
            for queue in await puller.queues(topic)
            async for message in puller.read(queue)
        ]


def test_committed_messages_are_visible_and_rolled_back_ones_are_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path) as at:
            async with TransactionProducer(at.namesrv, "g", Answers(UNKNOWN)) as producer:
                seen_meanwhile: list[list[bytes]] = []

                async def execute(message: Message) -> TransactionState:
                    seen_meanwhile.append(await consumed(at))
                    assert message.transaction_id == message.system["UNIQ_KEY"]
                    return COMMIT

                message = Message("T", b"yes", "tag", ["k"], {"own": "x"})
                done = await producer.send_in_transaction(message, execute)
                assert seen_meanwhile == [[]]
                assert (done.state, done.confirmed) == (COMMIT, True)
                assert done.sent.status is SendStatus.SEND_OK
                assert done.transaction_id == done.sent.message_id
                done = await producer.send_in_transaction(Message("T", b"no"), ending(ROLLBACK))
                assert (done.state, done.confirmed) == (ROLLBACK, True)
                assert await consumed(at) == [b"yes"]
                # The given message is unchanged: it can still be sent as a plain one.
                await producer.send(message)
                assert await consumed(at) == [b"yes", b"yes"]

    asyncio.run(scenario())


def test_an_unknown_state_is_checked_until_it_is_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path, **OFTEN) as at:
            answers = Answers(UNKNOWN, RuntimeError("database down"), COMMIT)
            async with TransactionProducer(at.namesrv, "g", answers) as producer:
                message = Message("T", b"large" * 2000, "tag", ["k"], {"own": "x"}, flag=7)
                done = await producer.send_in_transaction(message, ending(UNKNOWN))
                assert (done.state, done.confirmed) == (UNKNOWN, False)
                await asyncio.wait_for(answers.at_the_end.wait(), 30)
                assert await until_consumed(at, 1) == [b"large" * 2000]
                first, second, *_ = answers.asked
                assert (first.transaction_id, first.times) == (done.transaction_id, 1)
                assert second.times == 2
                assert first.message.body == b"large" * 2000
                assert (first.message.topic, first.message.keys) == ("T", ("k",))
                assert first.message.properties["own"] == "x"
                assert first.address == at.broker.address

    asyncio.run(scenario())


@pytest.mark.parametrize("creates", ["true", "false"])
def test_a_producer_that_has_sent_nothing_is_checked_for_messages_of_another(
    tmp_path: Path, creates: str
) -> None:
    async def scenario() -> None:
        settings = OFTEN | {"autoCreateTopicEnable": creates}
        async with served(tmp_path, **settings) as at:
            async with Session(at.namesrv) as session:
                config = TopicConfig(topic_name="Left")
                await Admin(session).create_topic(at.broker.address, config)
            async with TransactionProducer(at.namesrv, "g", Answers(UNKNOWN)) as gone:
                await gone.send_in_transaction(Message("Left", b"left"), ending(UNKNOWN))
            async with TransactionProducer(at.namesrv, "g", Answers(COMMIT)):
                assert await until_consumed(at, 1, "Left") == [b"left"]

    asyncio.run(scenario())


async def until_consumed(at: Served, count: int, topic: str = "T") -> list[bytes]:
    async with asyncio.timeout(30):
        while len(bodies := await consumed(at, topic)) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return bodies


def test_an_error_of_the_transaction_is_raised_and_its_state_is_checked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async def fail(message: Message) -> TransactionState:
            raise LookupError("no such order")

        async with served(tmp_path, **OFTEN) as at:
            answers = Answers(COMMIT)
            async with TransactionProducer(at.namesrv, "g", answers) as producer:
                with pytest.raises(LookupError, match="no such order"):
                    await producer.send_in_transaction(Message("T", b"x"), fail)
                assert await until_consumed(at, 1) == [b"x"]

    asyncio.run(scenario())


def test_another_member_answers_for_a_producer_that_has_died(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path, **OFTEN) as at:
            async with TransactionProducer(at.namesrv, "g", Answers(UNKNOWN)) as dead:
                await dead.send_in_transaction(Message("T", b"x"), ending(UNKNOWN))
            async with TransactionProducer(at.namesrv, "g", Answers(COMMIT)) as heir:
                await heir.prepare("T")
                assert await until_consumed(at, 1) == [b"x"]

    asyncio.run(scenario())


def test_checks_go_to_the_producer_of_their_group(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path, **OFTEN) as at, Session(at.namesrv) as session:
            one, other = Answers(ROLLBACK), Answers(COMMIT)
            async with (
                TransactionProducer(session, "one", one) as first,
                TransactionProducer(session, "other", other) as second,
            ):
                with pytest.raises(ClientError, match="already"):
                    await TransactionProducer(session, "one", one).open()
                await first.send_in_transaction(Message("T", b"1"), ending(UNKNOWN))
                await second.send_in_transaction(Message("T", b"2"), ending(UNKNOWN))
                assert await until_consumed(at, 1) == [b"2"]
            assert {question.message.body for question in other.asked} == {b"2"}

    asyncio.run(scenario())


def test_a_producer_reopened_while_it_closes_gets_checks_only_when_it_is_open(
    tmp_path: Path,
) -> None:
    """A second `close` at the same time must not end the checks of the reopened producer, and a
    cancelled `open` must not keep the group.
    """

    async def scenario() -> None:
        async with served(tmp_path, **OFTEN) as at, Session(at.namesrv) as session:
            first = TransactionProducer(session, "one", Answers(COMMIT))
            await first.open()
            # so that closing unregisters the producer at its broker
            await first.send(Message("T", b"0"))
            await asyncio.gather(first.close(), first.open(), first.close())
            await first.send_in_transaction(Message("T", b"1"), ending(UNKNOWN))
            assert sorted(await until_consumed(at, 2)) == [b"0", b"1"]
            closing, opening = map(asyncio.create_task, (first.close(), first.open()))
            await asyncio.sleep(0)
            opening.cancel()
            await closing
            async with TransactionProducer(session, "one", Answers(COMMIT)):
                pass

    asyncio.run(scenario())


def test_a_transaction_at_an_unreachable_broker_is_not_confirmed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with served(tmp_path) as at:
            async with TransactionProducer(at.namesrv, "g", Answers(UNKNOWN)) as producer:

                async def execute(message: Message) -> TransactionState:
                    await at.broker.listener.close()
                    return COMMIT

                with caplog.at_level(logging.WARNING):
                    done = await producer.send_in_transaction(Message("T", b"x"), execute)
                assert (done.state, done.confirmed) == (COMMIT, False)
                assert "which will ask" in caplog.text

    asyncio.run(scenario())


@pytest.mark.parametrize("delay", [{"delay_level": 3}, {"deliver_at": 1}])
def test_a_delayed_message_in_a_transaction_is_refused(delay: dict[str, int]) -> None:
    async def scenario() -> None:
        async with TransactionProducer("127.0.0.1:1", "g", Answers(UNKNOWN)) as producer:
            message = Message("T", b"x", **delay)  # type: ignore[arg-type]
            with pytest.raises(ClientError, match="delayed"):
                await producer.send_in_transaction(message, ending(COMMIT))

    asyncio.run(scenario())


# timed messages -----------------------------------------------------------------------------------


@answered.by_broker(RequestCode.RECALL_MESSAGE)
def test_a_message_can_be_recalled_by_the_handle_of_its_send(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path, recallMessageEnable="true") as at:
            async with Producer(at.namesrv, "g") as producer:
                assert (await producer.send(Message("T", b"plain"))).recall_handle is None
                due = now() + 2500
                sent = [
                    await producer.send(Message("T", body, deliver_at=due)) for body in (b"1", b"2")
                ]
                handle = sent[0].recall_handle
                assert handle is not None
                assert await producer.recall(handle) == sent[0].message_id
                assert await until_consumed(at, 2) == [b"plain", b"2"]
                assert now() >= due
                with pytest.raises(BrokerError) as late:
                    await producer.recall(handle)
                assert late.value.code == ResponseCode.ILLEGAL_OPERATION
                assert late.value.remark == "recall failed, timestamp invalid"
                with pytest.raises(ValueError, match="recall handle is invalid"):
                    await producer.recall("djIgYQ==")

    asyncio.run(scenario())
