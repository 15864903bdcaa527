"""The checkpoints that a Spark query writes."""

from mq.pipeline.offsets import Nested, to_nested
from mq.pipeline.topic_generations import from_checkpoint


def offsets_in(checkpoint: object) -> Nested:
    """Return the offsets of a checkpoint without its other contents."""
    return to_nested(from_checkpoint(checkpoint))
