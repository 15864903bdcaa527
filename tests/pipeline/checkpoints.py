"""Checkpoints as a query of Spark writes them."""

from mq.pipeline.offsets import Nested, to_nested
from mq.pipeline.topic_generations import from_checkpoint


def offsets_in(checkpoint: object) -> Nested:
    """The offsets of a checkpoint, without what else it has."""
    return to_nested(from_checkpoint(checkpoint))
