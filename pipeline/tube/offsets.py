"""Offsets of TubeMQ's partitions in options and checkpoints: {partition key: offset}.

An offset is the position of a message's index record in the index of a store, in bytes. All
partitions of the store share the index, so any number of records may be between two consecutive
messages of a partition.
"""

from collections.abc import Mapping

from mq.pipeline.offsets import EARLIEST, Offsets, Queue
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.strings import PartitionKey

INDEX_RECORD = 28  # bytes (DataStoreUtils.STORE_INDEX_HEAD_LEN)


class TubePartition(Queue):
    """A partition; `broker_name` is the id of its broker, `queue_id` the id of the partition."""

    @classmethod
    def parse(cls, text: str) -> "TubePartition":
        """Parse a partition key. Raises ValueError for a malformed one."""
        try:
            key = PartitionKey.parse(text)
        except MalformedText as error:
            raise ValueError(str(error)) from None
        return cls(key.topic, str(key.broker_id), key.partition_id)

    @property
    def key(self) -> str:
        """The partition key, brokerId:topic:partitionId."""
        return f"{self.broker_name}:{self.topic}:{self.queue_id}"

    def __str__(self) -> str:
        return f"partition {self.key}"


def to_keys(offsets: Mapping[Queue, int]) -> dict[str, int]:
    """Return the form of checkpoints, sorted so that equal offsets are equal text."""
    return {TubePartition(*queue).key: offsets[queue] for queue in sorted(offsets)}


def from_keys(keys: object) -> Offsets:
    """Parse what `to_keys` returned, or a user wrote. Raises ValueError that describes the
    mistake.
    """
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
