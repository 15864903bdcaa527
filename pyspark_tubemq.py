"""How Spark finds `format("tubemq")`, as pyspark_rocketmq for `format("rocketmq")`.

Of each module it takes one source.
"""

import warnings

try:
    from mq.pipeline.tube.source import TubeMQDataSource as DefaultSource
except ImportError as error:
    warnings.warn(
        f'format("tubemq") is not there: {error}; install mq[spark], with Spark 4.0 or later',
        ImportWarning,
        stacklevel=1,
    )

__all__ = ["DefaultSource"]
