"""Read tasks: they pull their ranges and make record batches of them."""

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
    """What one task reads. No ranges at all is what an empty topic has."""

    ranges: tuple[QueueRange, ...]
    skip_absent: bool = True  # as PullSettings has it


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
