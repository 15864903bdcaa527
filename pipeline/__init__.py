"""Spark sources, sinks and jobs on topics of RocketMQ, and a source on topics of TubeMQ.

If mq is installed from a wheel, Spark finds the data sources by itself, through the module
pyspark_rocketmq. Otherwise (an editable install, a zip passed with --py-files) register them:

    import mq.pipeline
    mq.pipeline.register(spark)

    spark.read.format("rocketmq").option("nameServer", "host:9876").option("topic", "Orders").load()
    spark.read.format("rocketmq-store").load("/var/lib/mq/store")
    spark.read.format("tubemq").option("masters", "host:8715").option("topic", "orders")...
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mq.pipeline.store_files import Damage


def register(spark: "SparkSession") -> None:
    """Register the formats "rocketmq", "rocketmq-store" and "tubemq" in a session.

    Raises ImportError without mq[spark].
    """
    from pyspark.errors import AnalysisException

    from mq.pipeline.source import RocketMQDataSource
    from mq.pipeline.store_source import RocketMQStoreDataSource
    from mq.pipeline.tube.source import TubeMQDataSource

    for source in (RocketMQDataSource, RocketMQStoreDataSource, TubeMQDataSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # Spark 4.0 refuses a source that it has found by itself, through pyspark_rocketmq.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


def damage(*paths: str) -> "list[Damage]":
    """Return the damage in the commit log of a store, found without Spark.

    Each path is the folder of a store or of its log. Raises OptionError for one without a log.
    """
    from mq.pipeline.store_damage import damage as find

    return find(*paths)
