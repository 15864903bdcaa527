"""Queries like those of tests, run once to archive the classes that they load.

The arguments are settings of the session, NAME=VALUE.
"""

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import mq.pipeline
from mq.pipeline.jobs import load
from mq.pipeline.jobs.access import ClusterAccess
from mq.testing import RunningBroker

_TOPIC = "Orders"


def main(settings: list[str]) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    mq.pipeline.register(spark)
    with (
        tempfile.TemporaryDirectory() as folder,
        RunningBroker(Path(folder, "store")) as broker,
    ):
        broker.send(_TOPIC, b"an order", tags="A", keys=("k",))
        options = {"nameServer": broker.name_server, "topic": _TOPIC}
        frame = spark.read.format("rocketmq").options(**options).load()
        assert frame.where("tags = 'A'").groupBy("queueId").count().orderBy("queueId").collect()
        frame.select("body").write.format("rocketmq").options(**options).mode("append").save()
        _archive(spark, broker, f"{folder}/archive")
        if find_spec("pyspark.sql.streaming.datasource") is not None:
            _stream(spark, {**options, "startingOffsets": "earliest"}, f"{folder}/checkpoint")
    spark.stop()


def _archive(spark: SparkSession, broker: RunningBroker, folder: str) -> None:
    job = load("archive")
    options = job.read({"folder": folder, "topic": _TOPIC})
    job.run(spark, options, ClusterAccess(broker.name_server))
    assert spark.read.parquet(folder).count() == 2


def _stream(spark: SparkSession, options: dict[str, str], checkpoint: str) -> None:
    def note(batch: DataFrame, _: int) -> None:
        batch.collect()

    stream = spark.readStream.format("rocketmq").options(**options).load().writeStream
    query = stream.foreachBatch(note).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
