"""Topics and brokers that were to be there, and that no route has.

A broker that is down leaves the routes within seconds, as if its queues had never been. Who knows
of them (an option, a batch that was read before, messages that were prepared there) misses them.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from mq.client.errors import MQError
from mq.pipeline.errors import BrokerDown, DataLoss, Unknown
from mq.pipeline.options import ReadOptions, example

log = logging.getLogger(__name__)


class Missing(NamedTuple):
    """A topic that no name server knows, or a broker that its route has not."""

    topic: str
    broker_name: str | None
    reason: MQError

    def __str__(self) -> str:
        where = "" if self.broker_name is None else f"broker {self.broker_name} of "
        return f"{where}topic {self.topic}"


def complain(options: ReadOptions, absent: Iterable[Missing], *, running: bool) -> None:
    """Raise for what is absent.

    `running` says that it was there before: then it is DataLoss. Else it is BrokerDown for a
    broker, and Unknown for a topic, whose name may be wrong.
    """
    for each in absent:
        if each.broker_name is not None:
            raise BrokerDown(each.broker_name, each.topic, "it is not in its route")
        if running:
            raise DataLoss(
                f"topic {each.topic} is not there any more: its brokers are down, or it was deleted"
            )
        if options.topic_pattern is None:
            raise Unknown("topic", f"{each.reason}; or all its brokers are down", example("topic"))


def log_once(absent: Iterable[Missing], logged: set[str]) -> None:
    """Log what is left out, unless it is in `logged`; what is back leaves that."""
    names = {str(each) for each in absent}
    for name in sorted(names - logged):
        log.warning("%s is left out until it is there", name)
    logged &= names
    logged |= names
