"""Spark sources, sinks and jobs on RocketMQ topics.

Spark finds the data source by itself where mq is installed from a wheel, through the module
pyspark_rocketmq. Elsewhere (an editable install, a zip that came with --py-files):

    import mq.pipeline
    mq.pipeline.register(spark)
    spark.read.format("rocketmq").option("nameServer", "host:9876").option("topic", "Orders").load()
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make `format("rocketmq")` known to a session. Raises ImportError without mq[spark]."""
    from mq.pipeline.source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)
