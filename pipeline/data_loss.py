"""Data loss: messages to read that are gone either fail the query or are logged."""

import logging

from mq.client.errors import MQError
from mq.pipeline.errors import BrokerAway, DataLoss

log = logging.getLogger(__name__)


def report_gone(
    queue: object, begin: int, end: int, why: str = "they were deleted", *, fail: bool
) -> None:
    """Report messages of a queue that are gone. Raises DataLoss if `fail`."""
    what = f"{queue}: the messages from offset {begin} to {end} are gone: {why}"
    if fail:
        raise DataLoss(what)
    log.warning("%s", what)


def report_recreated(topic: str, broker_name: str, *, fail: bool) -> None:
    """Report that a topic was recreated since it was read. Raises DataLoss if `fail`."""
    what = (
        f"topic {topic} at broker {broker_name} was deleted and created again: the message at the "
        "start of a batch has changed"
    )
    if fail:
        raise DataLoss(
            f"{what}; with failOnDataLoss=false the new topic is read from its beginning"
        )
    log.warning("%s; the new topic is read from its beginning", what)


def report_away(what: str, end: int, error: MQError, *, fail: bool, skip: bool) -> None:
    """Report a broker that stays unavailable in the middle of a range, which extends to `end`.

    Raises DataLoss if `fail`, and BrokerAway if the rest of the range must not be skipped.
    """
    if fail:
        raise DataLoss(f"{what}; start the broker") from error
    if not skip:
        raise BrokerAway(what) from error
    log.warning("%s; skipping up to offset %d", what, end)
