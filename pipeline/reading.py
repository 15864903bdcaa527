"""Read tasks: they pull their ranges and build record batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from mq.pipeline.decoder import Decoder
from mq.pipeline.options import ReadOptions
from mq.pipeline.puller import QueuePuller, QueueRange


@dataclass
class Partition(InputPartition):
    """The ranges that one task reads. An empty topic has none."""

    ranges: tuple[QueueRange, ...]
    skip_absent: bool = True  # as in PullSettings


def read(
    options: ReadOptions, schema: StructType, partition: Partition
) -> Iterator[pa.RecordBatch]:
    """Pull the ranges of a partition, one after the other, and decode them."""
    decoder = Decoder(schema, options.tags(), fail_on_damage=options.fail_on_damage)
    settings = options.pull_settings()._replace(skip_absent=partition.skip_absent)
    with options.session() as session:
        for pulled in partition.ranges:
            puller = QueuePuller(session, pulled, settings)
            for buffer, positions in puller.segments():
                yield from decoder.batches(buffer, positions, pulled.broker_name)
