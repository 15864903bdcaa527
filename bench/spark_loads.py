"""The measured loads in Spark; runs in the environment of the measured Spark.

    python -m bench.spark_loads FILE

The file (JSON) has the addresses of the peers and the loads in order. Each result is a line of JSON
on standard output: the load's name, its side, rows, seconds, the CPU seconds of the peer meanwhile,
and the private memory (MB) of the largest Python worker.
"""

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import mq.pipeline
from bench.spark_ceiling import CeilingDataSource

# Columns of both sides: the body, and position and store time of a message.
OURS = "keys string, body binary, topic string, queueId int, queueOffset bigint, "
OURS += "storeTimestamp timestamp"
KAFKA = ["key", "value", "topic", "partition", "offset", "timestamp"]
# Only the leader acknowledges, as with ours, and larger batches: 40 % more than Kafka's defaults.
# The default delivery timeout of two minutes is too short on a busy machine.
FASTEST = {
    "kafka.acks": "1",
    "kafka.linger.ms": "5",
    "kafka.batch.size": "131072",
    "kafka.delivery.timeout.ms": "600000",
}
TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.1


class Loads:
    """The loads by the names in the file; each returns the number of rows."""

    def __init__(self, spark: SparkSession, peers: dict[str, Any], folder: Path) -> None:
        self._spark = spark
        self._peers = peers
        self._folder = folder
        self._number = 0

    def run(self, whose: str, load: str, rows: int) -> int:
        self._number += 1
        if load.startswith("write"):
            return self._write(whose, rows, f"{self._peers['topic']}-written", load == "write once")
        columns = {"sum": "body", "stream": "body", "parquet": "shared", "parquet all": "all"}
        if load == "stream":
            return self._stream(whose)
        frame = self._frame(self._spark.read, whose, columns[load])
        if load == "sum":
            return _sum(frame, "value" if whose == "Kafka" else "body")
        path = str(self._folder / f"parquet-{self._number}")
        frame.write.parquet(path)
        return 0

    def fill_kafka(self, rows: int) -> None:
        self._write("Kafka", rows, self._peers["topic"])

    def _frame(self, reader: Any, whose: str, columns: str) -> DataFrame:
        if whose == "Kafka":
            reader = reader.format("kafka").option("subscribe", self._peers["topic"])
            reader = reader.option("kafka.bootstrap.servers", self._peers["kafka"])
            frame: DataFrame = reader.option("startingOffsets", "earliest").load()
            return frame.select("value") if columns == "body" else frame.select(*KAFKA)
        schema = {"body": "body binary", "shared": OURS}.get(columns)
        if whose == "ceiling":
            reader = reader.format("ceiling").option("rows", self._peers["rows"])
            frame = reader.option("size", self._peers["size"]).load()
            return frame
        if whose == "mq files":
            reader = reader.format("rocketmq-store").option("path", self._peers["store"])
            reader = reader.option("topic", self._peers["topic"])
        else:
            reader = reader.format("rocketmq").option("nameServer", self._peers["mq"])
            reader = reader.option("topic", self._peers["topic"])
            reader = reader.option("startingOffsets", "earliest")
        frame = reader.load() if schema is None else reader.schema(schema).load()
        return frame

    def _stream(self, whose: str) -> int:
        frame = self._frame(self._spark.readStream, whose, "body")
        column = "value" if whose == "Kafka" else "body"
        rows = 0

        def count(batch: DataFrame, _: int) -> None:
            nonlocal rows
            rows += _sum(batch, column)

        writer = frame.writeStream.foreachBatch(count).trigger(availableNow=True)
        checkpoint = str(self._folder / f"checkpoint-{self._number}")
        query = writer.option("checkpointLocation", checkpoint).start()
        query.awaitTermination()
        return rows

    def _write(self, whose: str, rows: int, topic: str, once: bool = False) -> int:
        body = f"cast(lpad(cast(id as string), {self._peers['size']}, 'abcdefghij') as binary)"
        frame = self._spark.range(0, rows, 1, 8)
        if whose == "Kafka":
            writer = frame.selectExpr(f"{body} as value").write.format("kafka")
            writer = writer.option("kafka.bootstrap.servers", self._peers["kafka"])
            writer = writer.options(**FASTEST)
        else:
            kind = "ceiling" if whose == "ceiling" else "rocketmq"
            writer = frame.selectExpr(f"{body} as body").write.format(kind).mode("append")
            if whose == "mq":
                writer = writer.option("nameServer", self._peers["mq"])
                writer = writer.option("exactlyOnce", str(once).lower())
        writer.option("topic", topic).save()
        return rows


def _sum(frame: DataFrame, column: str) -> int:
    (row,) = frame.selectExpr("count(*)", f"sum(length({column}))").collect()
    rows: int = row[0]
    return rows


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class WorkerMemory:
    """The maximum private memory of a Python worker of Spark while this is open."""

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "WorkerMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(SAMPLE_SECONDS):
            for path in Path("/proc").glob("[0-9]*"):
                try:
                    if b"pyspark.daemon" in (path / "cmdline").read_bytes():
                        text = (path / "status").read_text().partition("RssAnon:")[2]
                        self.megabytes = max(self.megabytes, int(text.split()[0]) / 1024)
                except (OSError, IndexError):  # it has ended
                    continue


def session(jars: list[str], folder: Path) -> SparkSession:
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.jars": ",".join(jars),
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "1",
    }
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").appName("mq bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    mq.pipeline.register(made)
    made.dataSource.register(CeilingDataSource)
    return made


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(tempfile.mkdtemp(prefix="spark-", dir=given["folder"]))
    spark = session(given["jars"], folder)
    spark.range(10).count()
    loads = Loads(spark, given["peers"], folder)
    loads.fill_kafka(given["fill"])
    for whose, load, rows in given["loads"]:
        process = given["processes"].get(whose.split()[0])
        before = cpu_seconds(process) if process else 0.0
        with WorkerMemory() as memory:
            began = time.perf_counter()
            counted = loads.run(whose, load, rows)
            seconds = time.perf_counter() - began
        cpu = cpu_seconds(process) - before if process else 0.0
        result = {"load": load, "whose": whose, "rows": counted or rows, "seconds": seconds}
        print(json.dumps({**result, "cpu": cpu, "megabytes": memory.megabytes}), flush=True)
        for path in folder.glob("parquet-*"):
            shutil.rmtree(path)
    spark.stop()


if __name__ == "__main__":
    main()
