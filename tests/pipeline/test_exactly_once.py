"""Commits of messages prepared by tasks, without Spark, with drivers that die during a commit."""

import asyncio
import dataclasses
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from mq.daemons.broker.store_config import BrokerRole
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import (
    BrokerData,
    MessageQueue,
    QueueData,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.headers.transaction import pack_halves
from mq.testing import RunningBroker
from tests.client.scripted import scripted
from tests.pipeline.conftest import require_spark

require_spark()

from mq.pipeline.decisions import DecisionLog, open_log  # noqa: E402
from mq.pipeline.encoding import Outgoing  # noqa: E402
from mq.pipeline.errors import CommitFailed  # noqa: E402
from mq.pipeline.exactly_once import Transactions  # noqa: E402
from mq.pipeline.offsets import Queue  # noqa: E402
from mq.pipeline.prepared import (  # noqa: E402
    Half,
    Halves,
    Prepared,
    are_same,
    from_part,
    to_parts,
)
from mq.pipeline.sink import BatchWriter  # noqa: E402
from mq.pipeline.write_options import parse_write_options  # noqa: E402
from tests.pipeline.schemas import schema_of  # noqa: E402

import pyarrow as pa  # noqa: E402  # isort: skip
from tests.pipeline.prepared import (  # noqa: E402
    COLUMNS,
    TEXTS,
    bodies_of,
    options_for,
    prepare,
    settle_quickly,
    some,
)

if TYPE_CHECKING:
    pass


T = TypeVar("T")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    settle_quickly(monkeypatch)


def test_a_batch_is_visible_once_however_often_it_is_committed(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic)
    options, query = options_for(mq_session_broker, mq_topic), str(uuid.uuid4())
    with Transactions(options) as transactions:
        for batch in range(3):
            texts = [f"{batch}-{text}" for text in TEXTS]
            prepared = prepare(options, texts)
            assert texts[0] not in bodies_of(mq_session_broker, mq_topic)
            transactions.commit_once(query, batch, prepared)
        transactions.commit_once(query, 2, prepared)
        transactions.commit_once(query, 2, prepare(options, texts))
        transactions.abort(query, 2, prepared)
    expected = sorted(f"{batch}-{text}" for batch in range(3) for text in TEXTS)
    assert bodies_of(mq_session_broker, mq_topic) == expected


@pytest.mark.parametrize("committed", [0, 1, 77, 150])
def test_the_commit_of_a_dead_driver_is_finished_by_the_next_one(
    mq_session_broker: RunningBroker, mq_topic: str, committed: int
) -> None:
    mq_session_broker.create_topic(mq_topic)
    options, query = options_for(mq_session_broker, mq_topic), str(uuid.uuid4())
    first = prepare(options, TEXTS)
    with Transactions(options) as transactions:
        ends = transactions._ends(first)
        with options.open_session(5) as session:
            DecisionLog(session, options, 0).decide(query, 7, ends, first)
        transactions._end(some(first, 0, committed), SysFlag.TRANSACTION_COMMIT)
    assert len(bodies_of(mq_session_broker, mq_topic)) == committed

    again = prepare(options, TEXTS)  # as Spark does when it is restarted
    with Transactions(options) as transactions:
        transactions.commit_once(query, 7, again)
        transactions.commit_once(query, 8, prepare(options, ["next"]))
    assert bodies_of(mq_session_broker, mq_topic) == sorted([*TEXTS, "next"])
    with Transactions(options) as transactions:
        failed, _ = transactions._end(again, SysFlag.TRANSACTION_COMMIT)
        assert sum(map(len, failed)) == len(TEXTS)  # they were rolled back


def test_a_commit_that_reaches_a_slave_fails_and_can_be_repeated(
    mq_broker: RunningBroker, mq_topic: str
) -> None:
    """A master returned as a slave, while the driver's route still has its old role."""
    mq_broker.create_topic(mq_topic)
    options = options_for(mq_broker, mq_topic)
    prepared = prepare(options, TEXTS)
    store = mq_broker._pair.broker.settings.store
    role = store.broker_role
    with Transactions(options) as transactions:
        object.__setattr__(store, "broker_role", BrokerRole.SLAVE)
        with pytest.raises(CommitFailed, match="150 of 150 messages could not be made visible"):
            transactions.commit(prepared)
        object.__setattr__(store, "broker_role", role)
        transactions.commit(prepared)
    assert bodies_of(mq_broker, mq_topic) == sorted(TEXTS)


PREPARED = [Prepared("T", "a", -1, bytes(32))]


def ask(question: Callable[[Transactions], T], *replicas: dict[str, int], **options: str) -> T:
    """Return the answer about topic T, which has 9 messages.

    Each query of its route returns the next of `replicas`: broker ids by broker name.
    """
    stats = TopicStatsTable()
    for name in "ab":
        stats.offset_table[MessageQueue("T", name, 0)] = TopicOffset(max_offset=9)

    def answer(name_server: str) -> T:
        given = {"nameServer": name_server, "topic": "T", "exactlyOnce": "true", **options}
        with Transactions(parse_write_options(given)) as transactions:
            return question(transactions)

    async def script() -> T:
        handlers: dict[int, Handler] = {
            RequestCode.GET_TOPIC_STATS_INFO: lambda request, channel: request.reply(
                0, None, stats.encode()
            )
        }
        looks = list(replicas)

        def route(request: Command, channel: Channel) -> Command:
            there = looks.pop(0) if len(looks) > 1 else looks[0]
            one = {"read_queue_nums": 1, "write_queue_nums": 1, "perm": 6}
            found = TopicRouteData(
                queue_datas=[QueueData(broker_name=name, **one) for name in there],
                broker_datas=[
                    BrokerData(cluster="c", broker_name=name, broker_addrs={number: address})
                    for name, number in there.items()
                ],
            )
            return request.reply(0, None, found.encode())

        names: dict[int, Handler] = {RequestCode.GET_ROUTEINFO_BY_TOPIC: route}
        async with scripted(handlers) as address, scripted(names) as name_server:
            return await asyncio.to_thread(answer, name_server)

    return asyncio.run(script())


def test_messages_that_a_replica_lacks_do_not_count_as_missing() -> None:
    """Otherwise it is committed once more when the master is back: a Java broker makes it visible
    twice.
    """
    with pytest.raises(CommitFailed, match="is unavailable: unknown what is visible"):
        ask(lambda of: of._missing(PREPARED, {Queue("T", "a", 0): 9}), {"a": 1}, numRetries="0")


def test_a_master_that_returns_soon_is_awaited_although_its_replica_answers() -> None:
    """The query must not fail at once: a broker without a replica is queried again, too."""
    routes = {"a": 1}, {"a": 1}, {"a": 0}
    found = ask(lambda of: of._ends(PREPARED), *routes, retryIntervalMs="50")
    assert found == {Queue("T", "a", 0): 9}


def test_a_broker_without_its_master_does_not_delay_commits_at_others() -> None:
    """The replica of b is not queried, because its refusal would fail the query."""
    found = ask(lambda of: of._ends(PREPARED), {"a": 0, "b": 1})
    assert found == {Queue("T", "a", 0): 9}


def test_the_first_decision_of_two_drivers_counts(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic)
    options, query = options_for(mq_session_broker, mq_topic), str(uuid.uuid4())
    one, other = prepare(options, ["same"]), prepare(options, ["same"])
    ends = {Queue(mq_topic, "broker-a", n): 0 for n in range(4)}
    with options.open_session(5) as session:
        log = DecisionLog(session, options, 0)
        assert log.find(query, 0) is None
        first = log.decide(query, 0, ends, one)
        second = log.decide(query, 0, ends, other)  # it searched before the first one decided
        assert second.token == first.token and second.prepared == one
        assert second.ends == ends
    with Transactions(options) as transactions:
        transactions.abort(query, 0, one)
        transactions.commit_once(query, 0, other)
    assert bodies_of(mq_session_broker, mq_topic) == ["same"]


def test_an_old_decision_is_found_among_many_of_other_queries(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    options, query = options_for(mq_session_broker, mq_topic), str(uuid.uuid4())
    mq_session_broker.create_topic(mq_topic)
    with options.open_session(5) as session:
        log = DecisionLog(session, options, 0)
        kept = log.decide(query, 3, {}, prepare(options, ["x"]))
        for _ in range(100):
            log._put(f"D{uuid.uuid4()}", b'{"query": "other", "batch": 0}')
        assert log.find(query, 3) == kept
        assert log.find(query, 4) is None and log.find(query, 2) is None
        assert log.find(str(uuid.uuid4()), 3) is None


def test_order_is_kept_within_a_key(mq_session_broker: RunningBroker, mq_topic: str) -> None:
    mq_session_broker.create_topic(mq_topic)
    options = options_for(mq_session_broker, mq_topic)
    texts = [f"{n:04}" for n in range(400)]
    with Transactions(options) as transactions:
        transactions.commit(prepare(options, texts))
    messages = sorted(mq_session_broker.messages(mq_topic), key=lambda m: m.queue_offset)
    assert [m.body.decode() for m in messages] == texts
    assert {m.queue_id for m in messages} == {messages[0].queue_id}


def test_messages_rolled_back_by_a_broker_are_reported(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic)
    options, query = options_for(mq_session_broker, mq_topic), str(uuid.uuid4())
    prepared = prepare(options, TEXTS)
    with Transactions(options) as transactions:
        transactions.roll_back(prepare(options, ["never visible"]))
        transactions._end(some(prepared, 0, 3), SysFlag.TRANSACTION_ROLLBACK)
        with pytest.raises(CommitFailed, match="messages could not be made visible"):
            transactions.commit_once(query, 0, prepared)


def test_prepared_messages_survive_serialization() -> None:
    halves = [Half("T", "broker-a", 3, 2**40 + n, n, f"{n:032X}") for n in range(10)]
    packed = b"".join(
        half.physical.to_bytes(8, "big")
        + half.queue_offset.to_bytes(8, "big")
        + bytes.fromhex(half.unique_id)
        for half in halves
    )
    prepared = Prepared("T", "broker-a", 3, packed)
    assert list(prepared.halves()) == halves and len(prepared) == 10
    (part,) = to_parts([prepared, prepared])
    assert from_part(part) == [prepared, prepared]
    many = Prepared("T", "b", -1, packed * 20_000)
    parts = list(to_parts([prepared, many]))
    assert len(parts) == 4 and all(len(each) < 4 << 20 for each in parts)
    assert b"".join(p.packed for part in parts for p in from_part(part)) == packed * 20_001
    for damaged in (b"", b"nonsense", part[:-9], part[:20]):
        with pytest.raises(ValueError):
            from_part(damaged)


def test_the_log_is_at_one_broker_and_created_if_missing(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"autoCreateTopicEnable": "false"}) as broker:
        options = options_for(broker, "T")
        with options.open_session(5) as session:
            assert open_log(session, options, 0).topic == "mq-spark-commits"
            assert open_log(session, options, 0).broker_name == "broker-a"


@pytest.mark.parametrize("columns", [COLUMNS, "body string"])
def test_rows_are_prepared_one_by_one_in_order_if_batches_are_refused(
    mq_session_broker: RunningBroker, mq_topic: str, columns: str
) -> None:
    """Our brokers refuse batches with a property that may concern the timer; Java's refuse all."""
    options = options_for(mq_session_broker, mq_topic)
    options = dataclasses.replace(options, batch_bytes=2000)  # several batches for each queue
    spark, arrow = schema_of(f"{columns}, properties map<string,string>")
    bodies = [f"{n:04}" for n in range(400)]
    properties = [{"TIMER_DECK": "1"} if n % 3 == 0 else {} for n in range(400)]
    keys = [f"key-{n % 3}" for n in range(400)]
    given = [pa.array(bodies), *([pa.array(keys)] if "sharding" in columns else [])]
    given.append(pa.array(properties, arrow.field("properties").type))
    batch = pa.RecordBatch.from_arrays(given, schema=arrow)
    prepared = BatchWriter(options, spark).write(iter([batch])).prepared
    assert mq_session_broker.messages(mq_topic) == []
    with Transactions(options) as transactions:
        transactions.commit(prepared)
    found = mq_session_broker.messages(mq_topic)
    assert sorted(message.body.decode() for message in found) == bodies
    if "sharding" in columns:
        queues = {message.queue_id for message in found}
        for queue in queues:
            seen = [message.body for message in found if message.queue_id == queue]
            assert seen == sorted(seen)


def test_a_row_that_cannot_be_committed_does_not_block_its_request(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    options = options_for(mq_session_broker, mq_topic)
    spark, arrow = schema_of("body string")
    batch = pa.RecordBatch.from_arrays([pa.array(TEXTS)], schema=arrow)
    prepared = BatchWriter(options, spark).write(iter([batch])).prepared
    with Transactions(options) as transactions:
        failed, error = transactions._end(some(prepared, 70, 72), SysFlag.TRANSACTION_ROLLBACK)
        assert (failed, error) == ([], None)
        failed, error = transactions._end(prepared, SysFlag.TRANSACTION_COMMIT)
    assert are_same(failed, some(prepared, 70, 72))
    assert "not open" in str(error)
    assert len(bodies_of(mq_session_broker, mq_topic)) == len(TEXTS) - 2


ID = "7F00000100002A9F0000000000000001"


@pytest.mark.parametrize("text", ["", ID[:8], ID, f"{ID},", f"{ID},{'0' * 33}", f"{ID};{ID}"])
def test_a_reply_without_the_positions_of_half_messages_fails_the_task(text: str) -> None:
    fields: dict[str, object] = {"msgId": text, "queueOffset": "5"}
    outgoing = Outgoing("T", None, 2, RequestCode.SEND_BATCH_MESSAGE, {}, b"", "", bytes(32))
    with pytest.raises(CommitFailed, match="the broker's reply lacks the position of a message"):
        Halves().add(outgoing, MessageQueue("T", "broker-a", 1), fields)


def test_half_messages_are_recorded_from_the_reply() -> None:
    halves = Halves()
    for host in ("7F00000100002A9F", "20010DB800000000000000000000000100002A9F"):
        ids = bytes(range(48))
        outgoing = Outgoing("T", None, 3, RequestCode.SEND_BATCH_MESSAGE, {}, b"", "", ids)
        places = [f"{host}{offset:016X}" for offset in (7, 1 << 40, 9)]
        fields: dict[str, object] = {"msgId": ",".join(places), "queueOffset": "5"}
        halves.add(outgoing, MessageQueue("T", host, 1), fields)
    first, second = halves.prepared(ordered=False)
    assert first.packed == second.packed
    found = [(half.physical, half.queue_offset, half.unique_id) for half in first.halves()]
    texts = [bytes(range(at, at + 16)).hex().upper() for at in (0, 16, 32)]
    assert found == [(7, 5, texts[0]), (1 << 40, 6, texts[1]), (9, 7, texts[2])]
    assert first.places() == pack_halves([(7, 5), (1 << 40, 6), (9, 7)])
    assert [half.physical for half in first.without({texts[1]}).halves()] == [7, 9]
