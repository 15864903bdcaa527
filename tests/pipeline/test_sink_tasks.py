"""The work of a write task, without Spark: rows become messages of a real broker."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.broker.store.errors import StoreRefused
from mq.protocol.codes import ResponseCode
from mq.protocol.message import StoredMessage
from mq.testing import RunningBroker
from tests.pipeline.conftest import require_spark

require_spark()

import pyarrow as pa  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    MapType,
    StringType,
)

from mq.pipeline.errors import OptionError, RowError, SchemaError, WriteFailed  # noqa: E402
from mq.pipeline.sink import BatchWriter, check_target  # noqa: E402
from mq.pipeline.write_options import parse_write_options  # noqa: E402
from mq.protocol.flags import SysFlag  # noqa: E402
from mq.protocol.tags import java_hash  # noqa: E402
from tests.pipeline.schemas import KINDS, schema_of  # noqa: E402


def write(
    name_server: str,
    columns: str,
    rows: Sequence[Sequence[Any]],
    per_batch: int = 100,
    **options: str,
) -> int:
    """Write all of the rows as one task does."""
    spark, arrow = schema_of(columns)
    writer = BatchWriter(parse_write_options({"nameServer": name_server, **options}), spark)
    batches = [
        pa.RecordBatch.from_arrays(
            [
                pa.array([row[place] for row in rows[start : start + per_batch]], field.type)
                for place, field in enumerate(arrow)
            ],
            schema=arrow,
        )
        for start in range(0, len(rows), per_batch)
    ]
    return writer.write(iter(batches)).rows


def test_every_column_sets_its_part_of_the_message(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    columns = (
        "body string, tags string, keys array<string>, properties map<string,string>, flag int"
    )
    rows: list[list[Any]] = [
        ["first", "A", ["k1", "k2"], [("of", "mine"), ("UNIQ_KEY", "old"), ("WAIT", "false")], 7],
        ["zweite ü", None, [], None, None],
        ["third", "", None, [("of", ""), ("other", "x")], -1],
    ]
    assert write(mq_session_broker.name_server, columns, rows, topic=mq_topic) == 3
    found = {m.body.decode(): m for m in mq_session_broker.messages(mq_topic)}
    assert set(found) == {"first", "zweite ü", "third"}
    first, second, third = found["first"], found["zweite ü"], found["third"]
    assert (first.tags, first.keys, first.flag) == ("A", ("k1", "k2"), 7)
    assert (second.tags, second.keys, second.flag, third.flag) == (None, (), 0, -1)
    assert first.properties["of"] == "mine" and third.properties["other"] == "x"
    assert "of" not in third.properties
    ids = {m.properties["UNIQ_KEY"] for m in found.values()}
    assert len(ids) == 3 and {len(each) for each in ids} == {32}


def test_rows_that_were_read_can_be_written_again(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    columns = "body binary, properties string"
    rows = [[b"x", '{"TAGS": "A", "KEYS": "k", "CLUSTER": "old", "UNIQ_KEY": "1", "mine": "2"}']]
    write(mq_session_broker.name_server, columns, rows, topic=mq_topic)
    (message,) = mq_session_broker.messages(mq_topic)
    assert (message.tags, message.keys, message.properties["mine"]) == ("A", ("k",), "2")
    assert message.properties["UNIQ_KEY"] != "1" and message.properties["CLUSTER"] != "old"


def by_queue(messages: Sequence[StoredMessage]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for message in sorted(messages, key=lambda m: m.queue_offset):
        found.setdefault(message.queue_id, []).append(message.body.decode())
    return found


def test_keys_and_queue_ids_of_rows_select_queues_and_keep_the_order(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic, 4)
    keys = [f"customer-{n % 11}" for n in range(3000)]
    rows = [[f"{n}", key] for n, key in enumerate(keys)]
    columns = "body string, shardingKey string"
    write(mq_session_broker.name_server, columns, rows, topic=mq_topic, sendBatchBytes="2000")
    expected: dict[int, list[str]] = {}
    for body, key in rows:
        expected.setdefault(abs(java_hash(key)) % 4, []).append(body)
    assert by_queue(mq_session_broker.messages(mq_topic)) == expected

    other = f"{mq_topic}-ids"
    mq_session_broker.create_topic(other, 4)
    queues: list[list[Any]] = [[f"{n}", n * 7 % 4, "broker-a", other] for n in range(500)]
    columns = "body string, queueId int, brokerName string, topic string"
    write(mq_session_broker.name_server, columns, queues, sendBatchBytes="1000")
    expected = {}
    for body, queue_id, *_ in queues:
        expected.setdefault(queue_id, []).append(body)
    assert by_queue(mq_session_broker.messages(other)) == expected
    with pytest.raises(RowError, match=r"there is no queue 4 of topic .*-ids to write to"):
        write(mq_session_broker.name_server, "body string, queueId int", [["x", 4]], topic=other)


def test_rows_of_several_topics_go_to_their_topics(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    names = [f"{mq_topic}-{n}" for n in range(3)]
    for name in (*names, mq_topic):
        mq_session_broker.create_topic(name, 2)
    rows = [[f"{n}", names[n % 3] if n % 4 else None] for n in range(60)]
    write(
        mq_session_broker.name_server,
        "body string, topic string",
        rows,
        topic=mq_topic,
        per_batch=7,
    )
    for name in (*names, mq_topic):
        bodies = sorted(int(m.body) for m in mq_session_broker.messages(name))
        assert bodies == [n for n in range(60) if (rows[n][1] or mq_topic) == name]
    with pytest.raises(RowError, match="the topic of a row is null"):
        write(mq_session_broker.name_server, "body string, topic string", rows)


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_large_bodies_are_compressed_if_enabled(
    mq_session_broker: RunningBroker, mq_topic: str, codec: str
) -> None:
    chance = random.Random(5)
    rows = [[b"%d " % n * chance.choice((1, 2000, 300_000))] for n in range(40)]
    write(mq_session_broker.name_server, "body binary", rows, topic=mq_topic, compression=codec)
    messages = mq_session_broker.messages(mq_topic)
    assert sorted(m.body for m in messages) == sorted(body for (body,) in rows)
    for message in messages:
        assert bool(message.sys_flag & SysFlag.COMPRESSED) == (len(message.body) >= 4096)


def test_a_body_of_four_megabytes_fits_and_more_is_refused(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    most = 4 * 1024 * 1024
    write(mq_session_broker.name_server, "body binary", [[b"x" * most]] * 2, topic=mq_topic)
    assert [len(m.body) for m in mq_session_broker.messages(mq_topic)] == [most] * 2
    with pytest.raises(RowError, match="has 4194305 bytes, the limit of a message is 4194304"):
        write(mq_session_broker.name_server, "body binary", [[b"x" * (most + 1)]], topic=mq_topic)


def test_delayed_rows_are_delivered_later(tmp_path: Path) -> None:
    settings = {"messageDelayLevel": "1s 2s"}
    with RunningBroker(tmp_path / "store", settings) as broker:
        rows: list[list[Any]] = [["now", None], ["later", 1], ["too", 0]]
        write(broker.name_server, "body string, delayLevel int", rows, topic="T")
        assert sorted(m.body for m in broker.messages("T")) == [b"now", b"too"]
        assert b"later" in {m.body for m in broker.wait_for_messages("T", 3)}
        rows = [["at once", None], ["past", 1000]]
        write(broker.name_server, "body string, deliverAt bigint", rows, topic="U")
        broker.wait_for_messages("U", 2)


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        ("body string", [[None]], "the body of a row is null or empty"),
        ("body string", [["x"], [""]], "the body of a row is null or empty"),
        ("body string, tags string", [["x", "a\x02b"]], "the column tags of a row has a character"),
        ("body string, properties string", [["x", "{oops"]], "are not JSON"),
        ("body string, properties string", [["x", '{"a": 1}']], "are not an object of texts"),
        ("body string, keys string", [["x", "k" * 40_000]], "have 40.* bytes, the limit is 32767"),
        ("body string, delayLevel int", [["x", -1]], "a delayLevel is below 0"),
        ("body string, topic string", [["x", "a b"]], "the topic of a row: .* illegal characters"),
    ],
)
def test_an_invalid_row_is_reported(
    mq_session_broker: RunningBroker, mq_topic: str, columns: str, rows: Any, message: str
) -> None:
    with pytest.raises(RowError, match=message):
        write(mq_session_broker.name_server, columns, rows, topic=mq_topic)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("value string", {}, "a message has no column value to write"),
        ("body string, BODY string", {}, "there are two columns body"),
        ("body int", {}, r"column body cannot be int; it is binary or string: select\(col"),
        ("tags string", {}, "there is no column body"),
        ("body string", {"topic": ""}, "no topic: .*, or a column topic"),
        ("body string, queueId int, shardingKey string", {}, "by queueId or by shardingKey, not"),
        ("body string, brokerName string", {}, "brokerName also needs the column queueId"),
        ("body string, deliverAt timestamp", {"exactlyOnce": "true"}, "cannot be delayed"),
    ],
)
def test_invalid_columns_are_reported_before_the_write(
    columns: str, options: dict[str, str], message: str
) -> None:
    given = {"nameServer": "127.0.0.1:1", "topic": "T", **options}
    if not given["topic"]:
        del given["topic"]
    with pytest.raises(SchemaError, match=message):
        BatchWriter(parse_write_options(given), schema_of(columns)[0])


def test_a_missing_target_is_reported_before_the_write(tmp_path: Path) -> None:
    def check(**options: str) -> None:
        check_target(parse_write_options(options))

    with pytest.raises(OptionError, match=r"option nameServer: 127\.0\.0\.1:1"):
        check(nameServer="127.0.0.1:1", topic="T")
    with RunningBroker(tmp_path / "store", {"autoCreateTopicEnable": "false"}) as broker:
        with pytest.raises(OptionError, match="option topic: topic T: no name server knows it"):
            check(nameServer=broker.name_server, topic="T")
        broker.create_topic("T", 1)
        check(nameServer=broker.name_server, topic="T")
    for wrong, text in (
        ({"compression": "gzip"}, "option compression: 'gzip' is none of none, lz4, zstd, zlib"),
        ({"sendBatchByte": "1"}, "did you mean sendBatchBytes?"),
        ({"topic": "a b"}, "option topic: "),
        ({"exactlyOnce": "yes"}, "option exactlyOnce: 'yes' is neither true nor false"),
    ):
        with pytest.raises(OptionError) as raised:
            parse_write_options({"nameServer": "a:1", **wrong})
        assert text in str(raised.value)


def test_large_types_of_arrow_are_accepted(
    mq_session_broker: RunningBroker, mq_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As spark.sql.execution.arrow.useLargeVarTypes makes them."""
    large = pa.large_string()
    monkeypatch.setitem(KINDS, "string", (StringType(), large))
    monkeypatch.setitem(KINDS, "binary", (BinaryType(), pa.large_binary()))
    mapped = (MapType(StringType(), StringType()), pa.map_(large, large))
    monkeypatch.setitem(KINDS, "map<string,string>", mapped)
    columns = "body binary, tags string, properties map<string,string>, shardingKey string"
    rows = [[b"x", "A", [("n", "1")], "key"]]
    write(mq_session_broker.name_server, columns, rows, topic=mq_topic)
    (message,) = mq_session_broker.wait_for_messages(mq_topic, 1)
    assert (message.body, message.tags, message.properties["n"]) == (b"x", "A", "1")


@pytest.mark.parametrize("columns", ["body string", "body string, shardingKey string"])
def test_a_broker_that_returns_gets_all_rows_and_one_that_does_not_is_an_error(
    tmp_path: Path, columns: str
) -> None:
    spark, arrow = schema_of(columns)

    def batches(broker: RunningBroker, *, comes_back: bool) -> Iterator[pa.RecordBatch]:
        for start in range(0, 3000, 300):
            numbers = [f"{n:04}" for n in range(start, start + 300)]
            yield pa.RecordBatch.from_arrays([pa.array(numbers)] * len(arrow), schema=arrow)
            if start == 1500:
                broker.stop()
                if comes_back:
                    threading.Timer(0.3, broker.start).start()

    with RunningBroker(tmp_path / "store") as broker:
        broker.create_topic("T", 4)
        given = {"nameServer": broker.name_server, "topic": "T", "sendBatchBytes": "3000"}
        given |= {"numRetries": "8", "retryIntervalMs": "100"}
        writer = BatchWriter(parse_write_options(given), spark)
        assert writer.write(batches(broker, comes_back=True)).rows == 3000
        messages = broker.messages("T")
        assert {int(message.body) for message in messages} == set(range(3000))
        ids = {message.properties["UNIQ_KEY"] for message in messages}
        assert len(ids) == 3000  # a message stored twice has the same id twice

        writer = BatchWriter(parse_write_options({**given, "numRetries": "1"}), spark)
        with pytest.raises(WriteFailed, match=r"rows for topic T: 2 attempts failed: .*numRetries"):
            writer.write(batches(broker, comes_back=False))
        broker.start()


def test_a_busy_broker_delays_a_task_and_uses_up_no_attempt(
    mq_broker: RunningBroker, mq_topic: str
) -> None:
    """An overloaded broker refuses requests that waited too long for their turn."""
    mq_broker.create_topic(mq_topic)
    given = {"nameServer": mq_broker.name_server, "topic": mq_topic, "numRetries": "0"}
    appender = mq_broker._pair.broker.stores.messages.appender
    refusal = StoreRefused(ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy")
    spark, arrow = schema_of("body string")

    def batches(busy_at: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, 1000, 100):
            if start == busy_at:
                appender.refuse("test", refusal)
                threading.Timer(0.1, appender.accept, ["test"]).start()
            bodies = [f"{n}" for n in range(start, start + 100)]
            yield pa.RecordBatch.from_arrays([pa.array(bodies)], schema=arrow)

    writer = BatchWriter(parse_write_options({**given, "retryIntervalMs": "10000"}), spark)
    began = time.monotonic()
    assert writer.write(batches(busy_at=300)).rows == 1000
    assert time.monotonic() - began < 9  # it pauses for 0.16 s, then perhaps for 0.31 s
    bodies = sorted(int(message.body) for message in mq_broker.messages(mq_topic))
    assert bodies == list(range(1000))

    appender.refuse("test", refusal)
    writer = BatchWriter(parse_write_options({**given, "retryIntervalMs": "100"}), spark)
    with pytest.raises(WriteFailed, match=r"1 attempts failed: .*broker busy"):
        writer.write(batches(busy_at=-1))
