"""How Spark finds `format("rocketmq")`: it imports the modules on its path called pyspark_*.

It does so in every session that uses any Python data source, so an import that fails here (a Spark
before 4.0, no pyarrow) must not take the others with it.
"""

import warnings

try:
    from mq.pipeline.source import RocketMQDataSource as DefaultSource
except ImportError as error:
    warnings.warn(
        f'format("rocketmq") is not there: {error}; install mq[spark], with Spark 4.0 or later',
        ImportWarning,
        stacklevel=1,
    )

__all__ = ["DefaultSource"]
