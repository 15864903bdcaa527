"""How Spark finds `format("rocketmq-store")`, as pyspark_rocketmq for `format("rocketmq")`.

Of each module it takes one source.
"""

import warnings

try:
    from mq.pipeline.store_source import RocketMQStoreDataSource as DefaultSource
except ImportError as error:
    warnings.warn(
        f'format("rocketmq-store") is not there: {error}; '
        "install mq[spark], with Spark 4.0 or later",
        ImportWarning,
        stacklevel=1,
    )

__all__ = ["DefaultSource"]
