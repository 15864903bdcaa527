"""The data source, loaded as Spark loads it."""

from typing import TYPE_CHECKING

from mq.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: "SparkSession", broker: RunningBroker, **options: str) -> "DataFrame":
    """Return the frame of the source with these options; `schema` is not one of its options."""
    reader = spark.read.format("rocketmq").option("nameServer", broker.name_server)
    if "schema" in options:
        reader = reader.schema(options.pop("schema"))
    return reader.options(**options).load()
