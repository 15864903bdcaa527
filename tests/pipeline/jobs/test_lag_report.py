"""The history of lag, from snapshots."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mq.pipeline.jobs import lag_report, load, snapshots
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.declaration import JobError
from mq.pipeline.jobs.job_result import JobResult
from tests.pipeline.conftest import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def snapshot(
    spark: "SparkSession", minutes: float, *queues: tuple[str, int, int | None, int]
) -> "DataFrame":
    """Queues as (group, queue id, consumer offset, broker offset), this many minutes after noon."""
    time = NOON + timedelta(minutes=minutes)
    rows = [
        (time, "broker-a", "Orders", queue, group, offset, end, 0, end - (offset or 0), time)
        for group, queue, offset, end in queues
    ]
    return spark.createDataFrame(rows, snapshots.SCHEMA)


def milliseconds(minutes: float) -> int:
    return int((NOON + timedelta(minutes=minutes)).timestamp() * 1000)


def history(spark: "SparkSession") -> "DataFrame":
    """`fast` consumes 20/s of 10/s sent, `slow` 5/s, `stuck` nothing; `new` is in one snapshot
    only.
    """
    frames = [
        snapshot(
            spark,
            minute,
            ("fast", 0, 1200 * minute, 600 * minute + 6000),
            ("slow", 0, 300 * minute, 600 * minute),
            ("stuck", 0, 7, 7),
            ("stuck", 1, 5, 600 * minute + 10),
            ("stuck", 2, None, 3),
            *([("new", 0, 1, 2)] if minute == 4 else []),
        )
        for minute in range(5)
    ]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    return whole


def test_rates_predict_when_a_group_has_caught_up(spark: "SparkSession") -> None:
    table = lag_report.GROUPS.collect(lag_report.rates(history(spark), 3600))
    assert {row[0]: row[2:] for row in table.rows} == {
        # lag 3600, decreasing by 10 a second
        "fast": (3600, 6000, 20.0, 10.0, milliseconds(4 + 6), 5, milliseconds(4)),
        "stuck": (2408, 2408, 0.0, 10.0, None, 5, milliseconds(4)),
        "slow": (1200, 1200, 5.0, 10.0, None, 5, milliseconds(4)),
        "new": (1, 1, None, None, None, 1, milliseconds(4)),
    }
    assert [row[0] for row in table.rows] == ["fast", "stuck", "slow", "new"]


def test_rates_are_computed_over_the_window(spark: "SparkSession") -> None:
    frame = snapshot(spark, 0, ("g", 0, 0, 100)).union(snapshot(spark, 60, ("g", 0, 0, 100)))
    frame = frame.union(snapshot(spark, 61, ("g", 0, 60, 100)))
    (row,) = lag_report.rates(frame, 60).collect()
    assert (row.consumedPerSecond, row.sentPerSecond) == (1.0, 0.0)
    (row,) = lag_report.rates(frame, 3660).collect()
    assert row.consumedPerSecond == 0.016


def test_an_offset_that_went_back_does_not_count_as_consumption(spark: "SparkSession") -> None:
    frame = snapshot(spark, 0, ("g", 0, 500, 600)).union(snapshot(spark, 1, ("g", 0, 0, 600)))
    (row,) = lag_report.rates(frame.union(snapshot(spark, 2, ("g", 0, 120, 600))), 3600).collect()
    assert row.consumedPerSecond == 1.0
    assert row.lag == 480


def test_stalled_queues_are_found(spark: "SparkSession") -> None:
    table = lag_report.STALLED.collect(lag_report.stalled_queues(history(spark), 3600))
    assert table.rows == [
        ("stuck", "Orders", "broker-a", 1, 5, 2405, milliseconds(0)),
        ("stuck", "Orders", "broker-a", 2, None, 3, milliseconds(0)),
    ]
    (first, _) = lag_report.STALLED.collect(lag_report.stalled_queues(history(spark), 120)).rows
    assert first[-1] == milliseconds(2)


def report(spark: "SparkSession", **given: str) -> JobResult:
    job = load("lag-report")
    return job.run(spark, job.read(given), ClusterAccess("unused:9876"))


def test_a_report_is_made_from_snapshots_in_a_folder(spark: "SparkSession", tmp_path: Path) -> None:
    for minute in range(3):
        frame = snapshot(spark, minute, ("a.b", 0, minute, 100), ("<axb>", 0, 0, minute))
        snapshots.write(spark, frame, str(tmp_path), "csv")
    given = {"folder": str(tmp_path), "layout": "csv", "end": "2026-02-01T00:00Z"}
    outcome = report(spark, **given)
    groups, standing, lags = outcome.tables
    assert [row[:3] for row in groups.rows] == [("a.b", "Orders", 98), ("<axb>", "Orders", 2)]
    assert standing.rows == []  # it had no messages to consume at first
    assert [row for row in lags.rows if row[1] == "a.b"] == [
        (milliseconds(minute), "a.b", "Orders", 100 - minute) for minute in range(3)
    ]
    assert outcome.page.count("<svg") == 2 and "<axb>" not in outcome.page
    only = report(spark, **given, groups="a.*", begin="2026-01-31T12:01:00Z")
    assert [(row[0], row[7]) for row in only.tables[0].rows] == [("a.b", 2)]


def test_a_mistake_is_reported_in_one_line(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(JobError, match="has no snapshots of offsets as parquet; write some first"):
        report(spark, folder=str(tmp_path))
    snapshots.write(spark, snapshot(spark, 0, ("g", 0, 0, 1)), str(tmp_path), "json")
    with pytest.raises(JobError, match="it has snapshots as json: give --layout json"):
        report(spark, folder=str(tmp_path))
    with pytest.raises(JobError, match="have nothing that --groups"):
        report(spark, folder=str(tmp_path), layout="json", groups="nobody")
