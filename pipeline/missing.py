"""Expected topics and brokers that are in no route.

A broker that is down leaves the routes within seconds, as if its queues had never existed. Only
readers that know of it (by an option, a previous batch, or messages prepared there) detect its
absence.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from mq.client.errors import MQError
from mq.pipeline.errors import BrokerDown, DataLoss, Unknown
from mq.pipeline.options import ReadOptions, example

log = logging.getLogger(__name__)


class Missing(NamedTuple):
    """A topic that no name server knows, or a broker that is not in its route."""

    topic: str
    broker_name: str | None
    reason: MQError

    def __str__(self) -> str:
        where = "" if self.broker_name is None else f"broker {self.broker_name} of "
        return f"{where}topic {self.topic}"


def complain(options: ReadOptions, absent: Iterable[Missing], *, running: bool) -> None:
    """Raise the error for what is absent.

    `running` says that it was there before: then it is DataLoss for a topic. Otherwise it is
    Unknown, because the name may be wrong. It is always BrokerDown for a broker.
    """
    for each in absent:
        if each.broker_name is not None:
            raise BrokerDown(each.broker_name, each.topic, "it is not in its route")
        if running:
            raise DataLoss(
                f"topic {each.topic} has disappeared: its brokers are down, or it was deleted"
            )
        if options.topic_pattern is None:
            raise Unknown("topic", f"{each.reason}; or all its brokers are down", example("topic"))


def log_once(absent: Iterable[Missing], logged: set[str]) -> None:
    """Log what is skipped, unless it is in `logged`, and remove from `logged` what has returned."""
    names = {str(each) for each in absent}
    for name in sorted(names - logged):
        log.warning("%s is absent; skipping it until it returns", name)
    logged &= names
    logged |= names
