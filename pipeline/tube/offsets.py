"""Offsets of TubeMQ's partitions as options and checkpoints have them: {partition key: offset}.

An offset is a position in the index of a store, in bytes: of the index record of a message. All
partitions of the store share the index, so that from a message of a partition to the next there may
be any number of records.
"""

from collections.abc import Mapping

from mq.pipeline.offsets import EARLIEST, Offsets, Queue
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.strings import PartitionKey

INDEX_RECORD = 28  # bytes (DataStoreUtils.STORE_INDEX_HEAD_LEN)


class TubePartition(Queue):
    """A partition; `broker_name` is the number of its broker, `queue_id` that of the partition."""

    @classmethod
    def parse(cls, text: str) -> "TubePartition":
        """Read a partition key. Raises ValueError for what is none."""
        try:
            key = PartitionKey.parse(text)
        except MalformedText as error:
            raise ValueError(str(error)) from None
        return cls(key.topic, str(key.broker_id), key.partition_id)

    @property
    def key(self) -> str:
        """brokerId:topic:partitionId."""
        return f"{self.broker_name}:{self.topic}:{self.queue_id}"

    def __str__(self) -> str:
        return f"partition {self.key}"


def to_keys(offsets: Mapping[Queue, int]) -> dict[str, int]:
    """The form of checkpoints. Sorted: equal offsets are to be equal text."""
    return {TubePartition(*queue).key: offsets[queue] for queue in sorted(offsets)}


def from_keys(keys: object) -> Offsets:
    """Read what `to_keys` made, or a user wrote. Raises ValueError that says what is wrong."""
    if not isinstance(keys, dict):
        raise ValueError("the whole is not an object")
    offsets: Offsets = {}
    for key, offset in keys.items():
        partition = TubePartition.parse(str(key))
        if type(offset) is not int or offset < EARLIEST or (offset > 0 and offset % INDEX_RECORD):
            raise ValueError(
                f"the offset {offset!r} of {partition}: it is a multiple of {INDEX_RECORD}"
            )
        offsets[partition] = offset
    return offsets
