"""Checkpoints as a query of Spark writes them."""

from mq.pipeline.lives import from_checkpoint
from mq.pipeline.offsets import Nested, to_nested


def offsets_in(checkpoint: object) -> Nested:
    """The offsets of a checkpoint, without what else it has."""
    return to_nested(from_checkpoint(checkpoint))
