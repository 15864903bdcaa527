"""The report about latencies, failures and retries in traces."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.push.listener import RetryLater
from mq.client.producer.producer import Producer
from mq.client.trace.entries import EndTransaction, Pub, SubAfter, SubBefore, TraceEntry, encode
from mq.pipeline.jobs import load, trace_analysis
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.declaration import JobError
from mq.pipeline.jobs.job_result import JobResult
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import TRACE_TOPIC
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE, require_spark
from tests.pipeline.filling import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def pub(message_id: str, at: int, cost: int, success: bool = True, topic: str = "Orders") -> Pub:
    return Pub(
        timestamp=at,
        group="shop",
        topic=topic,
        message_id=message_id,
        cost=cost,
        success=success,
    )


def consumed(
    message_id: str,
    request: str,
    at: int,
    cost: int | None,
    success: bool = True,
    retry_times: int = 0,
) -> list[TraceEntry]:
    before = SubBefore(
        timestamp=at,
        group="billing",
        request_id=request,
        message_id=message_id,
        retry_times=retry_times,
    )
    if cost is None:
        return [before]
    outcome = 0 if success else 4
    after = SubAfter(
        request_id=request, message_id=message_id, cost=cost, success=success, outcome=outcome
    )
    return [before, after]


RECORDS: list[TraceEntry] = [
    pub("m1", 1000, 10),
    pub("m2", 2000, 20),
    pub("m3", 3000, 30),
    pub("lost", 3500, 999, success=False),
    *consumed("m1", "r1", 1015, 100),  # waits 5, end to end 115
    *consumed("m2", "r2", 2120, 50, success=False),  # waits 100
    *consumed("m2", "r3", 4000, 60, retry_times=1),  # end to end 2060
    *consumed("m3", "r4", 3025, None),  # delivered before the send ended, without an end
    *consumed("other", "r5", 9000, 7),
    EndTransaction(
        timestamp=1,
        group="payers",
        topic="Orders",
        message_id="t",
        transaction_id="t",
        state="COMMIT_MESSAGE",
    ),
]


def entries(spark: "SparkSession", *bodies: bytes) -> "DataFrame":
    from mq.pipeline.jobs.trace_entries import entries as decoded

    return decoded(spark.createDataFrame([(body,) for body in bodies], "body binary"))


def in_bodies(records: Sequence[TraceEntry]) -> list[bytes]:
    """Two entries in each trace message."""
    texts = [encode(each) for each in records]
    return ["".join(texts[n : n + 2]).encode() for n in range(0, len(texts), 2)]


def test_sends_are_measured_by_topic_and_group(spark: "SparkSession") -> None:
    require_spark()
    table = trace_analysis.SENDS.collect(trace_analysis.sends(entries(spark, *in_bodies(RECORDS))))
    assert table.rows == [("Orders", "shop", 4, 1, 20, 30, 30, 30)]


def test_deliveries_are_measured_from_the_send(spark: "SparkSession") -> None:
    frame = trace_analysis.deliveries(entries(spark, *in_bodies(RECORDS)))
    table = trace_analysis.CONSUMES.collect(trace_analysis.consumes(frame))
    traced, other = table.rows
    assert traced == (
        *("Orders", "billing", 3, 4, 1, 1, 1, 1),
        *(5, 100, 100, 100),  # wait: 0, 5, 100
        *(60, 100, 100, 100),  # consume: 50, 60, 100
        *(115, 2060, 2060, 2060),  # end to end
    )
    assert other == (
        *("(not traced)", "billing", 1, 1, 0, 0, 0, 0),
        *(None, None, None, None),
        *(7, 7, 7, 7),
        *(None, None, None, None),
    )


def test_outcomes_are_counted_by_kind(spark: "SparkSession") -> None:
    table = trace_analysis.OUTCOMES.collect(
        trace_analysis.outcomes(entries(spark, *in_bodies(RECORDS)))
    )
    assert table.rows == [
        ("billing", "SUCCESS", 3),
        ("billing", "FAILED", 1),
        ("payers", "COMMIT_MESSAGE", 1),
    ]


def test_an_unreadable_trace_is_a_separate_row(spark: "SparkSession") -> None:
    good = encode(pub("m1", 1000, 10))
    bodies = [good.encode() + b"Pub\x01oops\x02", b"\xff", b"Unknown\x01x\x02", b""]
    kinds = sorted(row.kind for row in entries(spark, *bodies).collect())
    assert kinds == ["Malformed", "Malformed", "Pub"]


def run(spark: "SparkSession", broker: RunningBroker, **given: str) -> JobResult:
    job = load("trace-analysis")
    return job.run(spark, job.read(given), ClusterAccess(broker.name_server))


def test_the_traces_of_clients_are_reported(spark: "SparkSession", tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store") as broker:
        broker.create_topic("Orders", 1)
        asyncio.run(_send_and_consume(broker.name_server))
        outcome = run(spark, broker)
        sends, consumes, outcomes = outcome.tables
        assert [row[:4] for row in sends.rows] == [("Orders", "shop", 2, 0)]
        # messages, deliveries, retries, failed, unfinished
        assert [row[:7] for row in consumes.rows] == [("Orders", "billing", 2, 3, 1, 1, 0)]
        end_to_end = consumes.rows[0][-1]
        assert end_to_end >= 1000  # the retry's delay level is one second
        assert sorted(outcomes.rows) == [("billing", "FAILED", 1), ("billing", "SUCCESS", 2)]
        assert outcome.failures == []
        assert outcome.page.count("<svg") == 2

        fill(broker.name_server, TRACE_TOPIC, [b"\xff"])
        assert run(spark, broker).failures == ["1 traces cannot be read to their end"]
        with pytest.raises(JobError, match="has no traces in the chosen time"):
            run(spark, broker, end="1")
        from pyspark.errors import AnalysisException

        with pytest.raises(AnalysisException, match=r"BrokerDown: broker broker-x of topic"):
            run(spark, broker, **{"expected-brokers": "broker-a,broker-x"})


async def _send_and_consume(name_server: str) -> None:
    tries: list[Any] = []
    done = asyncio.Event()

    async def listen(message: StoredMessage) -> None:
        tries.append(message.body)
        if len(tries) == 3:
            done.set()
        if message.body == b"bad" and tries.count(b"bad") == 1:
            raise RetryLater(1)

    async with Producer(name_server, "shop", trace=True) as producer:
        for body in (b"bad", b"good"):
            await producer.send(Message("Orders", body))
    async with Consumer(
        name_server,
        "billing",
        {"Orders": "*"},
        listener=listen,
        trace=True,
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ):
        await asyncio.wait_for(done.wait(), PATIENCE)
