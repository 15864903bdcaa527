"""The tasks of test drivers that run in their own processes.

The argument is the task, as JSON. Prints "tasks N" when more tasks have ended, N in total; "batch
N" when a micro-batch has ended; and "result: JSON" at the end.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import mq.pipeline
from mq.pipeline.jobs import driver, load
from tests.pipeline.jvm import jvm_options

# Each row takes a millisecond, so that a job is still running when an executor is killed.
_SLEEP = "reflect('java.lang.Thread', 'sleep', {})"


def open_session(task: dict[str, Any]) -> SparkSession:
    settings = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": jvm_options(),
        "spark.executor.extraJavaOptions": jvm_options(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
        "spark.local.dir": str(Path(task["folder"], "local")),
        "spark.log.level": "ERROR",
        "spark.python.authenticate.socketTimeout": "200s",  # for a busy machine
    }
    builder = SparkSession.builder.master(task["master"]).appName(task["what"])
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    mq.pipeline.register(session)
    return session


def slow(frame: DataFrame, task: dict[str, Any]) -> DataFrame:
    """The same rows, each delayed by a millisecond or by the time in the task."""
    pause = _SLEEP.format(f"{task.get('pause', 1)}L")
    return frame.where(f"coalesce({pause}, '') != 'never'")


def write_table(spark: SparkSession, task: dict[str, Any]) -> None:
    frame = spark.range(0, task["rows"], 1, task["partitions"])
    frame = slow(frame.selectExpr("cast(id as string) as body"), task)
    writer = frame.write.format("rocketmq").mode("append")
    writer.options(**task["options"]).save()


def read_table(spark: SparkSession, task: dict[str, Any]) -> list[list[int]]:
    reader = spark.read.format("rocketmq").schema("queueId int, queueOffset bigint")
    frame = slow(reader.options(**task["options"]).load(), task)
    return [[row.queueId, row.queueOffset] for row in frame.collect()]


def stream(spark: SparkSession, task: dict[str, Any]) -> None:
    """Copy a topic to Parquet or, with `to`, to a topic, until all current messages are read."""
    reader = spark.readStream.format("rocketmq").options(**task["options"])
    frame = reader.load().select("body", "queueId", "queueOffset")
    checkpoint = str(Path(task["folder"], "checkpoint"))
    if "to" in task:
        frame = frame.select("body")
        writer = frame.writeStream.format("rocketmq").options(**task["to"])
    else:
        writer = frame.writeStream.format("parquet").option("path", task["parquet"])
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    told = -1
    while query.isActive:
        time.sleep(0.02)
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > told:
            told = progress["batchId"]
            print("batch", told, flush=True)
    query.awaitTermination()


def do_job(spark: SparkSession, task: dict[str, Any]) -> list[list[Any]]:
    """Run a job of mq.pipeline.jobs; returns the rows of its first table."""
    job = load(task["job"])
    given = {"cluster": {"nameServer": task["name_server"]}, "answer": None}
    outcome = driver.run_in(spark, job, job.read(task["arguments"]), given)
    return [list(row) for row in outcome.tables[0].rows]


def tell_tasks(spark: SparkSession) -> None:
    """Print the number of ended tasks whenever it changes."""
    tracker = spark.sparkContext.statusTracker()
    told = 0
    while True:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        if done > told:
            told = done
            print("tasks", done, flush=True)
        time.sleep(0.02)


WHAT: dict[str, Callable[[SparkSession, dict[str, Any]], Any]] = {
    "write_table": write_table,
    "read_table": read_table,
    "stream": stream,
    "job": do_job,
}


def main() -> None:
    task = json.loads(sys.argv[1])
    spark = open_session(task)
    print("the session is open", flush=True)
    threading.Thread(target=tell_tasks, args=(spark,), daemon=True).start()
    result = WHAT[task["what"]](spark, task)
    print("result:", json.dumps(result), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
