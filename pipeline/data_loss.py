"""What was to be read and is not there: whether a query fails of it, or goes on and logs it."""

import logging

from mq.client.errors import MQError
from mq.pipeline.errors import BrokerAway, DataLoss

log = logging.getLogger(__name__)


def report_gone(
    queue: object, begin: int, end: int, why: str = "they were deleted", *, fail: bool
) -> None:
    """Tell of messages of a queue that are not there any more. Raises DataLoss if that fails."""
    what = f"{queue}: the messages from offset {begin} to {end} are gone: {why}"
    if fail:
        raise DataLoss(what)
    log.warning("%s", what)


def report_recreated(topic: str, broker_name: str, *, fail: bool) -> None:
    """Report that a topic has another life than the part that was read. Raises DataLoss if that
    fails."""
    what = (
        f"topic {topic} at broker {broker_name} was deleted and created again: a message that a "
        "batch had begun at is another one now"
    )
    if fail:
        raise DataLoss(
            f"{what}; with failOnDataLoss=false the new topic is read from its beginning"
        )
    log.warning("%s; the new topic is read from its beginning", what)


def report_away(what: str, end: int, error: MQError, *, fail: bool, skip: bool) -> None:
    """Tell of a broker that stays away in the middle of a range, which goes up to `end`.

    Raises DataLoss if that fails, BrokerAway if the rest of the range may not be skipped.
    """
    if fail:
        raise DataLoss(f"{what}; the broker has to come back") from error
    if not skip:
        raise BrokerAway(what) from error
    log.warning("%s; up to %d nothing is read", what, end)
