"""The options of writes, each declared once. Spark ignores the case of their names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mq.client.producer.outgoing import MAX_BODY
from mq.client.producer.producer import COMPRESS_OVER
from mq.pipeline import parsing
from mq.pipeline.declared import ClusterOptions, option, read_declared
from mq.protocol.compression import CompressionType
from mq.protocol.names import check_group, check_topic

# Brokers limit a batch to the size of a message, including what they add to each part of it.
_MOST = MAX_BODY // 2

_CHECKPOINT = "checkpointlocation"  # Spark itself adds this to the options of a sink

_CODECS = {"none": None, **{kind.name.lower(): kind for kind in CompressionType}}


def _codec(text: str) -> CompressionType | None:
    return _CODECS[parsing.choice(*_CODECS)(text)]


@dataclass(frozen=True)
class WriteOptions(ClusterOptions):
    """The target of a write, and its settings."""

    topic: str | None = option("topic", check_topic, "Orders")
    group: str = option("group", check_group, "spark-orders", "mq_spark_sink")
    timeout_ms: int = option("sendTimeoutMs", parsing.number(1, 600_000), "10000", 10_000)
    retries: int = option("numRetries", parsing.number(0, 1000), "3", 3)
    retry_pause_ms: int = option("retryIntervalMs", parsing.number(0, 600_000), "1000", 1000)
    batch_bytes: int = option("sendBatchBytes", parsing.number(1, _MOST), "262144", 256 * 1024)
    compression: CompressionType | None = option("compression", _codec, "zlib")
    compress_over: int = option(
        "compressOverBytes", parsing.number(1, MAX_BODY), "4096", COMPRESS_OVER
    )
    exactly_once: bool = option("exactlyOnce", parsing.yes, "true", False)
    commit_topic: str = option("commitTopic", check_topic, "spark-commits", "mq-spark-commits")

    checkpoint: str | None = None  # of the query, if one of its options names it

    @property
    def timeout(self) -> float:
        """In seconds, for one request."""
        return self.timeout_ms / 1000

    @property
    def retry_pause(self) -> float:
        """In seconds, before the first retry."""
        return self.retry_pause_ms / 1000


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write. Raises OptionError that names the invalid one."""
    own = {key: text for key, text in given.items() if key.lower() != _CHECKPOINT}
    options = read_declared(WriteOptions, own)
    options.check_cluster()
    checkpoints = [text for key, text in given.items() if key.lower() == _CHECKPOINT]
    return replace(options, checkpoint=checkpoints[0]) if checkpoints else options
