"""Messages of every kind, read and written, with this project's broker and both of Java's."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.producer.producer import Producer
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.client.transport.blocking import BlockingSession, run
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.message import Message
from mq.testing import RunningBroker
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.pipeline.conftest import PATIENCE, require_spark

require_spark()

import pyarrow as pa  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    LongType,
    StringType,
    StructType,
)

from mq.pipeline import exactly_once  # noqa: E402
from mq.pipeline.batch import BatchReader  # noqa: E402
from mq.pipeline.decisions import DecisionLog  # noqa: E402
from mq.pipeline.exactly_once import Transactions  # noqa: E402
from mq.pipeline.options import parse_options  # noqa: E402
from mq.pipeline.prepared import Prepared  # noqa: E402
from mq.pipeline.reading import Partition  # noqa: E402
from mq.pipeline.sink import BatchWriter  # noqa: E402
from mq.pipeline.write_options import parse_write_options  # noqa: E402
from tests.pipeline.prepared import some  # noqa: E402
from tests.pipeline.schemas import schema_of  # noqa: E402

pytestmark = [pytest.mark.timeout(2 * PATIENCE)]

MEGABYTE = 1024 * 1024
SETTINGS = {"messageDelayLevel": "1s 2s 3s", "maxMessageSize": str(5 * MEGABYTE)}


@dataclass
class Brokers:
    """A name server and a broker."""

    name_server: str
    address: str
    name: str

    def create(self, topic: str, queues: int = 1) -> str:
        config = TopicConfig(
            topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6
        )

        async def known(admin: Admin) -> bool:
            return topic in (await admin.topic_list()).topic_list

        with BlockingSession(self.name_server) as session:
            admin = Admin(session)
            run(admin.create_topic(self.address, config))
            for _ in range(600):
                if run(known(admin)):
                    return topic
                time.sleep(0.05)
        raise TimeoutError(f"no name server knows {topic}")

    def read(self, topic: str, **options: str) -> list[tuple[int, bytes]]:
        """Offsets and bodies, as the tasks of a batch read decode them."""
        schema = StructType().add("queueOffset", LongType()).add("body", BinaryType())
        return [tuple(row.values()) for row in self._rows(topic, schema, **options)]

    def rows(self, topic: str) -> list[dict[str, Any]]:
        schema = StructType()
        for name in ("body", "tags", "keys", "msgId"):
            schema.add(name, BinaryType() if name == "body" else StringType())
        return self._rows(topic, schema)

    def _rows(self, topic: str, schema: StructType, **options: str) -> list[dict[str, Any]]:
        given = {"nameServer": self.name_server, "topic": topic, **options}
        reader = BatchReader(parse_options(given), schema)
        partitions = [each for each in reader.partitions() if isinstance(each, Partition)]
        batches = [batch for each in partitions for batch in reader.read(each)]
        return [row for batch in batches for row in batch.to_pylist()]

    def until(self, topic: str, count: int) -> list[tuple[int, bytes]]:
        for _ in range(600):
            found = self.read(topic)
            if len(found) >= count:
                return found
            time.sleep(0.1)
        raise TimeoutError(f"{len(found)} messages of {count}")

    def write(self, topic: str, columns: str, rows: list[list[Any]], **options: str) -> Any:
        spark, arrow = schema_of(columns)
        given = {"nameServer": self.name_server, "topic": topic, **options}
        writer = BatchWriter(parse_write_options(given), spark)
        arrays = [
            pa.array([row[place] for row in rows], field.type) for place, field in enumerate(arrow)
        ]
        return writer.write(iter([pa.RecordBatch.from_arrays(arrays, schema=arrow)]))


@pytest.fixture(
    scope="module",
    params=["ours", *(pytest.param(each, marks=pytest.mark.java) for each in ("4.9.7", "5.5.0"))],
)
def brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    folder: Path = tmp_path_factory.mktemp("brokers")
    if request.param == "ours":
        with RunningBroker(folder, SETTINGS) as broker:
            yield Brokers(broker.name_server, broker.address, "broker-a")
        return
    require_java()
    with (
        peers.JavaNameServer(request.param, folder) as namesrv,
        peers.JavaBroker(request.param, folder, namesrv.address, SETTINGS) as java,
    ):
        yield Brokers(namesrv.address, java.address, java.name)


@pytest.fixture
def topic(brokers: Brokers) -> str:
    return brokers.create(f"kinds-{uuid.uuid4().hex}")


def test_bodies_of_every_size_are_read_as_they_were_sent(brokers: Brokers, topic: str) -> None:
    bodies = [bytes(range(256)), b"x", b"large " * 2000, bytes(4 * MEGABYTE - 1000), b"\x00" * 9]

    async def send() -> None:
        async with Producer(brokers.name_server, timeout=20) as producer:
            for body in bodies:
                await producer.send(Message(topic, body))
            plain = Producer(producer.session, compress_over=8 * MEGABYTE)
            async with plain:
                await plain.send(Message(topic, bytes(4 * MEGABYTE - 1000)))
            await producer.send_batch([Message(topic, b"in a batch %d" % n) for n in range(50)])

    asyncio.run(send())
    bodies += [bytes(4 * MEGABYTE - 1000), *(b"in a batch %d" % n for n in range(50))]
    # Java's broker makes batches readable a moment after it has acknowledged them.
    assert brokers.until(topic, len(bodies)) == list(enumerate(bodies))


def test_an_empty_body_is_read_as_empty(brokers: Brokers, topic: str) -> None:
    """Neither our clients nor Java's send one; a broker that accepts it also delivers it."""
    fields = {"a": "G", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
    fields |= {"h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
    with BlockingSession(brokers.name_server) as session:
        run(session.invoke(brokers.address, Command(RequestCode.SEND_MESSAGE_V2, fields, b"")))
        run(session.invoke(brokers.address, Command(RequestCode.SEND_MESSAGE_V2, fields, b"one")))
    found = [body for _, body in brokers.until(topic, 1)]
    if found == [b""]:  # the other message is being stored
        found = [body for _, body in brokers.until(topic, 2)]
    assert found in ([b"", b"one"], [b"one"])


def test_transactions_are_read_once_they_are_committed(brokers: Brokers, topic: str) -> None:
    async def check(question: TransactionCheck) -> TransactionState:
        return TransactionState.UNKNOWN

    async def send() -> None:
        async with TransactionProducer(brokers.name_server, f"G{topic}", check) as producer:
            for state in TransactionState:

                async def execute(
                    message: Message, state: TransactionState = state
                ) -> TransactionState:
                    return state

                await producer.send_in_transaction(Message(topic, state.name.encode()), execute)

    asyncio.run(send())
    assert [body for _, body in brokers.until(topic, 1)] == [b"COMMIT"]


def test_written_rows_are_read_back_unchanged(brokers: Brokers, topic: str) -> None:
    rows = [[b"%d " % n * (1 + n % 700), f"T{n % 3}", f"k{n}"] for n in range(3000)]
    written = brokers.write(
        topic, "body binary, tags string, keys string", rows, compression="zlib"
    )
    assert written.rows == 3000
    brokers.until(topic, 3000)
    found = [[row["body"], row["tags"], row["keys"]] for row in brokers.rows(topic)]
    assert sorted(found) == sorted(rows)
    assert len({row["msgId"] for row in brokers.rows(topic)}) == 3000
    some = brokers.read(topic, subExpression="T1")
    assert len(some) == 1000


def test_written_rows_keep_the_order_of_their_keys(brokers: Brokers) -> None:
    topic = brokers.create(f"kinds-{uuid.uuid4().hex}", 4)
    rows = [[f"{n % 5}-{n:05}", f"{n % 5}"] for n in range(4000)]
    brokers.write(topic, "body string, shardingKey string", rows, sendBatchBytes="2000")
    brokers.until(topic, 4000)
    by_key: dict[bytes, list[bytes]] = {}
    for _, body in brokers.read(topic):
        by_key.setdefault(body[:1], []).append(body)
    assert len(by_key) == 5
    assert all(bodies == sorted(bodies) for bodies in by_key.values())


def test_delayed_rows_are_delivered_when_due(brokers: Brokers, topic: str) -> None:
    rows: list[list[Any]] = [["now", 0], ["later", 1], ["also now", None]]
    brokers.write(topic, "body string, delayLevel int", rows)
    assert b"later" not in {body for _, body in brokers.until(topic, 2)}
    found = brokers.until(topic, 3)
    assert [body for _, body in found][-1] == b"later"


def test_an_interrupted_commit_is_finished_once(
    brokers: Brokers, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's brokers commit a half message at every request, so it must not be requested twice."""
    monkeypatch.setattr(exactly_once, "_SETTLE_SECONDS", 1.0)
    given = {"nameServer": brokers.name_server, "topic": topic, "exactlyOnce": "true"}
    options = parse_write_options({**given, "commitTopic": "commits"})

    def prepare() -> list[Prepared]:
        rows = [[f"{n}"] for n in range(60)]
        prepared: list[Prepared] = brokers.write(
            topic, "body string", rows, exactlyOnce="true"
        ).prepared
        return prepared

    query, first = str(uuid.uuid4()), prepare()
    assert brokers.read(topic) == []
    with Transactions(options) as transactions:
        with options.open_session(10) as session:
            DecisionLog(session, options, 0).decide(query, 5, transactions._ends(first), first)
        failed, _ = transactions._end(some(first, 0, 25), SysFlag.TRANSACTION_COMMIT)
        assert not failed
    brokers.until(topic, 25)
    for _ in range(2):
        with Transactions(options) as transactions:
            transactions.commit_once(query, 5, prepare())
    with Transactions(options) as transactions:
        transactions.commit_once(query, 6, prepare())
    found = [int(body) for _, body in brokers.until(topic, 120)]
    assert sorted(found) == sorted([*range(60)] * 2)


def test_retry_and_dead_letter_topics_are_read_by_their_names(brokers: Brokers) -> None:
    group = f"G{uuid.uuid4().hex}"
    for topic in (f"%RETRY%{group}", f"%DLQ%{group}"):
        brokers.create(topic)
        queue = MessageQueue(topic, brokers.name, 0)

        async def send(topic: str = topic, queue: MessageQueue = queue) -> None:
            async with Producer(brokers.name_server) as producer:
                await producer.send(Message(topic, topic.encode()), queue)

        asyncio.run(send())
        assert [body for _, body in brokers.until(topic, 1)] == [topic.encode()]
