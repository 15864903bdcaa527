import pytest

from mq.client.operations.messages import broker_queues, transactions
from mq.client.operations.messages.transactions import OpenTransactions, open_transactions
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import TRANSACTION_HALF_TOPIC
from tests.client.clusters import TOPIC, Cluster, cluster
from tests.client.scenarios import eventually, opened

UNKNOWN, COMMIT = TransactionState.UNKNOWN, TransactionState.COMMIT
ROLLBACK = TransactionState.ROLLBACK


async def unknown(question: TransactionCheck) -> TransactionState:
    return UNKNOWN


async def look(made: Cluster) -> OpenTransactions:
    return await open_transactions(made.admin, "broker-a", made.pair.broker.address)


async def send(made: Cluster, *states: TransactionState) -> None:
    async with TransactionProducer(made.session, "payments", unknown) as producer:
        for number, state in enumerate(states):

            async def execute(
                message: Message, state: TransactionState = state
            ) -> TransactionState:
                return state

            message = Message(TOPIC, b"paid", keys=[f"order-{number}"])
            await producer.send_in_transaction(message, execute)


@opened(cluster)
async def test_without_transactions_none_is_open(made: Cluster) -> None:
    found = await look(made)
    assert (found.found, found.not_passed, found.is_all, found.problem) == ((), 0, True, None)
    assert found.oldest is None


@opened(cluster)
async def test_those_that_ended_are_not_open_any_more(made: Cluster) -> None:
    await send(made, COMMIT, UNKNOWN, ROLLBACK, UNKNOWN)

    async def two() -> bool:
        return len((await look(made)).found) == 2

    await eventually(two)
    found = await look(made)
    assert [item.keys for item in found.found] == ["order-1", "order-3"]
    assert {(item.topic, item.group, item.checks) for item in found.found} == {
        (TOPIC, "payments", 0)
    }
    assert found.oldest == found.found[0].born_time and found.is_all


@opened(lambda: cluster(transactionCheckInterval="50", transactionTimeOut="50"))
async def test_one_that_was_checked_is_still_one_and_says_how_often(made: Cluster) -> None:
    async with TransactionProducer(made.session, "payments", unknown) as producer:

        async def execute(message: Message) -> TransactionState:
            return UNKNOWN

        await producer.send_in_transaction(Message(TOPIC, b"paid"), execute)

        async def checked() -> bool:
            found = (await look(made)).found
            assert len(found) <= 1
            return bool(found) and found[0].checks >= 2

        await eventually(checked, 30)


@opened(cluster)
async def test_when_there_are_too_many_it_says_so(
    made: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "MOST_READ", 2)
    await send(made, UNKNOWN, UNKNOWN, UNKNOWN)
    found = await look(made)
    assert len(found.found) == 2 and not found.is_all and found.not_passed == 3


@opened(cluster)
async def test_a_broker_that_is_away_is_a_problem(made: Cluster) -> None:
    found = await open_transactions(made.admin, "gone", "127.0.0.1:1")
    assert found.problem and found.not_passed is None


@pytest.mark.parametrize(
    ("body", "tag", "offsets"),
    [
        (b"17", "d", [17]),
        (b"1,2,", "d", [1, 2]),
        (b"17", "x", []),
        (b"1,x", "d", []),
        (b"", "d", []),
    ],
)
def test_operations_of_both_releases_are_read(body: bytes, tag: str, offsets: list[int]) -> None:
    assert transactions.ended_offsets(StoredMessage("op", body, {"TAGS": tag})) == offsets


@opened(cluster)
async def test_bodies_are_held_only_where_they_are_wanted(made: Cluster) -> None:
    await made.producer.send(Message(TOPIC, b"large"), MessageQueue(TOPIC, "broker-a", 0))
    where = made.pair.broker.address, MessageQueue(TOPIC, "broker-a", 0), 0, 1
    assert [one.body for one in await broker_queues.read(made.admin, *where)] == [b""]
    assert [one.body for one in await broker_queues.read(made.admin, *where, bodies=True)] == [
        b"large"
    ]
    await send(made, UNKNOWN)
    halves = MessageQueue(TRANSACTION_HALF_TOPIC, "broker-a", 0)
    (half,) = await broker_queues.read(made.admin, made.pair.broker.address, halves, 0, 1)
    assert half.body == b"" and half.message_id
