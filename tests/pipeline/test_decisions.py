"""The contents of the decision about a micro-batch, and its writer."""

import os
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from mq.client.admin import Admin
from mq.client.errors import RequestTimeout
from mq.client.transport.blocking import BlockingSession, run
from mq.protocol.flags import SysFlag
from mq.testing import RunningBroker
from tests.pipeline.conftest import require_streams
from tests.pipeline.filling import fill

require_streams()

from pyspark.sql.datasource import WriterCommitMessage  # noqa: E402

from mq.pipeline import decisions  # noqa: E402
from mq.pipeline.decisions import DecisionLog  # noqa: E402
from mq.pipeline.errors import CommitFailed  # noqa: E402
from mq.pipeline.exactly_once import Transactions  # noqa: E402
from mq.pipeline.prepared import Prepared, from_part, to_parts  # noqa: E402
from mq.pipeline.sink import StreamWriter, TaskCommit  # noqa: E402
from mq.pipeline.write_options import WriteOptions, parse_write_options  # noqa: E402
from tests.pipeline.prepared import TEXTS, bodies_of, options_for, prepare, settle_quickly  # noqa: E402
from tests.pipeline.schemas import schema_of  # noqa: E402

PART = 16 + 16  # bytes of a half message: two offsets and a unique id


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    settle_quickly(monkeypatch)


def at(options: WriteOptions, checkpoint: str | None) -> WriteOptions:
    return replace(options, checkpoint=checkpoint)


@pytest.fixture
def other_topic(mq_session_broker: RunningBroker, mq_topic: str) -> Iterator[str]:
    mq_session_broker.create_topic(mq_topic)
    other = f"{mq_topic}-other"
    mq_session_broker.create_topic(other)
    yield other


def test_a_writer_to_another_topic_with_the_same_checkpoint_fails(
    mq_session_broker: RunningBroker, mq_topic: str, other_topic: str
) -> None:
    query = str(uuid.uuid4())
    options = options_for(mq_session_broker, mq_topic)
    with Transactions(options) as transactions:
        transactions.commit_once(query, 0, prepare(options, TEXTS))
    others = options_for(mq_session_broker, other_topic)
    prepared = prepare(others, ["theirs"])
    with Transactions(others) as transactions:
        with pytest.raises(CommitFailed, match=rf"to topic {mq_topic}.*not to topic {other_topic}"):
            transactions.commit_once(query, 0, prepared)
        transactions.abort(query, 0, prepared)  # as Spark does then
    assert bodies_of(mq_session_broker, other_topic) == []
    assert bodies_of(mq_session_broker, mq_topic) == sorted(TEXTS)


def test_a_copied_checkpoint_fails_and_another_spelling_of_its_path_does_not(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic)
    query, options = str(uuid.uuid4()), options_for(mq_session_broker, mq_topic)
    first = at(options, "/data/checkpoint")
    with Transactions(first) as transactions:
        transactions.commit_once(query, 0, prepare(options, ["a"]))
    for spelled in ("file:///data/checkpoint/", "file:/data/checkpoint", "/data//checkpoint", None):
        with Transactions(at(options, spelled)) as transactions:
            transactions.commit_once(query, 0, prepare(options, ["a"]))
    for other in ("/data/copy", "hdfs:///data/checkpoint", "s3a://bucket/data/checkpoint"):
        with (
            Transactions(at(options, other)) as transactions,
            pytest.raises(CommitFailed, match="of the checkpoint /data/checkpoint"),
        ):
            transactions.commit_once(query, 0, prepare(options, ["a"]))
    assert bodies_of(mq_session_broker, mq_topic) == ["a"]


def test_the_second_of_two_simultaneous_writers_fails(
    mq_session_broker: RunningBroker, mq_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq_session_broker.create_topic(mq_topic)
    query, options = str(uuid.uuid4()), options_for(mq_session_broker, mq_topic)
    one, other = at(options, "/one"), at(options, "/other")
    find = DecisionLog.find

    def late(log: DecisionLog, query: str, batch: int) -> object:
        """The first search of the second writer, during which the first one decides."""
        monkeypatch.setattr(DecisionLog, "find", find)
        with Transactions(one) as transactions:
            transactions.commit_once(query, batch, prepare(one, ["a"]))
        return None

    monkeypatch.setattr(DecisionLog, "find", late)
    with (
        Transactions(other) as transactions,
        pytest.raises(CommitFailed, match="of the checkpoint /one"),
    ):
        transactions.commit_once(query, 0, prepare(other, ["b"]))
    assert bodies_of(mq_session_broker, mq_topic) == ["a"]


def test_a_commit_decided_by_an_earlier_release_is_finished(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic)
    query, options = str(uuid.uuid4()), options_for(mq_session_broker, mq_topic)
    with options.open_session(5) as session:
        log = DecisionLog(session, options, 0)
        parts = [log._put(f"P{query}", part) for part in to_parts(prepare(options, TEXTS))]
        record = {"query": query, "batch": 3, "token": "t", "ends": {}, "parts": parts}
        log._wait_for(log._put(f"D{query}", orjson.dumps(record)))
    with Transactions(at(options, "/checkpoint")) as transactions:
        transactions.commit_once(query, 3, prepare(options, TEXTS))
    assert bodies_of(mq_session_broker, mq_topic) == sorted(TEXTS)


def test_the_late_decision_of_a_suspended_driver_hides_no_later_decision(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic)
    query, options = str(uuid.uuid4()), options_for(mq_session_broker, mq_topic)
    with options.open_session(5) as session, options.open_session(5) as other:

        def commit(batch: int) -> None:
            log = DecisionLog(session, options, batch)
            assert log.find(query, batch) is None
            log.decide(query, batch, {}, prepare(options, [str(batch)]))

        commit(0)
        late = DecisionLog(other, options, 1)
        assert late.find(query, 1) is None  # and then its driver is suspended
        commit(1)
        commit(2)
        late.decide(query, 1, {}, prepare(options, ["1"]))
        log = DecisionLog(session, options, 2)
        for _ in range(decisions._FIRST_STEP - 2):  # the late one is the first of the step
            last = log._put("Pother", b"of others")
        log._wait_for(last)
        assert log.find(query, 2) is not None


def test_a_late_decision_about_an_initially_empty_batch_hides_no_later_one(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    """Its number was skipped; a driver that repeats it with rows stores its decision after later
    ones.
    """
    mq_session_broker.create_topic(mq_topic)
    query, options = str(uuid.uuid4()), options_for(mq_session_broker, mq_topic)
    with options.open_session(5) as session:
        for batch in (0, 2, 3, 1):
            log = DecisionLog(session, options, batch)
            assert log.find(query, batch) is None
            log.decide(query, batch, {}, prepare(options, [str(batch)]))
        for _ in range(decisions._FIRST_STEP - 2):  # the late one is the first of the step
            last = log._put("Pother", b"of others")
        log._wait_for(last)
        for batch in (1, 2, 3):
            assert DecisionLog(session, options, batch).find(query, batch) is not None


@pytest.mark.parametrize("when", ["before its queue entry", "after the abort"])
def test_a_batch_with_a_late_decision_becomes_visible_when_repeated(
    mq_session_broker: RunningBroker, mq_topic: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The commit fails, and Spark aborts: messages rolled back then could never become visible."""
    mq_session_broker.create_topic(mq_topic)
    options = replace(options_for(mq_session_broker, mq_topic), timeout_ms=500)
    query = str(uuid.uuid4())
    writer = StreamWriter(options, schema_of("body string, shardingKey string")[0])
    messages: list[WriterCommitMessage | None] = [TaskCommit(150, query, prepare(options, TEXTS))]
    late: list[tuple[str, bytes]] = []
    with monkeypatch.context() as patched, options.open_session(5) as session:
        log = DecisionLog(session, options, 0)
        put, max_offset = log._put, Admin.max_offset
        end = run(max_offset(log._admin, log._address(), options.commit_topic, 0))

        def put_late(self: DecisionLog, tag: str, body: bytes) -> int:
            """A decision gets no reply in time."""
            if not tag.startswith("D"):
                return put(tag, body)
            late.append((tag, body))
            raise RequestTimeout("broker", 3.0, 10)

        async def behind(self: Admin, address: str, topic: str, queue_id: int) -> int:
            """The queue of the log lags behind the stored records."""
            is_log = topic == options.commit_topic
            return end if is_log else await max_offset(self, address, topic, queue_id)

        if when == "after the abort":
            patched.setattr(DecisionLog, "_put", put_late)
        else:
            patched.setattr(Admin, "max_offset", behind)
        with pytest.raises((CommitFailed, RequestTimeout)):
            writer.commit(messages, 0)
        writer.abort(messages, 0)
        for tag, body in late:
            put(tag, body)
    writer.commit([TaskCommit(150, query, prepare(options, TEXTS))], 0)
    assert bodies_of(mq_session_broker, mq_topic) == sorted(TEXTS)


def test_a_batch_with_a_failed_task_is_rolled_back(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic)
    options, query = options_for(mq_session_broker, mq_topic), str(uuid.uuid4())
    writer = StreamWriter(options, schema_of("body string, shardingKey string")[0])
    prepared = prepare(options, TEXTS)
    writer.abort([TaskCommit(150, query, prepared), None], 0)
    with Transactions(options) as transactions:
        failed, _ = transactions._end(prepared, SysFlag.TRANSACTION_COMMIT)
    assert sum(map(len, failed)) == len(TEXTS)


def many_topics(count: int) -> list[Prepared]:
    return [Prepared(f"{n:0127}", "b" * 100, 0, n.to_bytes(PART, "big")) for n in range(count)]


def test_a_decision_about_very_many_topics_can_be_read_back(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic)
    options, query = options_for(mq_session_broker, mq_topic), str(uuid.uuid4())
    prepared = many_topics(30_000)  # seven megabytes of names
    with options.open_session(5) as session:
        log = DecisionLog(session, options, 0)
        assert log.decide(query, 0, {}, prepared).prepared == prepared
        found = log.find(query, 0)
        assert found is not None and found.prepared == prepared


def test_parts_have_a_limit_and_larger_ones_of_earlier_releases_are_read() -> None:
    prepared = many_topics(30_000)
    parts = list(to_parts(prepared))
    assert all(len(zlib.decompress(part)) <= 2 * 1024 * 1024 for part in parts)
    assert [each for part in parts for each in from_part(part)] == prepared
    heads = orjson.dumps([(*each[:3], len(each.packed)) for each in prepared])
    body = len(heads).to_bytes(4, "big") + heads + b"".join(each.packed for each in prepared)
    assert from_part(zlib.compress(body)) == prepared
    with pytest.raises(ValueError, match="more than"):
        from_part(zlib.compress(bytes(64 * 1024 * 1024)))


def test_a_stream_without_the_id_of_its_query_fails_and_leaves_nothing(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic)
    options = options_for(mq_session_broker, mq_topic)
    writer = StreamWriter(options, schema_of("body string, shardingKey string")[0])
    prepared = prepare(options, TEXTS)
    known, unknown = TaskCommit(0, str(uuid.uuid4())), TaskCommit(150, None, prepared)
    cases: list[list[WriterCommitMessage | None]] = [[unknown], [known, unknown]]
    for messages in cases:
        with pytest.raises(CommitFailed, match="does not report the query"):
            writer.commit(messages, 0)
    writer.abort([unknown], 0)
    with Transactions(options) as transactions:
        failed, _ = transactions._end(prepared, 8)
        assert sum(map(len, failed)) == len(TEXTS)  # they were rolled back
    assert bodies_of(mq_session_broker, mq_topic) == []


def test_a_writer_finds_its_checkpoint_in_its_options(tmp_path: Path) -> None:
    given = {"nameServer": "127.0.0.1:9876", "topic": "T", "checkpointLocation": str(tmp_path)}
    assert parse_write_options(given).checkpoint == str(tmp_path)
    del given["checkpointLocation"]
    assert parse_write_options(given).checkpoint is None


def test_a_batch_that_differs_from_the_committed_rows_is_reported(
    mq_session_broker: RunningBroker, mq_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a checkpoint was restored from a backup: Spark plans the batch again, with more
    rows.
    """
    mq_session_broker.create_topic(mq_topic)
    query, options = str(uuid.uuid4()), options_for(mq_session_broker, mq_topic)
    with Transactions(options) as transactions:
        transactions.open_log()
        transactions.commit_once(query, 1, prepare(options, ["a", "b"]))
        transactions.commit_once(query, 1, prepare(options, ["a", "b"]))
        assert "checkpoint" not in caplog.text
        transactions.commit_once(query, 1, prepare(options, ["a", "b", "c"]))
    assert f"batch 1 of query {query} was committed with 2 rows, and has 3 now" in caplog.text
    assert bodies_of(mq_session_broker, mq_topic) == ["a", "b"]


def test_a_query_whose_decisions_were_deleted_warns_of_duplicates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningBroker(tmp_path, {"mappedFileSizeCommitLog": "65536"}) as broker:
        for topic in ("Results", "Other"):
            broker.create_topic(topic)
        options, query = options_for(broker, "Results"), str(uuid.uuid4())
        with Transactions(options) as transactions:
            transactions.commit_once(query, 0, prepare(options, ["a"]))
            transactions.commit_once(query, 1, prepare(options, ["b"]))
            assert "no decision" not in caplog.text
            fill(broker.name_server, "Other", [b"x" * 10_000] * 20, per_batch=1)
            broker.restart()  # all messages are flushed
            for file in sorted(tmp_path.rglob("commitlog/*"))[:-1]:
                os.utime(file, (1_000_000_000, 1_000_000_000))
            with BlockingSession(broker.name_server) as session:
                run(Admin(session).delete_expired_commit_log(broker.address))
                assert run(Admin(session).min_offset(broker.address, "mq-spark-commits", 0)) > 0
            # A query that starts now has no decisions either, and lacks none.
            transactions.commit_once(str(uuid.uuid4()), 0, prepare(options, ["c"]))
            assert "no decision" not in caplog.text
            transactions.commit_once(query, 1, prepare(options, ["b"]))
        assert f"no decision of query {query} is left in mq-spark-commits" in caplog.text
        assert "if batch 1 was committed before, it will be there twice" in caplog.text
        # Here the visible messages were lost with the log, and "b" was committed again.
        assert bodies_of(broker, "Results") == ["b", "c"]
