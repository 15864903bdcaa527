"""Snapshots of the offsets of consumer groups in a folder: a file for each, in a folder per day.

    day=2026-01-31/offsets-20260131T080000123Z-1f0c9a5e.parquet

The day is that of UTC. A snapshot is one file, which appears whole, so that readers never see a
part of one; Spark's readers take the column `day` from the folder's name.
"""

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mq.pipeline import parsing
from mq.pipeline.jobs import choice
from mq.pipeline.jobs.declaration import JobError, option
from mq.pipeline.jobs.offsets_of_groups import QUEUES
from mq.pipeline.jobs.storage import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAYOUTS = ("parquet", "csv", "json")
SCHEMA = f"snapshotTime timestamp, {QUEUES}"

_TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"


def folder_option(help: str) -> Any:
    """Declare the folder of the snapshots."""
    return choice.folder_option(help, "/data/offsets")


def layout_option(help: str) -> Any:
    """Declare a choice of `LAYOUTS`."""
    return option(
        "layout",
        parsing.choice(*LAYOUTS),
        help,
        example="csv",
        default="parquet",
        metavar="|".join(LAYOUTS),
    )


def write(spark: "SparkSession", frame: "DataFrame", folder: str, layout: str) -> str:
    """Add a snapshot, whose columns are those of `SCHEMA` with one time; returns the file's path.

    Raises JobError if the folder is not writable.
    """
    times = frame.agg({"snapshotTime": "max"}).collect()[0][0]
    taken = datetime.now(UTC) if times is None else times.astimezone(UTC)
    stamp = taken.strftime("%Y%m%dT%H%M%S") + f"{taken.microsecond // 1000:03d}Z"
    name = f"day={taken:%Y-%m-%d}/offsets-{stamp}-{uuid.uuid4().hex[:8]}.{layout}"
    target = Folder(spark, folder)
    ordered = frame.coalesce(1).sortWithinPartitions("group", "topic", "brokerName", "queueId")
    target.write_file(ordered, name, layout, **_settings(layout))
    return target.child(name)


def read(spark: "SparkSession", folder: str, layout: str) -> "DataFrame":
    """Return all snapshots in a folder, with the columns of `SCHEMA` and `day`.

    Raises JobError for a folder without any.
    """
    ending = f".{layout}"
    target = Folder(spark, folder)
    found = [name for name in target.files() if _is_snapshot(name) and name.endswith(ending)]
    if not found:
        others = sorted({name.rpartition(".")[2] for name in target.files() if _is_snapshot(name)})
        hint = (
            f"it has snapshots as {', '.join(others)}: give --layout {others[0]}"
            if others
            else "write some first: mq spark submit offset-export"
        )
        raise JobError(f"{folder} has no snapshots of offsets as {layout}; {hint}")
    reader = spark.read.schema(f"{SCHEMA}, day date").options(**_settings(layout))
    days = sorted({name.partition("/")[0] for name in found})
    return (
        reader.format(layout)
        .option("pathGlobFilter", f"offsets-*{ending}")
        .option("basePath", target.path)
        .load([target.child(day) for day in days])
    )


def _is_snapshot(name: str) -> bool:
    return name.startswith("day=") and "/offsets-" in name


def _settings(layout: str) -> dict[str, str]:
    if layout == "parquet":
        return {}
    settings = {"timestampFormat": _TIME_FORMAT, "timeZone": "UTC"}
    if layout == "csv":
        return {**settings, "header": "true"}
    return {**settings, "ignoreNullFields": "false"}
